"""The steps of an install, as the command shows them."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from envsolve.cli.install import ShownSteps
from envsolve.cli.output import SETTINGS
from envsolve.install.errors import Step
from envsolve.system import progress

# Recorded from uv 0.11 and pip 25.
UV = (
    "Resolved 2 packages in 7ms",
    "Downloading torch (846.4MiB)",
    "Downloading numpy (16.0MiB)",
    " Downloaded numpy",
)
PIP = (
    "Collecting numpy==2.3.4",
    "  Downloading numpy-2.3.4-cp312-cp312-manylinux_2_28_x86_64.whl (16.6 MB)",
    "Collecting torch==2.9.1",
    "  Downloading torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl (899.8 MB)",
)


def shown(steps: Sequence[Step]) -> str:
    stream = io.StringIO()
    with progress.shown(stream):
        for step in steps:
            ShownSteps()(step)
    return stream.getvalue()


STEPS = (Step("packages", "installing 2 packages"), Step("output", "Resolved 2"), Step("done", "finished"))


def test_a_line_for_each_step_without_a_terminal() -> None:
    assert shown(STEPS) == "installing 2 packages\nfinished\n"


def test_every_line_of_the_installer_when_verbose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SETTINGS, "verbose", True)
    assert shown(STEPS) == "installing 2 packages\nResolved 2\nfinished\n"


@pytest.mark.parametrize(
    ("lines", "size", "torch"),
    [(UV, 16 * 2**20, "888 MB"), (PIP, 16_600_000, "900 MB")],
    ids=["uv", "pip: one file after the other"],
)
def test_bytes_are_counted_when_a_file_is_there(lines: Sequence[str], size: int, torch: str) -> None:
    show = ShownSteps()
    with progress.shown(io.StringIO()):
        show(Step("packages", "installing 2 packages", 1_000_000_000))
        for line in lines:
            show(Step("output", line))
        status = progress._status
        assert (status.done, status.total, status.note) == (size, 1_000_000_000, f"downloading torch ({torch})")
        show(Step("output", "Prepared 2 packages in 59.08s" if lines is UV else "Installing collected packages: torch"))
        assert progress._status.text == "putting the files in place"

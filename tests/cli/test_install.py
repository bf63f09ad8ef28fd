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
UV = ("Resolved 2 packages in 7ms", "Downloading torch (846.4MiB)", "Downloading numpy (16.0MiB)", " Downloaded numpy")
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
        assert progress._status.text == "moving the files into place"


# What uv 0.13 draws on a terminal of 60 columns, with its spinner, and what pip 23 and pip 26 draw.
def frame(count: int, *bars: str) -> str:
    return "".join(f"{row:<60}" for row in (f"\u2819 Preparing packages... ({count}/3)", *bars))


def bar(name: str, done: str, size: str) -> str:
    return f"{name:<20} {'-' * 30} {done:>8}/{size:<8}"


def test_the_bytes_of_each_file_are_counted_while_uv_downloads_it() -> None:
    show = ShownSteps()
    with progress.shown(io.StringIO()):
        show(Step("packages", "installing 3 packages", 1_000_000_000))
        show(
            Step(
                "download",
                frame(0, bar("torch", "0 B", "800.00 MiB"), bar("nvidia-cudnn-cu12", "1.00 MiB", "64.00 MiB")),
            )
        )
        assert progress._status.done == 2**20
        show(Step("download", frame(1, bar("torch", "200.00 MiB", "800.00 MiB"))))
        assert progress._status.done == 264 * 2**20
        assert progress._status.note.startswith("downloading torch (839 MB)")
        next(iter(show._files.values())).began -= 10
        show(Step("download", frame(1, bar("torch", "400.00 MiB", "800.00 MiB"))))
        assert progress._status.note == "downloading torch (419 MB of 839 MB, 10 s left)"
        show(Step("download", frame(2)))
        assert (progress._status.done, progress._status.note) == (864 * 2**20, "")


@pytest.mark.parametrize(
    "drawn",
    [
        "     \u2501\u2501\u2501\u2578      400.0/800.0 MB 40.0 MB/s eta 0:00:10",
        "   \u2501\u2501 400.0/800.0 MB 40.0 MB/s  0:00:10",
    ],
)
def test_the_bytes_of_a_file_are_counted_while_pip_downloads_it(drawn: str) -> None:
    show = ShownSteps()
    with progress.shown(io.StringIO()):
        show(Step("packages", "installing 3 packages", 1_000_000_000))
        show(Step("output", "  Downloading https://example.org/f/torch-2.9.1-cp312-cp312-linux_x86_64.whl (800.0 MB)"))
        next(iter(show._files.values())).began -= 10
        show(Step("download", drawn))
        assert progress._status.done == 400_000_000
        assert progress._status.note == "downloading torch (400 MB of 800 MB, 10 s left)"
        show(Step("output", "  Downloading numpy-2.3.4-cp312-cp312-linux_x86_64.whl (16.6 MB)"))
        assert progress._status.done == 800_000_000

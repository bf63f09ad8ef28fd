"""What the stages take from a program, and what they refuse before any work is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from envsolve import api
from envsolve.errors import UsageError
from envsolve.machine.model import Machine
from envsolve.machine.profile import dump_machine

MACHINE = Machine(python="3.12")

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "requirements as text": (lambda: api.plan("torch", [MACHINE]), "requirements: 'torch' is not a list"),
    "a number among them": (lambda: api.plan([1], [MACHINE]), "requirements: 1 is not of type str"),  # type: ignore[list-item]
    "one machine": (lambda: api.plan(["torch"], MACHINE), "machines: a Machine is not a list"),  # type: ignore[arg-type]
    "a target": (lambda: api.plan(["torch"], ["H100"]), "machines: 'H100' is not of type Machine"),  # type: ignore[list-item]
    "files as text": (lambda: api.plan([], [MACHINE], files="r.txt"), "files: 'r.txt' is not a list"),
    "files as a path": (lambda: api.plan([], [MACHINE], files=Path("r.txt")), "files: a "),  # type: ignore[arg-type]
    "extras as text": (lambda: api.plan(["torch"], [MACHINE], extras="dev"), "extras: 'dev' is not a list"),
    "nothing": (lambda: api.plan([], [MACHINE]), "nothing to plan"),
    "constraints alone": (lambda: api.plan([], [MACHINE], constraints=[os.devnull]), "a pipe or a device"),
    "python abc": (lambda: api.plan(["torch"], [MACHINE], python="abc"), "'abc' is not a Python version"),
    "python 3": (lambda: api.plan(["torch"], [MACHINE], python="3"), "'3' is not a Python version"),
    "python 3.99": (lambda: api.plan(["torch"], [MACHINE], python="3.99"), "nothing is known of Python 3.99"),
    "builds for it": (lambda: api.builds("torch", [MACHINE], python="3.99"), "nothing is known of Python 3.99"),
    "a flavour's CUDA": (lambda: api.plan(["torch"], [MACHINE], cuda="12.6"), "not a flavour's name"),
    "python as a number": (lambda: api.builds("torch", [MACHINE], python=3.12), "3.12 is not a Python"),  # type: ignore[arg-type]
    "builds for one machine": (lambda: api.builds("torch", MACHINE), "not a list"),  # type: ignore[arg-type]
    "no path": (lambda: api.load_machines(5), "path: 5 is not a path"),  # type: ignore[arg-type]
    "no GPU": (lambda: api.verify_compiles("python", None), "no compute capability"),  # type: ignore[arg-type]
    "GPUs as text": (lambda: api.verify_compiles("python", "9.0"), "gpus: '9.0' is not a list"),
    "no interpreter": (lambda: api.verify("no/such/python"), "no executable"),
    "no address": (lambda: api.measure("https://[::"), "address to measure cannot be read"),
    "nothing to measure": (lambda: api.measure(Path("no/such.whl")), "cannot be read"),
    "a lock that is not there": (lambda: api.install("no/such.toml", "prefix", machine=MACHINE), "no/such.toml"),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call: Callable[[], Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        call()
    assert words in caught.value.message


def test_a_path_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(dump_machine(MACHINE))
    assert api.load_machines(str(tmp_path)) == api.load_machines(tmp_path / "m.json") == (MACHINE,)


@pytest.mark.parametrize(
    ("own", "asked", "runs"),
    [(None, None, True), ("3.7", None, False), ("3.12.4", None, True), ("3.12", "3.7", False), ("3.7", "3.12", True)],
)
def test_builds_are_judged_for_the_python_of_a_plan(own: str | None, asked: str | None, runs: bool) -> None:
    """The newest torch has wheels for 3.12 and none for 3.7."""
    card = replace(api.describe_target("H100, driver 580.95, linux-x86_64, glibc 2.35"), python=own)
    newest = api.builds("torch", [Machine(), card], python=asked).builds
    on_card = [build.verdict for build in newest if build.version == newest[0].version and build.gpu]
    assert ("native" in on_card) is runs

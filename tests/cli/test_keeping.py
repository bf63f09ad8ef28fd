"""What ``plan`` stays with, and what it is asked about another machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import envsolve
from envsolve import Request
from envsolve.cli.main import run as run_command
from envsolve.cli.plan import Preferred, tell_kept
from envsolve.errors import UsageError
from envsolve.formats import render
from envsolve.planning.groups import WhatIf, differences
from envsolve.planning.plan import Plan
from tests.formats.plans import GOOD, IMPOSSIBLE

MACHINE = "H100, driver 580.95, python 3.12, linux-x86_64, glibc 2.35"


def run(line: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        run_command(line)
    return ended.value.code


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "pylock.toml"
    path.write_text(render(GOOD, "pylock"))
    return path


def test_the_lock_that_is_overwritten_is_preferred(lock: Path) -> None:
    other = lock.with_name("pylock.other.toml")
    assert Preferred().existing_lock(lock, "pylock") == lock
    assert Preferred(upgrade=True).existing_lock(lock, "pylock") is None
    assert Preferred().existing_lock(lock, "requirements") is None
    assert Preferred().existing_lock(other, "pylock") is None
    assert Preferred(lock=lock).existing_lock(None, "summary") == lock
    lock.write_text(lock.read_text().replace('"envsolve"', '"another"', 1))
    assert Preferred().existing_lock(lock, "pylock") is None
    assert Preferred().existing_lock(lock.parent, "pylock") is None


def test_what_a_lock_and_an_environment_hold(lock: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("filelock==3.1\nnumpy==1.26.4\n")
    kept = Preferred(upgrade_package=["Torch"], installed=listed).versions(lock)
    names = [name for name, _ in kept]
    assert "torch" not in names
    assert [version for name, version in kept if name == "filelock"] == ["3.20.0", "3.1"]  # the lock goes first
    assert Preferred(prefer="newest", prefix=Path(sys.prefix), installed=listed).versions(None) == ()
    assert "resolvelib" in dict(Preferred(prefix=Path(sys.prefix)).versions(None))


@pytest.mark.parametrize(
    "preferred",
    [Preferred(prefer="installed"), Preferred(prefix=Path("nothing")), Preferred(installed=Path("nothing.txt"))],
)
def test_what_cannot_be_preferred(preferred: Preferred, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        preferred.versions(None)


def test_prefer_has_two_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "torch", "--prefer", "oldest"]) == 2
    assert "'newest', 'installed'" in capsys.readouterr().err


def test_how_much_of_a_lock_is_kept(lock: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell_kept(GOOD, envsolve.installed_versions(lock)[1:], lock)
    tell_kept(GOOD, (), None)
    tell_kept(IMPOSSIBLE, (), lock)
    assert capsys.readouterr().err == f"kept: 2 of 3 packages are as in {lock}; --upgrade allows all to change\n"


@pytest.mark.parametrize(("options", "kept"), [((), True), (("--upgrade",), False), (("-P", "torch"), True)])
def test_the_command_hands_it_on(
    lock: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], kept: bool
) -> None:
    asked: list[Request] = []

    def plan(request: Request, machines: object) -> Plan:
        asked.append(request)
        return GOOD

    monkeypatch.setattr("envsolve.planning.plans.plan", plan)
    assert run(["plan", "torch", "--target", MACHINE, "-o", str(lock), *options]) == 0
    assert bool(asked[0].keep) == kept
    assert ("torch", "2.9.0+cu126") not in asked[0].keep or "-P" not in options


@pytest.mark.parametrize(
    ("options", "required"),
    [
        (("--lock", "LOCK"), "==3.12.*"),
        (("--lock", "LOCK", "--python", "3.11"), None),
        (("--lock", "LOCK", "--upgrade"), None),
        (("-o", "LOCK"), None),
    ],
)
def test_a_lock_that_is_named_chooses_the_python(
    lock: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], required: str | None
) -> None:
    asked: list[Request] = []

    def plan(request: Request, machines: object) -> Plan:
        asked.append(request)
        return GOOD

    monkeypatch.setattr("envsolve.planning.plans.plan", plan)
    assert run(["plan", "torch", "--target", MACHINE, *(str(lock) if o == "LOCK" else o for o in options)]) == 0
    assert asked[0].requires_python == required


def test_a_question_has_an_answer_in_text_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def what_if(change: str, *_: object, **__: object) -> WhatIf:
        return WhatIf(change, IMPOSSIBLE, GOOD, tuple(differences(IMPOSSIBLE, GOOD)))

    monkeypatch.setattr("envsolve.planning.plans.what_if", what_if)
    line = ["plan", "torch", "--target", MACHINE, "--what-if", "driver 580"]
    assert run(line) == 3  # as the plan for the machine as it is
    assert "What if   driver 580: cu126" in capsys.readouterr().out
    assert run([*line, "--format", "json"]) == 3
    assert '"schema": "envsolve.whatif/1"' in capsys.readouterr().out
    for refused in (["--format", "pylock"], ["--allow-groups"]):
        assert run([*line, *refused]) == 2

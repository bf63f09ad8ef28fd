"""What the stages take from a program, and what they refuse before any work is done."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import envsolve
from envsolve import Request
from envsolve.errors import UsageError
from envsolve.machine.known import dump_machine
from envsolve.machine.model import Machine

MACHINE = Machine(python="3.12")

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "requirements as text": (lambda: envsolve.plan(Request("torch"), [MACHINE]), "requirements: 'torch' is not a list"),
    "a number among them": (lambda: envsolve.plan(Request([1]), [MACHINE]), "requirements: 1 is not of type str"),  # type: ignore[list-item]
    "one machine": (lambda: envsolve.plan(Request(["torch"]), MACHINE), "machines: a Machine is not a list"),  # type: ignore[arg-type]
    "a target": (lambda: envsolve.plan(Request(["torch"]), ["H100"]), "machines: 'H100' is not of type Machine"),  # type: ignore[list-item]
    "files as text": (lambda: envsolve.plan(Request([], files="r.txt"), [MACHINE]), "files: 'r.txt' is not a list"),
    "files as a path": (lambda: envsolve.plan(Request([], files=Path("r.txt")), [MACHINE]), "files: a "),  # type: ignore[arg-type]
    "extras as text": (
        lambda: envsolve.plan(Request(["torch"], extras="dev"), [MACHINE]),
        "extras: 'dev' is not a list",
    ),
    "nothing": (lambda: envsolve.plan(Request([]), [MACHINE]), "nothing to plan"),
    "constraints alone": (
        lambda: envsolve.plan(Request([], constraints=[os.devnull]), [MACHINE]),
        "a pipe or a device",
    ),
    "python abc": (lambda: envsolve.plan(Request(["torch"], python="abc"), [MACHINE]), "'abc' is not a Python version"),
    "python 3": (lambda: envsolve.plan(Request(["torch"], python="3"), [MACHINE]), "'3' is not a Python version"),
    "python 3.99": (
        lambda: envsolve.plan(Request(["torch"], python="3.99"), [MACHINE]),
        "Python 3.99 is not in the catalogue",
    ),
    "builds for it": (
        lambda: envsolve.builds("torch", [MACHINE], python="3.99"),
        "Python 3.99 is not in the catalogue",
    ),
    "a variant's CUDA": (
        lambda: envsolve.plan(Request(["torch"], cuda="12.6"), [MACHINE]),
        "not the name of a variant",
    ),
    "python as a number": (lambda: envsolve.builds("torch", [MACHINE], python=3.12), "3.12 is not a Python"),  # type: ignore[arg-type]
    "builds for one machine": (lambda: envsolve.builds("torch", MACHINE), "not a list"),  # type: ignore[arg-type]
    "no path": (lambda: envsolve.load_machines(5), "path: 5 is not a path"),  # type: ignore[arg-type]
    "no GPU": (lambda: envsolve.verify_compiles(sys.prefix, None), "no compute capability"),  # type: ignore[arg-type]
    "GPUs as text": (lambda: envsolve.verify_compiles(sys.prefix, "9.0"), "gpus: '9.0' is not a list"),
    "no interpreter": (lambda: envsolve.verify("no/such/env"), "does not exist"),
    "no address": (lambda: envsolve.measure("https://[::"), "URL to measure cannot be read"),
    "nothing to measure": (lambda: envsolve.measure(Path("no/such.whl")), "cannot be read"),
    "a lock that is not there": (lambda: envsolve.install("no/such.toml", "prefix", machine=MACHINE), "no/such.toml"),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call: Callable[[], Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        call()
    assert words in caught.value.message


def test_a_path_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(dump_machine(MACHINE))
    assert envsolve.load_machines(str(tmp_path)) == envsolve.load_machines(tmp_path / "m.json") == (MACHINE,)


@pytest.mark.parametrize(
    ("own", "asked", "runs"),
    [(None, None, True), ("3.7", None, False), ("3.12.4", None, True), ("3.12", "3.7", False), ("3.7", "3.12", True)],
)
def test_builds_are_judged_for_the_python_of_a_plan(own: str | None, asked: str | None, runs: bool) -> None:
    """The newest torch has wheels for 3.12 and none for 3.7."""
    card = replace(envsolve.describe_target("H100, driver 580.95, linux-x86_64, glibc 2.35"), python=own)
    newest = envsolve.builds("torch", [Machine(), card], python=asked).builds
    on_card = [build.verdict for build in newest if build.version == newest[0].version and build.gpu]
    assert ("native" in on_card) is runs


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import envsolve; print(sorted(set(sys.modules) - before))"
    loaded = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "['envsolve']"


def test_every_public_name_is_there_and_wins_over_a_package_of_its_name() -> None:
    import envsolve.facts.catalogue
    import envsolve.install.environment
    import envsolve.verify.runner

    assert all(getattr(envsolve, name) is not None for name in envsolve.__all__)
    assert callable(envsolve.verify)
    assert callable(envsolve.install)
    assert callable(envsolve.facts)
    assert {*envsolve.__all__} <= {*dir(envsolve)}
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = envsolve.no_such_name


def test_a_module_of_a_package_that_a_function_hides_is_imported_from_it() -> None:
    code = "from envsolve import diagnose; from envsolve.diagnose import model; print(model.SCHEMA, callable(diagnose))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "envsolve.diagnosis/1 True\n"


def test_a_request_refuses_contradictions() -> None:
    with pytest.raises(UsageError, match="channels"):
        Request(["torch"], channels=["conda-forge"])
    with pytest.raises(UsageError, match="index_url"):
        Request(["torch"], manager="conda", index_url="https://example.org/simple")


def test_one_build_is_judged() -> None:
    build = next(
        one for one in envsolve.facts("torch", "2.9.1", "cu126").builds if one.platform == "manylinux_2_28_x86_64"
    )
    there = "driver 580.95.05, python 3.12, linux-x86_64, glibc 2.35"
    levels = [envsolve.judge(build, envsolve.describe_target(f"{gpu}, {there}")).level for gpu in ("H100", "RTX 5090")]
    assert [level.value for level in levels] == ["native", "none"]


def test_results_are_described_and_written() -> None:
    machine = envsolve.describe_target("H100, driver 580.95.05")
    assert "H100" in envsolve.describe(machine)
    assert envsolve.to_json(machine) == dump_machine(machine)
    assert "cu126" in envsolve.describe(envsolve.builds("torch", [machine]))
    with pytest.raises(UsageError, match="does not support a"):
        envsolve.describe(3)

"""What real pip and uv would do to a torch, told before they do it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import envsolve
from envsolve.machine.model import Gpu
from tests.protect.conftest import OLD_DRIVER, Shop

UV = ("uv", "pip", "install", "--python", "{prefix}")
PIP = (sys.executable, "-m", "pip", "--python", "{prefix}", "install")
BOTH = pytest.mark.parametrize(
    "installer", [pytest.param(UV, id="uv"), pytest.param(PIP, id="pip", marks=pytest.mark.slow)]
)


def guard(shop: Shop, installer: tuple[str, ...], *rest: str, options: tuple[str, ...] = (), runs: bool = False) -> Any:
    words = [word.format(prefix=shop.prefix) for word in installer]
    return shop.envsolve("guard", "--target", OLD_DRIVER, *options, "--", *words, *rest, becomes_another=runs)


@BOTH
def test_a_torch_that_a_package_drags_along_is_refused_and_a_way_to_keep_it_offered(
    shop: Shop, installer: tuple[str, ...]
) -> None:
    done = guard(shop, installer, "loose")
    assert done.returncode == 4
    assert "torch 2.6.0+cu126 -> 2.15.0 (cu132)" in done.stderr
    assert "needs driver 580.65.06 or newer" in done.stderr
    assert shop.installed()["torch"] == "2.6.0+cu126"
    offered = next(line.strip() for line in done.stderr.splitlines() if line.endswith("torch==2.6.0+cu126"))
    assert shop.run("bash", "-c", offered).returncode == 0
    assert shop.installed()["torch"] == "2.6.0+cu126"
    assert shop.installed()["loose"] == "0.9"


@BOTH
def test_no_way_is_offered_where_there_is_none(shop: Shop, installer: tuple[str, ...]) -> None:
    done = guard(shop, installer, "strict", options=("--dry-run", "--format", "json"))
    assert done.returncode == 4
    found = json.loads(done.stdout)
    assert (found["keeps"], found["unasked"], found["works"], found["refused"]) == (None, ["torch"], "no", True)
    assert [cause["cause"] for cause in found["causes"]] == ["driver-too-old"]


@BOTH
def test_what_does_no_harm_runs(shop: Shop, installer: tuple[str, ...]) -> None:
    assert guard(shop, installer, "harmless", runs=True).returncode == 0
    assert shop.installed()["harmless"] == "1.0"


@BOTH
def test_a_torch_asked_for_by_name_is_refused_where_it_does_not_run(shop: Shop, installer: tuple[str, ...]) -> None:
    done = guard(shop, installer, "torch==2.15.0")
    assert done.returncode == 4
    assert "does not ask for" not in done.stderr
    flag = "--index" if installer is UV else "--index-url"  # uv's holds whatever UV_DEFAULT_INDEX says
    assert f"torch==2.14.1+cu126 {flag} " in done.stderr


@BOTH
def test_a_torch_asked_for_by_name_that_runs_is_installed(shop: Shop, installer: tuple[str, ...]) -> None:
    again = "--reinstall" if installer is UV else "--force-reinstall"
    done = guard(shop, installer, "torch==2.6.0", again, runs=True)
    assert done.returncode == 0, done.stderr
    assert "(cu124) " in done.stderr or "(cu124)" in done.stderr
    assert shop.installed()["torch"] == "2.6.0"


@pytest.mark.parametrize(("gpus", "works"), [(None, "unknown"), ((), "yes")], ids=["unknown", "none"])
def test_a_cpu_build_is_not_refused_where_no_gpu_is_known(shop: Shop, gpus: tuple[Gpu, ...] | None, works: str) -> None:
    machine = replace(envsolve.describe_target("linux-x86_64, glibc 2.35"), gpus=gpus)
    words = ["uv", "pip", "install", "--python", str(shop.prefix), "--default-index", shop.cpu_url, "torch==2.6.0+cpu"]
    found = envsolve.preview_install(words, [machine], shop.environ)
    assert found is not None
    assert (found.works, found.refused, found.causes) == (works, False, ())


@BOTH
def test_force_runs_it_all_the_same(shop: Shop, installer: tuple[str, ...]) -> None:
    assert guard(shop, installer, "strict", options=("--force",), runs=True).returncode == 0
    assert shop.installed()["torch"] == "2.15.0"


@BOTH
def test_what_the_installer_itself_refuses_is_told_in_its_words(shop: Shop, installer: tuple[str, ...]) -> None:
    done = guard(shop, installer, "absent")
    assert done.returncode == 1
    assert "cannot do this" in done.stderr
    assert "absent" in done.stderr


def test_the_exit_code_of_the_command_is_kept(shop: Shop) -> None:
    """A command that changes no environment is run as it is."""
    assert guard(shop, ("uv", "pip", "no-such-verb"), runs=True).returncode == 2
    assert guard(shop, ("uv", "--version"), runs=True).returncode == 0


def test_the_active_environment_is_the_one_of_a_plain_uv(shop: Shop) -> None:
    shop.variables["VIRTUAL_ENV"] = str(shop.prefix)
    done = guard(shop, ("uv", "pip", "install"), "strict", options=("--dry-run",))
    assert f"In {shop.prefix}:" in done.stdout


def test_a_project_of_uv_is_looked_at_before_it_is_synced(shop: Shop) -> None:
    folder = shop.prefix.parent / "project"
    folder.mkdir()
    name = f'name = "p"\nversion = "1"\nrequires-python = "=={sys.version_info.major}.{sys.version_info.minor}.*"\n'
    (folder / "pyproject.toml").write_text(f"[project]\n{name}")
    uv = ("uv", "--project", str(folder))
    refused = guard(shop, (*uv, "add"), "strict")
    assert refused.returncode == 2
    assert "--no-sync strict && envsolve guard -- uv sync" in refused.stderr
    assert shop.run(*uv, "venv", "-q", "--python", sys.executable, str(folder / ".venv")).returncode == 0
    assert shop.run(*uv, "add", "--no-sync", "strict").returncode == 0
    done = guard(shop, (*uv, "sync"))
    assert done.returncode == 4, done.stderr
    assert "torch 2.15.0 (cu132) (new)" in done.stderr


@pytest.mark.parametrize("words", [("rm", "-r", "x"), ("pipx", "install", "torch"), ("python", "script.py")])
def test_other_commands_are_refused(shop: Shop, words: tuple[str, ...]) -> None:
    done = shop.envsolve("guard", "--target", OLD_DRIVER, "--", *words)
    assert done.returncode == 2
    assert "not a command of pip, uv, conda or mamba" in done.stderr


def _refused_as_a_mistake(shop: Shop, *words: str, options: tuple[str, ...] = ()) -> bool:
    done = shop.envsolve("guard", "--target", OLD_DRIVER, "--dry-run", *options, "--", *words)
    return done.returncode == 2 and "did you mean torch?" in done.stderr


def test_a_name_that_a_plan_refuses_is_refused_before_the_dry_run(shop: Shop, tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", str(shop.prefix))
    file = tmp_path / "requirements.txt"
    file.write_text("harmless\ntrch\n")
    assert _refused_as_a_mistake(shop, *pip, "install", "harmless", "trch>=1")
    assert _refused_as_a_mistake(shop, *pip, "install", "-r", str(file))
    assert _refused_as_a_mistake(shop, "uv", "pip", "install", "--python", str(shop.prefix), "pytorch")
    assert not _refused_as_a_mistake(shop, *pip, "install", "trch", options=("--allow-unknown-names",))
    assert not _refused_as_a_mistake(shop, "uv", "pip", "uninstall", "--python", str(shop.prefix), "pytorch")

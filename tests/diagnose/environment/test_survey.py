from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import envsolve
from envsolve.diagnose.environment import Survey, describe, survey
from envsolve.environment.layout import find_environments
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from envsolve.system.files import dump
from tests.environment.prefixes import Prefix, conda_record, environ

CATALOGUE = Catalogue()
H100 = envsolve.describe_target("H100, driver 570.86.15, linux-x86_64", CATALOGUE)


def torch_of(prefix: Prefix, **arguments: object) -> None:
    prefix.add_torch(needed=(), **arguments)  # type: ignore[arg-type]


def surveyed(prefix: Path, machine: Machine = H100) -> Survey:
    return survey([prefix], machine, CATALOGUE, environ(prefix.parent))


def test_environments_are_found_where_each_tool_keeps_them(tmp_path: Path) -> None:
    places = [
        ".virtualenvs/a",
        ".local/share/uv/tools/ruff",
        ".local/share/pipx/venvs/black",
        ".cache/pypoetry/virtualenvs/b-py3.12",
        "project/deep/down/.venv",
    ]
    for place in places:
        Prefix(tmp_path / place, base=tmp_path / "base")
    for place in ("miniforge3", "miniforge3/envs/c", "elsewhere/d", "project/.pixi/envs/default", ".pixi/envs/tool"):
        conda_record(tmp_path / place, "python", "3.12.1")
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda/environments.txt").write_text(f"{tmp_path}/elsewhere/d\n{tmp_path}/gone\n")
    found = find_environments([tmp_path / "project"], environ(tmp_path, VIRTUAL_ENV=str(tmp_path / ".virtualenvs/a")))
    assert {path.relative_to(tmp_path).as_posix() for path in found} == {
        *places,
        "miniforge3",
        "miniforge3/envs/c",
        "elsewhere/d",
        "project/.pixi/envs/default",
        ".pixi/envs/tool",
    }
    assert found[0] == tmp_path / ".virtualenvs/a"


def test_what_may_not_be_entered_is_passed_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, whom nothing is forbidden: the refusal is the system call's own."""
    Prefix(tmp_path / "env")
    (tmp_path / "locked").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    whole = Path.stat

    def refuse(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.parent == tmp_path / "locked":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)
    locked = tmp_path / "locked"
    assert find_environments([tmp_path, locked], environ(tmp_path, VIRTUAL_ENV=str(tmp_path / "loop"))) == [
        tmp_path / "env"
    ]


def test_an_environment_is_found_once_and_not_searched(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    Prefix(prefix.site / "inner/env")
    (tmp_path / "link").symlink_to(prefix.folder)
    found = find_environments([tmp_path, prefix.folder, tmp_path / "link", tmp_path / "none"], environ(tmp_path))
    assert found == [prefix.folder]


@pytest.mark.parametrize(
    ("arguments", "target", "works", "why"),
    [
        ({}, "H100, driver 570.86.15, linux-x86_64", "yes", "sm_90 runs on NVIDIA H100"),
        ({}, "H100, linux-x86_64", "unknown", "driver"),
        ({}, "H100, driver 470.82.01, linux-x86_64", "no", "needs driver 525.60.13"),
        ({}, "GTX 1080 Ti, driver 570.86.15, linux-x86_64", "no", "no code for cc 6.1"),
        ({"version": "2.8.0", "cuda": None}, "H100, driver 570.86.15, linux-x86_64", "no", "a CPU build"),
        ({"code": "sm_80"}, "H100, driver 570.86.15, linux-x86_64", "no", "it carries sm_80"),
        ({}, "H100, driver 570.86.15, linux-aarch64", "no", "the wheel is for linux_x86_64"),
    ],
)
def test_the_torch_is_judged_by_what_is_on_disk(
    tmp_path: Path, arguments: dict[str, str | None], target: str, works: str, why: str
) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix, **arguments)
    (one,) = surveyed(prefix.folder, envsolve.describe_target(target, CATALOGUE)).environments
    assert (one.works, one.python, one.kind) == (works, "3.12.4", "venv")
    assert why in one.why


def test_damage_denies_what_the_code_would_allow(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix)
    (one,) = surveyed(prefix.folder).environments
    assert one.works == "yes"
    (prefix.site / "torch/lib/libtorch_cuda.so").unlink()
    (one,) = surveyed(prefix.folder).environments
    assert (one.works, one.causes) == ("no", ("lock-incomplete",))


def test_an_environment_whose_python_is_gone_does_not_work(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix)
    (prefix.folder / "bin/python").unlink()
    (prefix.folder / "bin/python").symlink_to(tmp_path / "gone")
    (one,) = surveyed(prefix.folder).environments
    assert (one.works, one.torch) == ("no", "2.8.0+cu128")
    assert one.why.startswith("its Python is missing")


def test_a_library_that_is_nowhere_denies_it_too(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    prefix.add_torch(needed=("libcudart.so.12",))
    (one,) = surveyed(prefix.folder).environments
    assert (one.works, one.causes) == ("no", ("lock-incomplete",))
    assert "libcudart.so.12" in one.why


def test_what_may_be_harmless_takes_a_yes_back_and_gives_no_no(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix, requires=["nvidia-nccl-cu12==2.27.3"])
    prefix.add("nvidia-nccl-cu12", "2.27.2")
    (one,) = surveyed(prefix.folder).environments
    assert (one.works, one.causes) == ("unknown", ("library-mismatch",))


def test_a_machine_without_a_gpu_runs_it_on_the_cpu(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix)
    machine = Machine(platform=H100.platform, gpus=())
    (one,) = surveyed(prefix.folder, machine).environments
    assert one.works == "yes" and "only on the CPU" in one.why


def test_the_text_and_the_json(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix)
    Prefix(tmp_path / "bare")
    found = survey([prefix.folder, tmp_path / "bare", tmp_path / "none"], H100, CATALOGUE, environ(tmp_path))
    lines = describe(found).splitlines()
    assert lines[0].split() == ["works", "venv", "python", "3.12.4", "torch", "2.8.0+cu128", str(prefix.folder)]
    assert lines[2].split()[0] == "-"
    assert "does not exist" in lines[-1]
    value = json.loads(dump(found))
    assert value["schema"] == "envsolve.environments/1"
    assert [entry["works"] for entry in value["environments"]] == ["yes", None, None]
    assert describe(Survey("envsolve.environments/1", ())) == "No environments were found."


def test_a_dependency_of_torch_that_is_missing_is_a_no_and_of_others_none(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    torch_of(prefix, requires=["typing-extensions>=4.10"])
    prefix.add("jupyter", "1.0", requires=["notebook"])
    (one,) = surveyed(prefix.folder).environments
    assert (one.works, one.causes) == ("no", ("dependency-missing",))
    assert "typing-extensions" in one.why
    prefix.add("typing-extensions", "4.15.0")
    (one,) = surveyed(prefix.folder).environments
    assert (one.works, one.causes) == ("yes", ("dependency-missing",))

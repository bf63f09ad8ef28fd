"""``plan --write pyproject.toml``: a project's own file changed, then locked and installed by real uv."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve.cli.main import run
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.formats import also_asked, edited, edits
from envsolve.locks.judge import check_locks
from envsolve.machine.completed import machine_from_target
from envsolve.machine.target import parse_target
from envsolve.packages.requirement_files import read_requirements
from envsolve.planning.groups import Plans, make_plans
from envsolve.planning.request import Request
from tests.formats.test_installers import UV
from tests.smallworld import NEW, OLD, World, small_world

CPU, V100, H100 = "no GPU", "V100, driver 580.95.05", "H100, driver 580.95.05"
B200 = "B200, driver 580.95.05"
PYTHON = "{}.{}".format(*sys.version_info[:2])
TAG = PYTHON.replace("3.", "cp3")

PROJECT = """\
# The team's project.
[project]
name = "demo"
version = "1"
requires-python = ">=3.10"
dependencies = [
    "filelock>=1",  # locks
    "torch>=2.5",  # the model
]

[tool.ruff]
line-length = 100  # wide
"""
CU126_ONLY = (
    PROJECT
    + """
[tool.uv.sources]
torch = { index = "pt" }

[[tool.uv.index]]
name = "pt"
url = "{url}/whl/cu126/"
explicit = true
"""
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """torch 2.9.1 as CPU, cu126 and cu130 builds; the newest code in cu130 alone."""
    with small_world(tmp_path / "world") as made:
        for name in ("filelock", "es-cuda"):
            made.default.wheel(name, "1.0")
        requires = ["filelock"]
        for variant, code in (("cpu", None), ("cu126", OLD), ("cu130", NEW)):
            made.build(
                "torch", "2.9.1", variant, index="pytorch", requires=requires, code=code, pythons=(TAG,), released=None
            )
        made.build(
            "torch", "2.9.1", "cu128", requires=[*requires, "es-cuda"], code=("sm_90",), pythons=(TAG,), released=None
        )
        made.build(
            "torch", "2.8.0", "cu128", requires=[*requires, "es-cuda"], code=("sm_90",), pythons=(TAG,), released=None
        )
        yield made


def planned(world: World, *targets: str, requirement: str = "torch>=2.5") -> Plans:
    system = f", python {PYTHON}, linux-x86_64, glibc 2.35"
    machines = [machine_from_target(parse_target(target + system), Catalogue()) for target in targets]
    with world.client() as client:
        asked = read_requirements([requirement])
        return make_plans(asked, machines, Request(), world.catalogue(), client)


def uv(world: World, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    environ |= {"UV_CACHE_DIR": str(folder / "cache"), "UV_DEFAULT_INDEX": world.default.url}
    command = [UV, *words, "--python", sys.executable, "--project", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False)


def code(words: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        run(words)
    return ended.value.code


def installed(folder: Path) -> list[str]:
    found = (folder / ".venv").glob("lib/python3.*/site-packages/*.dist-info")
    return sorted(path.name.removesuffix(".dist-info") for path in found)


def test_uv_installs_the_right_variant_on_every_machine(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    plans = planned(world, CPU, V100, B200)
    assert [plan.cuda for plan in plans.plans] == ["cpu", "cu126", "cu130"]
    text, extras = edited(PROJECT, plans, "uv-project", "x")
    assert list(extras.values()) == ["cpu", "cu126", "cu130"]
    assert "# The team's project." in text and "# locks" in text and "# wide" in text
    (folder / "pyproject.toml").write_text(text)
    done = uv(world, folder, "lock")
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    for extra in extras.values():
        done = uv(world, folder, "sync", "--frozen", "--extra", extra)
        assert done.returncode == 0, done.stderr
        assert installed(folder) == ["filelock-1.0", f"torch-2.9.1+{extra}"]
    assert uv(world, folder, "sync", "--frozen", "--extra", "cpu", "--extra", "cu126").returncode != 0
    # A second run changes nothing, and knows what the first moved into the extras.
    assert also_asked(text, "uv-project") == ("torch",)
    assert edited(text, plans, "uv-project", "x") == (text, extras)


def test_a_lock_that_does_not_run_is_mended(world: World, tmp_path: Path) -> None:
    project = CU126_ONLY.replace("{url}", world.server.url)
    (tmp_path / "pyproject.toml").write_text(project)
    assert uv(world, tmp_path, "lock").returncode == 0
    machine = machine_from_target(parse_target(f"{B200}, python {PYTHON}, linux-x86_64, glibc 2.35"), Catalogue())
    before = check_locks([tmp_path / "uv.lock"], [machine], world.catalogue()).locks[0]
    assert before.machines[0].status == "does not run"
    text, extras = edited(project, planned(world, B200), "uv-project", "x")
    assert extras == {}
    assert "/whl/cu126" not in text and text.count("/whl/") == 1
    (tmp_path / "pyproject.toml").write_text(text)
    assert uv(world, tmp_path, "lock").returncode == 0
    assert 'version = "2.9.1+cu130"' in (tmp_path / "uv.lock").read_text()
    after = check_locks([tmp_path / "uv.lock"], [machine], world.catalogue()).locks[0]
    assert after.machines[0].status != "does not run"
    assert uv(world, tmp_path, "sync", "--frozen").returncode == 0
    assert "torch-2.9.1+cu130" in installed(tmp_path)


def test_one_system_is_pinned_and_the_others_keep_the_default_index(world: World, tmp_path: Path) -> None:
    text, _ = edited(PROJECT, planned(world, V100), "uv-project", "x")
    assert '"torch==2.9.1",  # the model' in text
    marker = "sys_platform == 'linux' and platform_machine == 'x86_64'"
    assert f'torch = {{ index = "pytorch-cu126", marker = "{marker}" }}' in text
    assert edited(text, planned(world, V100), "uv-project", "x")[0] == text
    (tmp_path / "pyproject.toml").write_text(text)
    done = uv(world, tmp_path, "lock")
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    done = uv(world, tmp_path, "sync", "--frozen")
    assert done.returncode == 0, done.stderr
    assert installed(tmp_path) == ["filelock-1.0", "torch-2.9.1+cu126"]
    # On other systems uv takes the default index, as the marker says.
    exported = uv(world, tmp_path, "export", "--frozen", "--no-hashes", "--no-annotate").stdout
    torches = dict(line.split(" ; ", 1) for line in exported.splitlines() if line.startswith("torch=="))
    assert torches["torch==2.9.1+cu126"] == "platform_machine == 'x86_64' and sys_platform == 'linux'"
    assert torches["torch==2.9.1"] == "platform_machine != 'x86_64' or sys_platform != 'linux'"
    # The default index has the build: no index and no source are left.
    default, _ = edited(text, planned(world, "H100, driver 570.86", requirement="torch==2.8.0"), "uv-project", "x")
    assert "/whl/" not in default and "[tool.uv.sources]" not in default
    assert '"torch==2.8.0",  # the model' in default


def test_uv_does_not_add_a_package_that_another_stands_in_for(world: World, tmp_path: Path) -> None:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        world.default.wheel(name, "1.26.0")
    world.default.wheel("insightface", "2.1", requires=["onnxruntime"])
    system = f"{H100}, python {PYTHON}, linux-x86_64, glibc 2.35"
    asked = read_requirements(["onnxruntime-gpu", "insightface"])
    with world.client() as client:
        machine = machine_from_target(parse_target(system), Catalogue())
        plans = make_plans(asked, [machine], Request(), world.catalogue(), client)
    text, _ = edited("", plans, "uv-project", "x")
    assert edited(text, plans, "uv-project", "x")[0] == text
    (tmp_path / "pyproject.toml").write_text(text)
    done = uv(world, tmp_path, "lock")
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    assert uv(world, tmp_path, "sync", "--frozen").returncode == 0
    assert installed(tmp_path) == ["insightface-2.1", "onnxruntime_gpu-1.26.0"]


def test_extras_that_are_there_are_kept(world: World) -> None:
    project = PROJECT.replace('    "torch>=2.5",  # the model\n', "").replace(
        "[tool.ruff]",
        """[project.optional-dependencies]
cpu = ["torch>=2", "numpy"]
cu124 = ["torch>=2"]

[tool.uv]
conflicts = [[{ extra = "cpu" }, { extra = "cu124" }]]

[tool.uv.sources]
torch = [
    { index = "pytorch-cpu", extra = "cpu" },
    { index = "pytorch-cu124", extra = "cu124" },
]

[[tool.uv.index]]
name = "pytorch-cpu"
url = "https://example.org/whl/cpu"
explicit = true

[[tool.uv.index]]
name = "pytorch-cu124"
url = "https://example.org/whl/cu124"
explicit = true

[tool.ruff]""",
    )
    assert also_asked(project, "uv-project") == ("torch",)
    text, extras = edited(project, planned(world, B200), "uv-project", "x")
    assert extras == {0: "cu130"}
    assert 'cpu = ["torch>=2", "numpy"]' in text and 'cu130 = ["torch==2.9.1"]' in text
    assert '{ extra = "cu124" }, { extra = "cu130" }' in text
    assert '{ index = "pytorch-cu124", extra = "cu124" }' in text
    assert text.count("/whl/") == 3


def test_a_new_project_is_made(world: World) -> None:
    plans = planned(world, V100, requirement="torch>=2.5")
    plans = replace(plans, plans=tuple(replace(one, requirements=("torch", "Filelock>1")) for one in plans.plans))
    text, _ = edited("", plans, "uv-project", "my-demo")
    assert 'name = "my-demo"' in text and 'dependencies = ["torch==2.9.1", "Filelock>1"]' in text
    assert f'requires-python = "=={PYTHON}.*"' in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.poetry]\nname = 'x'\n", "has no \\[project\\] table"),
        ("[project]\nname = 'x'\ndynamic = ['dependencies']\n", "are dynamic"),
        ("[project\n", "is not TOML"),
    ],
)
def test_what_cannot_be_changed_is_refused(world: World, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        edited(text, planned(world, V100), "uv-project", "x")


def test_the_command_shows_the_changes_and_asks(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_DEFAULT_INDEX", world.default.url)
    monkeypatch.setenv("ENVSOLVE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.stdin", None)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\nversion = '1'\n")
    words = ["plan", "filelock", "--target", f"{CPU}, linux-x86_64, python {PYTHON}", "--write", "pyproject.toml"]
    assert code(words) == 2
    out, err = capsys.readouterr()
    assert '+dependencies = ["filelock"]' in out and "add --yes" in err
    assert "filelock" not in Path("pyproject.toml").read_text()
    assert code([*words, "--yes"]) == 0
    assert 'dependencies = ["filelock"]' in Path("pyproject.toml").read_text()
    capsys.readouterr()
    assert code([*words, "--yes"]) == 0
    assert "pyproject.toml needs no change" in capsys.readouterr().err
    assert code([*words, "-o", "x.json"]) == 2


def test_only_files_of_projects_are_changed() -> None:
    assert edits(Path("a/pyproject.toml"), None) == "uv-project"
    with pytest.raises(UsageError, match="no format can change it"):
        edits(Path("requirements.txt"), None)
    with pytest.raises(UsageError, match="--format pip cannot change it"):
        edits(Path("pyproject.toml"), "pip")

"""An existing environment.yml as input, its channels, and its pip part."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envsolve.advice.conda import about_channels, channel_name
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.formats import render
from envsolve.install.environment import install
from envsolve.machine.known import describe_target
from envsolve.packages.client import IndexClient
from envsolve.packages.conda_inputs import CondaAsked, read_asked, read_environment_file, read_pip_part
from envsolve.packages.settings import IndexSettings
from envsolve.planning.conda import channel_address
from envsolve.planning.conda_pip import with_pip_part
from envsolve.planning.plan import CondaTerms, Plan
from envsolve.planning.request import Request
from envsolve.rules.platform import Environment
from envsolve.solve.outcome import PlannedPackage
from tests.condachannel import CondaChannel
from tests.packages.repositories import repository
from tests.planning.conda.conftest import Planner
from tests.smallworld import NEW, World, small_world

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest.importorskip("ruamel.yaml", reason="pip install 'envsolve[conda]'")

NAMES = {"torch": "pytorch"}
GPU = "RTX 4090, driver 550.54.14, python 3.13, linux-x86_64, glibc 2.35"
TUTORIAL = """\
name: train
channels:
  - pytorch
  - nvidia
  - conda-forge
  - nodefaults
dependencies:
  - python=3.10
  - conda-forge::numpy >=1.26
  - pytorch=2.1.0=py3.10_cuda11.8_cudnn8.7.0_0
  - pytorch-cuda=11.8
  - pip
  - pip:
      - accelerate>=1.0
      - datasets
variables:
  OMP_NUM_THREADS: 4
"""


def test_an_environment_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(TUTORIAL)
    asked = read_environment_file(path, NAMES)
    assert list(map(str, asked.specs)) == [
        "python 3.10.*",
        "conda-forge::numpy >=1.26",
        "pytorch 2.1.0 py3.10_cuda11.8_cudnn8.7.0_0",
        "pytorch-cuda 11.8.*",
    ]
    assert asked.channels == ("pytorch", "nvidia", "conda-forge")
    assert [str(need.requirement) for need in asked.pip.needs] == ["accelerate>=1.0", "datasets"]
    assert ["variables" in note for note in asked.notes] == [True]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an environment.yml"),
        ("- a\n- b\n", "not an environment.yml"),
        ("channels: [x]\n", "not an environment.yml"),
        ("dependencies: numpy\n", "not an environment.yml"),
        ("dependencies: [\n", "not YAML"),
        ("? - pip:\n    - x\nvariables:\n  A: b\n", "a key is a list or a mapping"),
        ("dependencies:\n  - numpy: 2\n", "is not a dependency"),
        ("dependencies:\n  - pip:\n      - --frobnicate\n", "pip: line 1: --frobnicate is not an option"),
        ("dependencies:\n  - pip:\n", "pip: None is not a requirement"),
        ("channels: [a, '']\ndependencies: [numpy]\n", "'' is not a channel"),
        ("channels: [3]\ndependencies: [numpy]\n", "3 is not a channel"),
        (f"dependencies:\n  - [{'x, ' * 9999}]\n", r"^.{0,300}is not a dependency"),
        ("dependencies:\n  - =2.7\n", "not a match spec"),
        ("!!python/object/apply:os.system ['true']\n", "not YAML"),
    ],
)
def test_what_is_none_is_refused_with_its_name(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        read_environment_file(path, NAMES)
    assert "environment.yml" in caught.value.message


def test_an_environment_file_is_planned_and_planned_again(channel: CondaChannel, plan: Planner, tmp_path: Path) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    path = tmp_path / "environment.yml"
    path.write_text(f"channels: [{channel.url}, nodefaults]\ndependencies: [pytorch, torchvision, pip]\n")
    made = plan(GPU, files=[path], channels=[])
    assert made.status == "ok"
    text = render(made, "environment-yml")
    path.write_text(text)
    again = plan(GPU, files=[path], channels=[])
    assert render(again, "environment-yml").partition("channels:")[2] == text.partition("channels:")[2]


@pytest.mark.parametrize(
    ("channels", "told"),
    [
        (["conda-forge"], []),
        (["https://conda.anaconda.org/conda-forge/"], []),
        (["pytorch"], ["the channel pytorch has ended: its last pytorch is 2.5.1"]),
        (
            ["https://conda.anaconda.org/pytorch", "conda-forge"],
            ["has ended", "do not go together: its pytorch is built against"],
        ),
        (
            ["conda-forge", "defaults"],
            ["terms require a paid", "the channels defaults and conda-forge do not go together"],
        ),
        (["https://repo.anaconda.com/pkgs/main", "conda-forge"], ["terms require a paid", "do not go together"]),
        (["nvidia/label/cuda-12.4.0", "conda-forge"], ["contains one toolkit release", "do not go together"]),
    ],
)
def test_channels_are_named_for_what_they_are(channels: list[str], told: list[str]) -> None:
    messages = [caution.message for caution in about_channels(channels, Catalogue())]
    assert [part in message for part, message in zip(told, messages, strict=True)] == [True] * len(told)


def test_defaults_is_asked_where_it_is() -> None:
    assert channel_address("defaults", Catalogue()) == "https://repo.anaconda.com/pkgs/main"
    assert channel_address("conda-forge", Catalogue()) == "conda-forge"
    assert channel_name("https://conda.anaconda.org/pytorch/") == "pytorch"


def package(name: str, version: str) -> PlannedPackage:
    return PlannedPackage(
        name, version, None, "conda-forge", f"{name}-{version}-0.conda", None, {}, "conda", requires=("python",)
    )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with small_world(tmp_path) as made:
        for name in ("nvidia-cublas-cu12", "tqdm"):
            made.default.wheel(name, "1.0")
        made.build("torch", "2.11.0", "cu128", requires=["nvidia-cublas-cu12"], code=NEW)
        made.build("torch", "2.12.0", "cu128", requires=["nvidia-cublas-cu12"], code=NEW)
        made.default.wheel("numpy", "1.0")
        made.default.wheel("numpy", "2.0")
        made.default.wheel("accelerate", "1.0", requires=["torch>=2", "numpy", "tqdm"])
        made.default.wheel("newer", "1.0", requires=["torch>=2.12"])
        made.default.wheel("sneaky", "1.0", requires=["nvidia-cublas-cu12"])
        yield made


def planned(world: World, *lines: str, torch: bool = True, directory: Path = Path()) -> Plan:
    """A conda plan of numpy 1.0, and torch 2.11.0 if wished, with a pip part."""
    machine = world.machine("H100, driver 580.95.05")
    packages = [package("numpy", "1.0"), PlannedPackage("python", "3.12.1", None, None, None, None, {}, "conda")]
    conda = Plan(
        machines=(machine,),
        python="3.12",
        packages=(*packages, *([package("pytorch", "2.11.0")] if torch else [])),
        conda=CondaTerms(("conda-forge",), "linux-64", {}, ()),
    )
    asked = read_pip_part(lines, directory / "environment.yml")
    extras = (*world.extras, *asked.extra_index_urls)
    settings = IndexSettings(world.default.url, extras, retries=0)
    with IndexClient(settings, cache_dir=world.cache) as client:
        default = client.without_login(world.default.url)
        return with_pip_part(conda, asked, Request(), world.catalogue(), client, default)


def test_what_pip_adds_is_exact_and_what_conda_has_is_held(world: World, tmp_path: Path) -> None:
    made = planned(world, "accelerate")
    assert made.conda is not None
    assert made.conda.pip == ("accelerate==1.0", "tqdm==1.0", "numpy==1.0", "torch==2.11.0")
    assert "      - torch==2.11.0\n" in render(made, "environment-yml")
    with pytest.raises(UsageError, match="cannot contain pip packages"):
        render(made, "conda-lock")
    with pytest.raises(UsageError, match="does not install pip packages into a conda environment"):
        install(made, tmp_path / "env")
    assert '[pypi-dependencies]\naccelerate = "==1.0"' in render(made, "pixi")


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_what_pip_is_asked_for_by_address_is_never_taken_from_an_index(world: World, tmp_path: Path) -> None:
    """An index may have another package of that name."""
    file = world.default.wheel("tqdm", "2.0")
    commit = repository(tmp_path / "r", {"sub/pyproject.toml": '[project]\nname = "own"\nversion = "1.0"\n'})
    (tmp_path / "r" / "setup.py").touch()
    address = f"git+{(tmp_path / 'r').as_uri()}"
    lines = [
        f"own @ {address}@main#subdirectory=sub",
        f"mine @ {(tmp_path / 'r').as_uri()}",
        f"tqdm @ {world.server.url.replace('://', '://me:s3cret@')}{file.url}",
    ]
    made = planned(world, *lines)
    exact = [f"own @ {address}@{commit}#subdirectory=sub", *lines[1:]]
    assert made.conda is not None and sorted(made.conda.pip) == sorted(exact)
    assert {"folder", "dependencies-unknown"} <= {caution.code for caution in made.warnings}
    manifest = tomllib.loads(render(made, "pixi"))["pypi-dependencies"]
    assert manifest["own"] == {"git": (tmp_path / "r").as_uri(), "rev": commit, "subdirectory": "sub"}
    assert manifest["mine"] == {"path": str(tmp_path / "r")}
    assert manifest["tqdm"] == {"url": f"{world.server.url}{file.url}"}
    assert f"own @ {address}@{commit}" in render(made, "environment-yml")
    assert "s3cret" not in render(made, "environment-yml") + render(made, "json")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sneaky", "pip would install nvidia-cublas-cu12, in addition to the CUDA and the torch from conda"),
        ("newer", "packages for pip: "),
    ],
)
def test_pip_brings_no_second_cuda_and_no_other_torch(line: str, words: str, world: World) -> None:
    made = planned(world, line)
    assert made.status == "impossible"
    assert any(fact.fact.startswith(words) for fact in made.conflict)
    assert "move it from the pip list" in made.remedies[0].text


def test_the_torch_of_the_pip_part_is_judged_if_conda_has_none(world: World) -> None:
    made = planned(world, "accelerate", torch=False)
    assert made.conda is not None
    assert "torch==2.12.0" in made.conda.pip
    assert (made.status, made.cuda) == ("ok", "cu128")
    assert [(one.package, one.level) for one in made.support] == [("torch", "native")]
    assert made.driver is not None and made.driver.mode == "full"
    old = planned(world, "torch<2", torch=False)
    assert old.status == "impossible"


def test_options_of_the_pip_part_are_those_of_pip(world: World, tmp_path: Path) -> None:
    """conda gives the list to pip as a requirement file in the directory of the environment.yml."""
    extra = world.server.index("/extra/")
    rare = extra.wheel("rare", "1.0")
    (tmp_path / "more.txt").write_text("tqdm\n")
    (tmp_path / "limits.txt").write_text("newer<1\naccelerate==1.0\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pyproject.toml").write_text('[project]\nname = "own"\ndependencies = ["accelerate"]\n')
    lines = ["-r more.txt", "-c limits.txt", f"--extra-index-url {extra.url}", "rare", "-e ./sub"]
    made = planned(world, *lines, directory=tmp_path)
    assert made.conda is not None
    address = f"{world.server.url}{rare.url}"
    assert {f"rare @ {address}", "tqdm==1.0", "accelerate==1.0"} <= {*made.conda.pip}
    with pytest.raises(UsageError, match="yml pip: line 6: --oops"):
        planned(world, *lines, "numpy --oops", directory=tmp_path)


PIXI = """\
[workspace]
channels = ["conda-forge", { channel = "nvidia" }]
platforms = ["linux-64"]
[dependencies]
python = "3.12.*"
pytorch = { version = ">=2.5, <3", build = "cuda*", build-number = 1 }
[target.unix.dependencies]
make = "*"
[target.win-64.dependencies]
windows = "*"
[system-requirements]
cuda = "12"
[pypi-dependencies]
einops = { version = "*", extras = ["x"] }
own = { path = ".", editable = true }
[feature.test.dependencies]
pytest = ">=8"
[feature.lean.dependencies]
numpy = "*"
[environments]
test = ["test"]
lean = { features = ["lean"], no-default-feature = true }
"""


def read_pixi_file(path: Path, *groups: str) -> CondaAsked:
    machine = describe_target("H100, driver 580, python 3.12, linux-x86_64, glibc 2.35", Catalogue())
    files, projects = ([path], []) if path.name == "pixi.toml" else ([], [path])
    return read_asked((), files, (), NAMES, Environment.of(machine, "3.12"), projects=projects, groups=groups)


def test_a_pixi_toml(tmp_path: Path) -> None:
    path = tmp_path / "pixi.toml"
    path.write_text(PIXI)
    asked = read_pixi_file(path)
    assert list(map(str, asked.specs)) == ["python 3.12.*", "pytorch >=2.5,<3 cuda*", "make *"]
    assert [str(need.requirement) for need in asked.pip.needs] == ["einops[x]"]
    assert asked.channels == ("conda-forge", "nvidia")
    notes = [note.removeprefix(f"{path}: ") for note in asked.notes]
    assert [note.partition(":")[0] for note in notes] == [
        "pytorch",
        "own is the local directory .; give it as a project to also plan its requirements",
        "system requirement cuda 12",
    ]
    assert str(read_pixi_file(path, "test").specs[-1]) == "pytest >=8"
    assert list(map(str, read_pixi_file(path, "lean").specs)) == ["numpy *"]
    path.write_text(PIXI.replace("linux-64", "osx-arm64"))
    assert "platforms has no linux-64" in read_pixi_file(path).notes[-1]
    path.write_text("dependencies = 3")
    with pytest.raises(UsageError, match="not valid for pixi"):
        read_pixi_file(path)


def test_the_table_of_pixi_in_a_project(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "x"\ndependencies = ["einops"]\n[tool.pixi.dependencies]\npytorch = "*"\n')
    assert list(map(str, read_pixi_file(path).specs)) == ["pytorch *", "einops"]


def test_the_date_of_a_project_holds_for_conda_packages(tmp_path: Path) -> None:
    """It was dropped without a word, and the plan held newer packages."""
    project = (
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n[tool.uv]\nexclude-newer = "2025-01-02"\n'
    )
    (tmp_path / "pyproject.toml").write_text(project)
    environment = Environment.of(describe_target(GPU), "3.13")
    asked = read_asked((), (), (), NAMES, environment, projects=[tmp_path / "pyproject.toml"])
    assert asked.exclude_newer is not None and asked.exclude_newer.startswith("2025-01-02")

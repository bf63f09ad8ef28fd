"""What the formats of a conda plan hold, read back and solved or installed by rattler itself."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.formats import render
from envsolve.planning.plan import Plan
from tests.condachannel import CondaChannel, Package
from tests.formats.plans import GOOD
from tests.planning.conda.conftest import Planner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")

GPU = "RTX 4090, driver 550.54.14, python 3.13, linux-x86_64, glibc 2.35"
VIRTUAL = {"__unix": "0", "__linux": "0", "__glibc": "2.35"}


def solved(channels: Sequence[str], specs: Sequence[str], virtual: dict[str, str]) -> dict[str, str]:
    """Build strings by name, solved as any client of conda does: nothing of envsolve's is in it."""
    lib: Any = import_module("rattler")
    made = [
        lib.GenericVirtualPackage(lib.PackageName(name), lib.Version(version), lib.BuildString("0"))
        for name, version in virtual.items()
    ]
    config = lib.SourceConfig(cache_action="no-cache")
    question = lib.solve(
        channels,
        [lib.MatchSpec(spec, strict=False) for spec in specs],
        gateway=lib.Gateway(default_config=config, client=lib.Client()),
        platforms=["linux-64", "noarch"],
        virtual_packages=made,
    )

    async def ask() -> Any:
        return await question

    return {record.name.normalized: str(record.build) for record in asyncio.run(ask())}


def environment(made: Plan) -> tuple[list[str], list[str]]:
    """Channels and match specs of the environment.yml."""
    read = import_module("ruamel.yaml").YAML(typ="safe").load(render(made, "environment-yml"))
    return [c for c in read["channels"] if c != "nodefaults"], [d for d in read["dependencies"] if isinstance(d, str)]


def manifest(made: Plan) -> tuple[list[str], list[str], dict[str, str]]:
    """Channels, match specs and virtual packages of the pixi.toml, as pixi makes them."""
    read = tomllib.loads(render(made, "pixi"))
    specs = []
    for name, wanted in read["dependencies"].items():
        build = wanted.get("build") if isinstance(wanted, dict) else None
        version = wanted["version"] if isinstance(wanted, dict) else wanted
        specs.append(f"{name} {version} {build}" if build else f"{name} {version}")
    asked = read.get("system-requirements", {})
    virtual = {"__unix": "0", "__linux": "4.18", "__glibc": asked["libc"]["version"]}
    return read["workspace"]["channels"], specs, virtual | ({"__cuda": asked["cuda"]} if "cuda" in asked else {})


def again(text: str) -> str:
    """A build string as another build of the same recipe has it."""
    return text.replace("h1e53aa0", "h5e53aa0").replace("h9562ed8", "h5562ed8").replace("_304", "_305")


def in_plan(made: Plan) -> dict[str, str]:
    return {p.name: str(p.filename).removesuffix(".conda").rsplit("-", 1)[1] for p in made.packages}


def test_an_environment_file_gives_the_plan_again(plan: Planner) -> None:
    made = plan(GPU, "torch", "torchvision", "numpy")
    channels, specs = environment(made)
    assert "pytorch=2.7.1=cuda129*" in specs
    assert "torchvision=0.22.0=cuda*" in specs
    assert solved(channels, specs, VIRTUAL | {"__cuda": "12.4"}) == in_plan(made)


def test_no_format_falls_to_the_cpu_where_no_driver_is_seen(plan: Planner) -> None:
    made = plan(GPU, "torch")
    channels, specs = environment(made)
    with pytest.raises(Exception, match="__cuda"):
        solved(channels, specs, VIRTUAL)
    # The same request without the pins does: the newest build on the CPU.
    assert solved(channels, ["pytorch", "python 3.13.*"], VIRTUAL)["pytorch"].startswith("cpu")
    assert "CONDA_OVERRIDE_CUDA=12.4 conda env create" in render(made, "environment-yml")


def test_the_pins_still_solve_when_the_channel_has_moved_on(
    channel: CondaChannel, plan: Planner, tmp_path: Path
) -> None:
    """Next month: the build is there with another hash and number, and newer versions, on the CPU too."""
    made = plan(GPU, "torch")
    rebuilt = [p for p in channel.packages if p.name in ("pytorch", "libtorch") and p.build.endswith("_304")]
    moved = [p for p in channel.packages if p not in rebuilt] + [
        Package(p.name, p.version, again(p.build), tuple(map(again, p.depends)), tuple(map(again, p.constrains)))
        for p in rebuilt
    ]
    newest = next(p for p in channel.packages if p.name == "pytorch" and p.build.startswith("cpu_mkl_py313"))
    later = Package("pytorch", "2.99.0", newest.build, newest.depends, (), newest.subdir)
    with CondaChannel(tmp_path) as next_month:
        next_month.add(*moved, later).write()
        for channels, specs, virtual in ((*environment(made), VIRTUAL | {"__cuda": "12.4"}), manifest(made)):
            assert channels == [channel.url]
            found = solved([next_month.url], specs, virtual)
            assert found["pytorch"] == "cuda129_mkl_py313_h5e53aa0_305"


def test_a_pixi_manifest_gives_the_plan_again_for_the_target(plan: Planner) -> None:
    made = plan(GPU, "torch", "torchvision")
    channels, specs, virtual = manifest(made)
    assert virtual["__cuda"] == "12.4"
    assert solved(channels, specs, virtual) == in_plan(made)
    read = tomllib.loads(render(made, "pixi"))
    assert read["workspace"]["platforms"] == ["linux-64"]
    assert read["activation"]["env"] == {"TRITON_PTXAS_PATH": "$CONDA_PREFIX/bin/ptxas"}


def test_without_its_system_requirements_the_manifest_has_no_answer_and_without_its_builds_that_for_the_cpu(
    plan: Planner,
) -> None:
    channels, specs, virtual = manifest(plan(GPU, "torch"))
    unsaid = {name: version for name, version in virtual.items() if name != "__cuda"}
    with pytest.raises(Exception, match="__cuda"):
        solved(channels, specs, unsaid)
    loose = [spec.rpartition(" ")[0] if "cuda" in spec.rpartition(" ")[2] else spec for spec in specs]
    bare = [spec for spec in loose if not spec.startswith("cuda-version")]
    assert solved(channels, bare, unsaid)["pytorch"].startswith("cpu")


def test_a_cpu_plan_asks_for_no_driver(plan: Planner) -> None:
    made = plan(GPU.replace("RTX 4090, driver 550.54.14", "no gpu"), "torch")
    channels, specs, virtual = manifest(made)
    assert "__cuda" not in virtual
    assert "pytorch ==2.8.0 cpu*" in specs
    assert solved(channels, specs, virtual)["pytorch"] == in_plan(made)["pytorch"]
    assert "CONDA_OVERRIDE_CUDA" not in render(made, "environment-yml")


def test_an_explicit_lock_is_read_and_installed(plan: Planner, tmp_path: Path) -> None:
    made = plan(GPU, "torch")
    text = render(made, "conda-lock")
    spec = import_module("rattler.explicit_environment").ExplicitEnvironmentSpec.from_str(text)
    assert str(spec.platform) == "linux-64"
    assert sorted(entry.url.partition("#")[0] for entry in spec.packages) == sorted(str(p.url) for p in made.packages)
    hashes = dict(re.findall(r"/([^/\s]+)\.conda#sha256:([0-9a-f]{64})$", text, re.MULTILINE))
    assert hashes == {str(p.filename).removesuffix(".conda"): p.hashes["sha256"] for p in made.packages}


def test_the_lock_lists_what_is_depended_on_first(plan: Planner) -> None:
    order = [line for line in render(plan(GPU, "torch"), "conda-lock").splitlines() if line.startswith("http")]
    at = {name: place for place, line in enumerate(order) for name in re.findall(r"/([\w-]+?)-\d[\w.]*-", line)}
    assert at["libtorch"] < at["pytorch"]
    assert at["python"] < at["pytorch"]
    assert at["cuda-version"] < at["libtorch"]


def test_a_plan_of_wheels_has_no_conda_formats_and_the_other_way_round(plan: Planner) -> None:
    for form in ("environment-yml", "conda-lock", "pixi"):
        with pytest.raises(UsageError, match="plan contains wheels") as caught:
            render(GOOD, form)
        assert "--manager conda" in (caught.value.hint or "")
    made = plan(GPU, "torch")
    for form in ("pylock", "requirements", "pip", "uv", "dockerfile"):
        with pytest.raises(UsageError):
            render(made, form)
    assert '"pip": []' in render(made, "json")


@pytest.mark.parametrize("form", ["json", "environment-yml", "conda-lock", "pixi", "summary"])
def test_no_password_or_token_of_a_channel_is_written_down(form: str, channel: CondaChannel, plan: Planner) -> None:
    from msgspec import structs

    secret = channel.url.replace("http://", "http://me:s3cret@")
    made = plan(GPU, "numpy", channels=[secret])
    assert "s3cret" not in render(made, form)
    assert made.conda is not None
    token = structs.replace(made.conda, channels=("https://example.org/t/s3cret/mine",))
    assert "s3cret" not in render(structs.replace(made, conda=token), form)


def test_a_channel_without_hashes_gives_no_lock(plan: Planner) -> None:
    from msgspec.structs import replace

    made = plan(GPU, "numpy")
    bare = tuple(replace(package, hashes={}) for package in made.packages)
    with pytest.raises(IndexUnavailableError, match="publishes no hash"):
        render(replace(made, packages=bare), "conda-lock")

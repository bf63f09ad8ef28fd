"""Plans with ``--find-links`` and ``--no-index``, and wheels whose names say for which torch they were compiled."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import envsolve
from envsolve.errors import IndexUnavailableError
from envsolve.formats import render
from envsolve.packages.client import IndexClient
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked
from envsolve.packages.settings import IndexSettings
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from tests.distributions import make_wheel, wheel_filename
from tests.planning.worlds import codes, package
from tests.smallworld import LINUX, World

H100 = "H100, driver 580.95.05"


def planned(
    world: World, links: Path | str, *requirements: str, no_index: bool = False, asked: Asked | None = None
) -> Plan:
    place = links.as_uri() if isinstance(links, Path) else links
    settings = IndexSettings(world.default.url, links=(place,), no_index=no_index, retries=0)
    with IndexClient(settings, cache_dir=world.cache) as client:
        given = asked or read_requirements(requirements)
        return make_plan(given, [world.machine(H100)], Request(), world.catalogue(), client)


def put(folder: Path, name: str, version: str, tags: str, *requires: str) -> None:
    folder.mkdir(exist_ok=True)
    content = make_wheel(name, version, tags=tags, requires=requires)
    (folder / wheel_filename(name, version, tags)).write_bytes(content)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


def test_a_directory_alone_gives_the_torch_that_it_has(torch_world: World, wheels: Path) -> None:
    """The newest torch of the catalogue is on an index, and no index is asked."""
    for build in torch_world.builds:
        if build.package == "torch" and build.version == "2.9.1" and not build.local:
            tags = build.filename("cp312")[:-4].split("-", 2)[2]
            put(wheels, "torch", "2.9.1", tags, *build.requires or ())
    for name in ("filelock", "sympy", "networkx"):
        put(wheels, name, "1.0", "py3-none-any")
    for build in torch_world.builds:
        if build.package == "triton":
            put(wheels, "triton", build.version, build.filename("cp312")[:-4].split("-", 2)[2])
    with_index = planned(torch_world, wheels, "torch")
    plan = planned(torch_world, wheels, "torch", no_index=True)
    assert plan.status == "ok", plan.conflict
    torch = package(plan, "torch")
    assert torch.version == "2.9.1"
    assert torch.url is not None
    assert torch.url.startswith(wheels.as_uri())
    assert {one.index for one in plan.packages} == {None}
    assert all(one.hashes for one in plan.packages)
    assert f"torch @ {torch.url}" in render(plan, "requirements")
    assert package(with_index, "torch").version != "2.9.1"


def test_what_no_place_has_is_refused(torch_world: World, wheels: Path) -> None:
    put(wheels, "filelock", "1.0", "py3-none-any")
    assert planned(torch_world, wheels, "filelock", no_index=True).status == "ok"
    assert planned(torch_world, wheels, "torch", no_index=True).status == "impossible"


def test_a_hash_chooses_among_local_files(torch_world: World, wheels: Path) -> None:
    put(wheels, "demo", "1.0", "py3-none-any")
    put(wheels, "demo", "2.0", "py3-none-any")
    assert package(planned(torch_world, wheels, "demo", no_index=True), "demo").version == "2.0"
    digest = package(planned(torch_world, wheels, "demo<2", no_index=True), "demo").hashes["sha256"]
    given = read_requirements(["demo"])
    asked = replace(given, needs=(replace(given.needs[0], hashes=(f"sha256:{digest}",)),))
    assert package(planned(torch_world, wheels, asked=asked), "demo").version == "1.0"


def test_a_page_that_cannot_be_read_is_an_error_only_if_it_may_have_what_is_asked_for(torch_world: World) -> None:
    down = "http://127.0.0.1:9/links.html"
    plan = planned(torch_world, down, "torch", "numpy")
    [warning] = [w for w in plan.warnings if w.code == "links-unreachable"]
    assert (plan.status, down in warning.message) == ("ok", True)
    for asked in ("numpy==9.0+cu121", "on-that-page"):
        with pytest.raises(IndexUnavailableError, match="links"):
            planned(torch_world, down, "torch", asked)
    assert planned(torch_world, down, "torch==2.11.0", "torchvision==0.29.0").status == "impossible"


def _fill(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


ODD: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "no archive": ("demo-2.0-py3-none-any.whl", lambda path: _fill(path, b"\0" * 100), "no usable metadata"),
    "empty": ("demo-2.0-py3-none-any.whl", lambda path: _fill(path, b""), "no usable metadata"),
    "cut": (
        "demo-2.0-py3-none-any.whl",
        lambda path: _fill(path, make_wheel("demo", "2.0")[:99]),
        "no usable metadata",
    ),
    "of another project": ("demo-2.0-py3-none-any.whl", lambda path: _fill(path, make_wheel("x", "1")), "is for x"),
    "no sdist": ("demo-2.0.tar.gz", lambda path: _fill(path, "x"), "no usable metadata"),
    "pipe": ("demo-2.0-py3-none-any.whl", os.mkfifo, ""),
    "loop of links": ("demo-2.0-py3-none-any.whl", lambda path: path.symlink_to(path), ""),
    "not UTF-8": ("demo-2.0\udcff-py3-none-any.whl", lambda path: _fill(path, make_wheel("demo", "2.0")), ""),
    "a line break": ("demo-2.0-py3-none-\nany.whl", lambda path: _fill(path, make_wheel("demo", "2.0")), ""),
    "a page without end": ("page.html", lambda path: _fill(path, " " * (17 << 20)), "larger than"),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_file_in_a_directory_is_left_out_and_said(torch_world: World, wheels: Path, kind: str) -> None:
    name, write, said = ODD[kind]
    put(wheels, "demo", "1.0", "py3-none-any")
    write(wheels / name)
    plan = planned(torch_world, wheels, "demo", no_index=True)
    assert package(plan, "demo").version == "1.0"
    told = [one.message for one in plan.warnings if one.code in ("file-left-out", "links-unreachable")]
    assert [said in text for text in told] == [True] * bool(said)
    if said and name.startswith("demo"):
        with pytest.raises(IndexUnavailableError, match=said):
            planned(torch_world, wheels, "demo==2.0", no_index=True)


def test_a_damaged_file_leaves_the_version_to_the_index(torch_world: World, wheels: Path) -> None:
    torch_world.default.wheel("demo", "2.0")
    put(wheels, "demo", "1.0", "py3-none-any")
    _fill(wheels / "demo-2.0-py3-none-any.whl", "x")
    assert package(planned(torch_world, wheels, "demo"), "demo").index
    torch = next(one for one in planned(torch_world, wheels, "torch").packages if one.name == "torch")
    _fill(wheels / str(torch.filename), "x")
    plan = planned(torch_world, wheels, "torch")
    assert package(plan, "torch").url == torch.url and "links-unreachable" in {one.code for one in plan.warnings}


def test_after_twenty_damaged_files_a_plan_gives_up(torch_world: World, wheels: Path) -> None:
    put(wheels, "demo", "1.0", "py3-none-any")
    for number in range(21):
        _fill(wheels / f"demo-2.{number}-py3-none-any.whl", "x")
    with pytest.raises(IndexUnavailableError, match="no usable metadata"):
        planned(torch_world, wheels, "demo", no_index=True)


@pytest.mark.parametrize(
    "local", ["pt29cu128", "cu128torch2.9", "cu12torch2.9cxx11abitrue", "cu122torch2.9", "torch290cu128", "2.9"]
)
def test_a_wheel_goes_with_the_torch_in_its_name_alone(torch_world: World, wheels: Path, local: str) -> None:
    """pip takes the wheel for torch 2.9 beside any torch, and its import fails."""
    folder = wheels / "cu128" / "torch2.9.0" if local == "2.9" else wheels
    folder.mkdir(parents=True)
    version = "2.1.2" if local == "2.9" else f"2.1.2+{local}"
    put(folder, "torch-scatter", version, f"cp312-cp312-{LINUX}")
    torch_world.default.sdist("torch-scatter", "2.1.1", requires=["torch"])
    plan = planned(torch_world, folder, "torch==2.9.1", "torch-scatter")
    assert package(plan, "torch-scatter").version == version
    other = planned(torch_world, folder, "torch==2.11.0", "torch-scatter")
    assert package(other, "torch-scatter").version == "2.1.1"


def archive(top: str, **members: str) -> bytes:
    """An sdist of a directory with these files; ``_`` in a name is a dot."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as opened:
        for name, text in members.items():
            member = tarfile.TarInfo(f"{top}/{name.replace('_', '.')}")
            member.size = len(text)
            opened.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def placeholder(name: str, version: str) -> bytes:
    """What reserves the name of a project on the default index."""
    fake = f"Metadata-Version: 1.2\nName: {name}\nVersion: {version}\n"
    fake += "Summary: A fake package to warn the user they are not installing the correct package.\n"
    return archive(f"{name}-{version}", **{"PKG-INFO": fake})


def test_a_file_that_only_holds_a_name_is_not_planned(torch_world: World) -> None:
    """nvidia-tensorflow on the default index: its build stops with a message, and a plan of it was ok."""
    content = placeholder("nvidia-demo", "0.0.1.dev5")
    torch_world.default.add("nvidia-demo", "nvidia-demo-0.0.1.dev5.tar.gz", content)
    with pytest.raises(IndexUnavailableError, match="only a placeholder") as caught:
        torch_world.plan("nvidia-demo")
    assert "--extra-index-url https://pypi.nvidia.com" in (caught.value.hint or "")


def test_a_gpu_that_excludes_the_releases_is_the_reason_and_not_an_index(torch_world: World) -> None:
    """cudf-cu12 on a P100: before 24.12 the default index has only its name."""
    torch_world.default.add("cudf-cu12", "cudf-cu12-23.12.1.tar.gz", placeholder("cudf-cu12", "23.12.1"))
    torch_world.default.wheel("cudf-cu12", "25.8.0")
    assert package(torch_world.plan("cudf-cu12", target="V100, driver 535"), "cudf-cu12").version == "25.8.0"
    refused = torch_world.plan("cudf-cu12", target="P100, driver 535")
    assert any("does not support GPUs below compute capability 7.0" in fact.fact for fact in refused.conflict)
    assert any("--extra-index-url https://pypi.nvidia.com" in fix.text for fix in refused.remedies)


@pytest.mark.parametrize(
    ("backend", "tool", "index"),
    [
        ("nvidia_stub.buildapi", "", "https://pypi.nvidia.com"),
        (
            "wheel_stub.buildapi",
            '[tool.wheel_stub]\nindex_url = "https://wheels.example/"\n',
            "https://wheels.example/",
        ),
        ("wheel_stub.buildapi", "[tool.wheel_stub]\nindex_url = 1\n", "https://pypi.nvidia.com"),
        ("setuptools.build_meta", '[tool.wheel_stub]\nindex_url = "https://wheels.example/"\n', None),
    ],
)
def test_an_sdist_that_downloads_a_wheel_names_its_index(
    torch_world: World, backend: str, tool: str, index: str | None
) -> None:
    """tensorrt-llm was called a source build that needs nvcc; its sdist has no code."""
    stated = "Metadata-Version: 2.1\nName: engine\nVersion: 1.0\nRequires-Dist: filelock\nRequires-Dist: torch\n"
    project = f'[build-system]\nrequires = []\nbuild-backend = "{backend}"\n{tool}'
    content = archive("engine-1.0", **{"PKG-INFO": stated, "pyproject_toml": project})
    torch_world.default.add("engine", "engine-1.0.tar.gz", content)
    plan = torch_world.plan("engine")
    assert package(plan, "engine").wheels_from == index
    found = {code for code in codes(plan) if code in ("wheel-stub", "source-build", "dependencies-guessed")}
    assert found == ({"wheel-stub"} if index else {"source-build", "dependencies-guessed"})
    if index:
        (warning,) = [one for one in plan.warnings if one.code == "wheel-stub"]
        assert f"--extra-index-url {index}" in (warning.remedy or "")
    assert Plan.from_json(plan.to_json()).packages == plan.packages


def test_an_extra_index_that_is_the_default_one_is_not_mentioned(torch_world: World, tmp_path: Path) -> None:
    """Projects of uv often list the default index beside that of a variant."""
    torch_world.default.wheel("demo", "1.0")
    file = tmp_path / "requirements.txt"
    for extra, told in ((torch_world.default.url, 0), ("http://127.0.0.1:9/other", 1)):
        file.write_text(f"--extra-index-url {extra}\ndemo\n")
        made = envsolve.plan(
            envsolve.Request(files=[str(file)], index_url=torch_world.default.url, python="3.12"),
            [torch_world.machine("no GPU")],
        )
        assert len([one for one in made.warnings if "the extra index" in one.message]) == told

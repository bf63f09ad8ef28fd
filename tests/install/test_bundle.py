"""Bundles: every file of a plan, gone on with after an interruption, installed where there is no network."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import envsolve
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.install.bundle import Bundle, make_bundle, read_plan
from envsolve.machine.model import HostCompiler, Machine
from envsolve.packages.settings import IndexSettings
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import Toolchain
from tests.formats.test_installers import published
from tests.indexserver import IndexServer

PYTHON = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture
def server() -> Iterator[IndexServer]:
    with IndexServer() as running:
        yield running


@pytest.fixture
def plan(server: IndexServer) -> Plan:
    index = server.index()
    direct = replace(published(server.index("/files/"), "es-direct", "0.5"), index=None)
    packages = (direct, published(index, "es-one", "1.0", ("es-two",)), published(index, "es-two", "2.0"))
    return Plan(python=PYTHON, requirements=("es-one",), packages=packages, machines=(Machine(),))


def bundled(plan: Plan, place: Path, **settings: object) -> Bundle:
    found = IndexSettings("http://127.0.0.1:9/simple/", retries=0, **settings)  # type: ignore[arg-type]
    return make_bundle(plan, place, Catalogue(), found)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "wheels").iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"python": "3.4"}, "the bundle is for Python 3.4"),
        ({"platforms": [["windows", "x86_64"]]}, "the bundle is for"),
        ({}, "was damaged while it was copied"),
    ],
)
def test_the_installer_refuses_what_cannot_work(
    plan: Plan, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    bundled(plan, tmp_path / "made")
    described = tmp_path / "made" / "bundle.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | change))
    if not change:
        next((tmp_path / "made" / "wheels").iterdir()).write_bytes(b"spoilt")
    command = [sys.executable, str(tmp_path / "made" / "install.py"), str(tmp_path / "env")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and message in done.stderr
    assert not (tmp_path / "env").exists()


def offline(made: Path, prefix: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(made / "install.py"), str(prefix)]
    if shutil.which("unshare") and subprocess.run(["unshare", "-n", "true"], check=False).returncode == 0:
        command = ["unshare", "-n", *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_an_install_without_a_network_is_begun_again_after_a_kill_and_is_alone(plan: Plan, tmp_path: Path) -> None:
    """One environment for all of it: to copy the pip of a new one takes six seconds."""
    bundled(replace(plan, environment={"ES_VARIABLE": "{site_packages}/x"}), tmp_path / "made")
    made, env = Path(shutil.move(tmp_path / "made", tmp_path / "moved")), tmp_path / "env"
    killed = offline(made, env)
    while not (env / "pyvenv.cfg").exists():
        assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert (env / ".unfinished").exists()
    both = [offline(made, env) for _ in range(2)]
    said = [one.communicate() for one in both]
    assert sorted(one.returncode for one in both) == [0, 1], said
    (refused, done) = sorted(said, key=lambda one: "ready:" in one[0])
    assert re.search("another install is running in|already exists", refused[1])
    assert f"ready: {env}" in done[0]
    assert f"ES_VARIABLE={env}/lib/python{PYTHON}/site-packages/x" in done[0]
    assert not (env / ".unfinished").exists()
    installed = {path.name for path in env.glob("lib/*/site-packages/es_*.dist-info")}
    assert installed == {"es_direct-0.5.dist-info", "es_one-1.0.dist-info", "es_two-2.0.dist-info"}
    again = offline(made, env)
    assert "already exists" in again.communicate()[1] and again.returncode == 1


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"files": [1]}', "\0"])
def test_a_damaged_description_of_a_bundle_is_refused(plan: Plan, tmp_path: Path, damage: str) -> None:
    bundled(plan, tmp_path / "made")
    (tmp_path / "made" / "bundle.json").write_text(damage)
    refused = offline(tmp_path / "made", tmp_path / "env").communicate()[1]
    assert refused.startswith("install.py: ") and "copy it again" in refused
    assert not (tmp_path / "env").exists()


def test_a_wheel_that_somebody_added_to_a_bundle_is_refused(plan: Plan, tmp_path: Path) -> None:
    bundled(plan, tmp_path / "made")
    (tmp_path / "made" / "wheels" / "es_two-9.0-py3-none-any.whl").write_bytes(b"")
    refused = offline(tmp_path / "made", tmp_path / "env").communicate()[1]
    assert "es_two-9.0-py3-none-any.whl is not a file of the bundle" in refused
    assert not (tmp_path / "env").exists()


def test_an_interrupted_download_goes_on(plan: Plan, server: IndexServer, tmp_path: Path) -> None:
    place = tmp_path / "made"
    (place / "wheels").mkdir(parents=True)
    (package,) = [one for one in plan.packages if one.name == "es-two"]
    whole = server.indexes[0].projects["es-two"][0].content
    (place / "wheels" / f"{package.filename}.part").write_bytes(whole[:100])
    (place / "wheels" / "old-1.0-py3-none-any.whl").write_bytes(b"of an earlier plan")
    bundled(plan, place)
    asked = [one.headers.get("Range") for one in server.requests if one.path.endswith(str(package.filename))]
    assert asked == ["bytes=100-"]
    assert names(place) == sorted(str(one.filename) for one in plan.packages)
    count = len(server.requests)
    bundled(plan, place)
    assert len(server.requests) == count  # what is there is not downloaded again


def test_a_connection_that_breaks_is_taken_up_again(plan: Plan, server: IndexServer, tmp_path: Path) -> None:
    (package,) = [one for one in plan.packages if one.name == "es-two"]
    path = str(package.url).removeprefix(server.url)
    server.fault(path, truncate=True, times=2)
    bundled(plan, tmp_path / "made")
    assert server.asked(path) == 3
    assert (tmp_path / "made" / "wheels" / str(package.filename)).is_file()


def test_a_file_with_another_hash_is_refused(plan: Plan, tmp_path: Path) -> None:
    spoilt = tuple(replace(one, hashes={"sha256": "a" * 64}) for one in plan.packages)
    with pytest.raises(IndexUnavailableError, match="differs from the file in the plan"):
        bundled(replace(plan, packages=spoilt), tmp_path / "made")
    assert not any(name.endswith(".whl") for name in names(tmp_path / "made"))


@pytest.mark.parametrize("more", [-1, 1])
def test_a_file_of_another_size_is_refused(plan: Plan, tmp_path: Path, more: int) -> None:
    (size,) = {one.size for one in bundled(plan, tmp_path / "right").files if one.name == "es-one"}
    spoilt = tuple(replace(one, size=size + more) if one.name == "es-one" else one for one in plan.packages)
    with pytest.raises(IndexUnavailableError, match="differs from the file in the plan"):
        bundled(replace(plan, packages=spoilt), tmp_path / "made")
    assert not any(name.startswith("es_one") for name in names(tmp_path / "made"))


def test_an_archive_has_the_same_bytes_each_time(plan: Plan, tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        bundled(plan, tmp_path / "made.tar")
        contents.append((tmp_path / "made.tar").read_bytes())
    assert contents[0] == contents[1]
    assert [path.name for path in tmp_path.glob("made*")] == ["made.tar"]
    with tarfile.open(tmp_path / "made.tar") as archive:
        assert "made/install.py" in archive.getnames()


def test_what_is_fetched_or_compiled_later_is_provided_or_named(
    plan: Plan, server: IndexServer, tmp_path: Path
) -> None:
    index = server.index("/more/")
    names = ("flashinfer-python", "flashinfer-cubin", "triton")
    more = tuple(published(index, name, "1.0") for name in names)
    asked = replace(plan, packages=(*plan.packages, *more))
    made = bundled(asked, tmp_path / "made")
    later = {(one.package, one.kind): one.provided for one in made.later}
    assert later == {
        ("triton", "compile"): None,
        ("flashinfer-python", "download"): "flashinfer-cubin 1.0",
        ("flashinfer-python", "compile"): None,
    }
    assert len(made.missing) == 2 and "python3-dev" in made.missing[0]
    text = (tmp_path / "made" / "README.txt").read_text()
    assert "provided by flashinfer-cubin 1.0" in text and "not provided: install gcc" in text
    with_gcc = replace(asked, machines=(Machine(host_compilers=(HostCompiler("gcc", "13.2"),)),))
    toolchain = Toolchain(compiles_at_use=("es-one",), nvcc_from="machine")
    again = bundled(replace(with_gcc, toolchain=toolchain), tmp_path / "made")
    assert [one.provided for one in again.later if one.package == "triton"] == ["gcc 13.2 of the machine"]
    assert [one.provided for one in again.later if one.package == "es-one"] == ["the machine's nvcc"]


def test_sources_bring_what_builds_them(server: IndexServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = server.index()
    for name in ("setuptools", "wheel"):
        index.wheel(name, "90.0")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("es_source-1.0/setup.py"))
    entry = index.add("es-source", "es_source-1.0.tar.gz", content.getvalue())
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    monkeypatch.setenv("ENVSOLVE_CACHE_DIR", str(tmp_path / "cache"))
    url, hashes = index.address(entry), {"sha256": entry.sha256}
    package = PlannedPackage("es-source", "1.0", None, index.url, entry.filename, url, hashes, "sdist")
    plan = Plan(python=PYTHON, packages=(package,), machines=(envsolve.describe_target("no gpu, linux-x86_64"),))
    made = bundled(plan, tmp_path / "made")
    assert [(one.name, one.role) for one in made.files] == [
        ("es-source", "package"),
        ("setuptools", "build"),
        ("wheel", "build"),
    ]
    assert "setuptools" not in (tmp_path / "made" / "requirements.txt").read_text()
    # What the plan's toolchain compiles is built in the environment itself, by commands of its own.
    compiled = replace(plan, toolchain=Toolchain(compiles=("es-source",)))
    made = bundled(compiled, tmp_path / "compiled")
    assert made.compile[-1] == "python -m pip install --no-build-isolation --no-cache-dir --no-deps es-source==1.0"
    assert (tmp_path / "compiled" / "requirements.txt").read_text().strip() == ""


def test_a_lock_is_a_plan(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(plan.to_pylock())
    (tmp_path / "plan.json").write_text(plan.to_json())
    read = [read_plan(tmp_path / name) for name in ("pylock.toml", "plan.json")]
    first, second = ([(p.name, p.version, p.url, dict(p.hashes)) for p in one.packages] for one in read)
    assert first == second
    assert read[0].python == PYTHON
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / "no.json")


def test_a_file_of_a_lock_that_would_be_written_elsewhere_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "pylock.toml"
    for name in ("..", "x/%2e%2e", ""):
        archive = f'{{url = "{tmp_path.as_uri()}/{name}", hashes = {{sha256 = "{"a" * 64}"}}}}'
        package = f'[[packages]]\nname = "demo"\nversion = "1.0"\narchive = {archive}\n'
        lock.write_text(f'lock-version = "1.0"\ncreated-by = "x"\n{package}')
        with pytest.raises(UsageError, match="is not a file name of demo"):
            read_plan(lock)


def test_a_source_tree_is_refused(plan: Plan, tmp_path: Path) -> None:
    tree = replace(plan.packages[0], filename=None, url="git+https://example.org/x.git", hashes={})
    with pytest.raises((UsageError, IndexUnavailableError)):
        bundled(replace(plan, packages=(tree,)), tmp_path / "made")


@pytest.mark.parametrize("link", ["wheels", "install.py", "wheels/es_one-1.0-py3-none-any.whl.part"])
@pytest.mark.parametrize("archive", [False, True])
def test_nothing_is_written_or_deleted_through_a_link(plan: Plan, tmp_path: Path, link: str, archive: bool) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/kept").write_text("kept")
    place = tmp_path / ("made.tar" if archive else "made")
    inside = tmp_path / ("made.tar.partial" if archive else "made") / link
    inside.parent.mkdir(parents=True)
    inside.symlink_to(tmp_path / ("victim" if link == "wheels" else "victim/kept"))
    with pytest.raises(UsageError, match="is a link"):
        bundled(plan, place)
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["kept"]
    assert (tmp_path / "victim/kept").read_text() == "kept"


def test_a_scratch_place_that_is_a_link_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "made.tar.partial").symlink_to("victim")
    with pytest.raises(UsageError, match="is a link"):
        bundled(plan, tmp_path / "made.tar")
    (tmp_path / "made.tar.partial").unlink()
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "made.tar.new").symlink_to("kept")
    bundled(plan, tmp_path / "made.tar")
    assert (tmp_path / "kept").read_text() == "kept"

"""Previews run no code of source archives, unless nothing else gives the answer; then that is said first."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.indexserver import IndexServer
from tests.protect.conftest import OLD_DRIVER, Shop

UV = ("uv", "pip", "install", "--python", "{prefix}")
PIP = (sys.executable, "-m", "pip", "--python", "{prefix}", "install")
BOTH = pytest.mark.parametrize(
    "installer", [pytest.param(UV, id="uv"), pytest.param(PIP, id="pip", marks=pytest.mark.slow)]
)


@pytest.fixture
def ran(shop: Shop, tmp_path: Path) -> Iterator[Path]:
    """The file that exists once code of a source archive ran; ``built`` has no wheel, ``newest`` an older one."""
    ran = tmp_path / "ran"
    with IndexServer() as server:
        index = server.index()
        for name in ("built", "newest"):
            index.add(name, f"{name}-2.0.tar.gz", _archive(name, "2.0", ran))
        index.wheel("newest", "1.0")
        index.wheel("both", "2.0", requires=["newest<2"])
        index.add("both", "both-2.0.tar.gz", _archive("both", "2.0", ran))
        shop.url = index.url
        yield ran


def _archive(name: str, version: str, ran: Path) -> bytes:
    backend = f"""open({str(ran)!r}, "w").close()
def prepare_metadata_for_build_wheel(directory, settings=None):
    import os, pathlib
    place = pathlib.Path(directory, "{name}-{version}.dist-info")
    place.mkdir()
    (place / "METADATA").write_text("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    (place / "WHEEL").write_text("Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return place.name
def build_wheel(*_, **__): raise SystemExit(1)
"""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n',
        "b.py": backend,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def preview(shop: Shop, installer: tuple[str, ...], *rest: str, run: bool = False) -> tuple[int, str]:
    words = [word.format(prefix=shop.prefix) for word in installer]
    options = ("--dry-run", *(("--run",) if run else ()))
    done = shop.envsolve("guard", "--target", OLD_DRIVER, *options, "--", *words, *rest)
    return done.returncode, done.stderr


@BOTH
@pytest.mark.parametrize("name", ["built", "newest"])
def test_a_dry_run_builds_only_if_it_may_and_says_so_first(
    shop: Shop, ran: Path, installer: tuple[str, ...], name: str
) -> None:
    code, said = preview(shop, installer, name)
    assert code == 1 and "--run" in said, said
    assert not ran.exists()
    code, said = preview(shop, installer, name, run=True)
    assert (code, ran.exists()) == (0, True), said
    assert "may build source archives to learn what they require, which runs their code" in said
    if name == "newest":
        assert "newest-2.0.tar.gz" in said


@BOTH
@pytest.mark.parametrize("requirement", ["newest<2", "both"])
def test_nothing_is_built_where_wheels_give_the_same_answer(
    shop: Shop, ran: Path, installer: tuple[str, ...], requirement: str
) -> None:
    if requirement == "both":  # what a dependency excludes is not known here
        code, said = preview(shop, installer, requirement, "newest<2")
    else:
        code, said = preview(shop, installer, requirement)
    assert code == 0, said
    assert not ran.exists()
    assert "build" not in said


@BOTH
def test_a_source_tree_that_is_named_is_built_only_if_it_may(
    shop: Shop, ran: Path, installer: tuple[str, ...], tmp_path: Path
) -> None:
    archive = tmp_path / "local-1.0.tar.gz"
    archive.write_bytes(_archive("local", "1.0", ran))
    code, said = preview(shop, installer, str(archive))
    assert code == 1 and "local-1.0.tar.gz" in said
    assert not ran.exists()


def test_a_sync_builds_nothing_of_the_project_unless_it_may(shop: Shop, ran: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    with tarfile.open(fileobj=io.BytesIO(_archive("local", "1.0", ran))) as tar:
        tar.extractall(tmp_path)
    (project / "src").mkdir(parents=True)
    static = '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\n'
    system = '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    backend = (tmp_path / "local-1.0" / "b.py").read_text()
    (project / "b.py").write_text(backend)
    (project / "pyproject.toml").write_text(static + system)
    words = ("uv", "sync", "--directory", str(project))
    preview(shop, words)
    assert not ran.exists()
    path = str(tmp_path / "local-1.0")
    (project / "pyproject.toml").write_text(
        f'{static}dependencies = ["local"]\n{system}[tool.uv.sources]\nlocal = {{ path = "{path}" }}\n'
    )
    code, said = preview(shop, words)
    assert code == 1 and "--run" in said, said
    assert not ran.exists()
    _, said = preview(shop, words, run=True)
    assert ran.exists(), said

"""The mutation script on a small environment: what it damages is named, and is whole again afterwards."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from envsolve.verify.installed import check_files
from tests.environment.test_installed import put
from tests.verify.conda import FILES as FILES_OF_CONDA
from tests.verify.mutations import (
    KINDS,
    PATHS,
    STACK,
    USED_BY,
    Outcome,
    Worker,
    by_file,
    by_path,
    conda_tasks,
    linked,
    report_of,
    tasks,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links files")
LIBRARY = "nvidia/cu13/lib/libcufft.so.12"
FILES = {"torch/__init__.py": b"", "torch/lib/libtorch_cpu.so": b"\x7fELF" + b"t" * 500}


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    put(site, "nvidia-cufft", {LIBRARY: b"\x7fELF" + b"x" * 500})
    put(site, STACK[0], FILES)
    put(site, "unrelated", {"unrelated.py": b""})
    files = linked(tmp_path / "env" / "bin" / "python", tmp_path / "copy")
    monkeypatch.setattr(Worker, "python", tmp_path / "copy" / "bin" / "python")
    (copied,) = (tmp_path / "copy").glob("lib/python3*/site-packages")
    monkeypatch.setattr(Worker, "site", copied)
    assert not (copied / "unrelated.py").exists()
    return sorted(str(path.relative_to(copied)) for path in files)


@pytest.mark.parametrize("change", KINDS)
def test_each_damage_is_named_and_mended(worker: list[str], change: str) -> None:
    assert worker == [LIBRARY, *sorted(FILES)]
    ended = by_file(LIBRARY, change)
    assert ended.named == ("installed-files",)
    assert check_files(Worker.python, hashes=True).status == "pass"


@pytest.mark.parametrize("what", PATHS)
def test_what_comes_first_is_named(worker: list[str], what: str) -> None:
    assert by_path(what).named == ("installed-files",)


def test_the_tasks_of_each_group(worker: list[str]) -> None:
    assert len(list(tasks(worker, ["files"], gpu=False))) == len(KINDS) * 3
    used = [arguments[2] for _, arguments in tasks(worker, ["use"], gpu=True)]
    assert set(used) == {USED_BY["libcufft."], USED_BY["libtorch_cpu"]}
    assert len(list(tasks([], ["sound"], gpu=True))) == 20


def test_damage_of_conda_packages_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    ended = [run(*given) for run, given in conda_tasks(tmp_path / "conda")]
    assert len(ended) == 4 * len(FILES_OF_CONDA)
    assert [one.what for one in ended if one.named != ("installed-files",)] == []
    sound = check_files(tmp_path / "conda" / "env" / "bin" / "python", hashes=True)
    assert sound.detail.startswith(
        f"{len(FILES_OF_CONDA)} files of {len(FILES_OF_CONDA)} packages have their sizes and"
    )


def test_the_score() -> None:
    ended = [
        Outcome("use: remove a", ("installed-files",), ("installed-files", "lib-cufft")),
        Outcome("use: b", (), ()),
    ]
    assert report_of("use", ended) == "use: 1 of 2 mutations named; a check that runs something failed in 1"
    assert report_of("sound", [Outcome("sound: 1", (), ())]) == "sound: 1 of 1 runs without a failure"

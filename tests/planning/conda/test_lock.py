"""Explicit locks of conda packages, read and installed: exactly the files that they name, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envsolve
from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError, UsageError
from envsolve.formats import render
from envsolve.install.conda import read_conda_lock
from envsolve.install.environment import install
from envsolve.planning.plan import Plan
from tests.condachannel import CondaChannel, Package, python_package
from tests.planning.conda.conftest import Planner

GPU = "RTX 4090, driver 550.54.14, python 3.12, linux-x86_64, glibc 2.28"
HELLO = Package("hello", "1.0", "h0_0", depends=("python", "demo >=1"), files={"share/hello.txt": "hello\n"})
DIGEST, WEAK = "0" * 64, "1" * 32
LINE = f"https://example.org/conda-forge/linux-64/demo-1.0-h0_0.conda#sha256:{DIGEST}"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CondaChannel]:
    with CondaChannel(tmp_path_factory.mktemp("small")) as served:
        abi = Package("python_abi", "3.12", "0_cp312", subdir="noarch")
        served.add(python_package(), abi, HELLO).fill()
        yield served


@pytest.fixture
def made(plan: Planner, small: CondaChannel) -> Plan:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    return plan(GPU, "hello", channels=[small.url])


def written(folder: Path, text: str) -> Path:
    path = folder / "conda-linux-64.lock"
    path.write_text(text)
    return path


def there(prefix: Path) -> set[str]:
    return {path.name.removesuffix(".json") for path in (prefix / "conda-meta").glob("*.json")}


def test_what_the_lock_names_is_what_is_installed(made: Plan, tmp_path: Path) -> None:
    lock = written(tmp_path, render(made, "conda-lock"))
    done = envsolve.install(lock, tmp_path / "env", machine=envsolve.describe_target(GPU), check=False)
    assert (done.changed, done.python_version) == (True, "3.12")
    assert there(done.prefix) == {str(package.filename).removesuffix(".conda") for package in made.packages}
    assert not install(lock, tmp_path / "env").changed
    assert not install(made, tmp_path / "env").changed


def test_a_lock_that_another_tool_wrote_is_installed_too(made: Plan, tmp_path: Path) -> None:
    """As `conda list --explicit --md5` writes it: no notes, md5."""
    lines = [f"{package.url}#{package.hashes['md5']}" for package in made.packages]
    lock = tmp_path / "spec-file.txt"
    lock.write_text("\n".join(("# platform: linux-64", "@EXPLICIT", *lines, "")))
    install(lock, tmp_path / "env")
    assert len(there(tmp_path / "env")) == len(made.packages)


def test_a_lock_for_cards_or_a_driver_that_are_not_here_is_refused(plan: Planner, tmp_path: Path) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    lock = written(tmp_path, render(plan(GPU, "torch"), "conda-lock"))
    with pytest.raises(ImpossibleError, match=r"requires driver 525\.60\.13 or newer"):
        install(lock, tmp_path / "env", machine=envsolve.describe_target(GPU.replace("550.54.14", "470.57.02")))
    assert not (tmp_path / "env").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"(hello-1\.0-h0_0\.conda#sha256:)\w{64}", rf"\g<1>{DIGEST}", "its hash is different"),
        (r"hello-1\.0-h0_0", "hello-1.0-h0_7", "no longer has a planned file"),
    ],
)
def test_a_lock_that_names_what_the_channel_has_not(old: str, new: str, words: str, made: Plan, tmp_path: Path) -> None:
    lock = written(tmp_path, re.sub(old, new, render(made, "conda-lock")))
    with pytest.raises(IndexUnavailableError, match=words):
        install(lock, tmp_path / "env")
    assert not [path.name for path in tmp_path.iterdir() if "env" in path.name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("numpy>=2\n", "is not an explicit lock"),
        ("@EXPLICIT\n", "names no packages"),
        (f"@EXPLICIT\n{LINE}\nnumpy=2\n", "line 3: 'numpy=2' is not the URL"),
        (f"@EXPLICIT\n{LINE[:-1]}\n", "line 2: .* is not the URL"),
        (f"@EXPLICIT\n{LINE.partition('#')[0]}\n", r"demo-1.0-h0_0.conda has no hash"),
        (f"@EXPLICIT\n{LINE}\n{LINE}\n", "more than once: demo"),
        (f"@EXPLICIT\n{LINE.replace('linux-64', 'osx-arm64')}\n", "packages for osx-arm64"),
        (f"@EXPLICIT\n{LINE}\n{LINE.replace('demo', 'more').replace('linux-64', 'win-64')}\n", "linux-64, win-64"),
        (f"# envsolve: {{\n@EXPLICIT\n{LINE}\n", "the line that envsolve wrote into the lock cannot be read"),
        (f'# envsolve: {{"schema": "envsolve.lock/9"}}\n@EXPLICIT\n{LINE}\n', "cannot be read"),
        ("@EXPLICIT\nhttps://me:secret@example.org/x\n", r"'https://example.org/x' is not the URL"),
    ],
)
def test_what_is_no_such_lock_is_refused_with_what_to_do(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read_conda_lock(written(tmp_path, text))
    assert caught.value.hint


def test_the_forms_of_a_line_and_what_is_assumed_of_the_machine(tmp_path: Path) -> None:
    python = LINE.replace("demo-1.0", "python-3.13.1").replace("sha256:", "")  # a bare digest, as conda writes it
    old = LINE.replace("demo", "_old-name").replace(".conda", ".tar.bz2").replace(f"sha256:{DIGEST}", WEAK)
    lock = read_conda_lock(written(tmp_path, f"@EXPLICIT\n{LINE}\n\n{python}\n  {old}  \n"))
    assert [(file.name, file.version, dict(file.hashes)) for file in lock.files] == [
        ("demo", "1.0", {"sha256": DIGEST}),
        ("python", "3.13.1", {"sha256": DIGEST}),
        ("_old-name", "1.0", {"md5": WEAK}),
    ]
    assert (lock.subdir, lock.python) == ("linux-64", "3.13")
    assert (lock.assumptions.os, lock.assumptions.arch) == ("linux", "x86_64")


def test_options_that_the_lock_has_settled(tmp_path: Path) -> None:
    lock = written(tmp_path, f"@EXPLICIT\n{LINE.replace('demo-1.0', 'python-3.13.1')}\n")
    with pytest.raises(ImpossibleError, match=r"is for Python 3\.13, not 3\.12"):
        install(lock, tmp_path / "env", python="3.12")
    with pytest.raises(UsageError, match="has no groups: dev"):
        install(lock, tmp_path / "env", groups=["dev"])
    with pytest.raises(UsageError, match="pip does not install conda packages"):
        install(lock, tmp_path / "env", manager="pip")


@given(st.binary(max_size=80).map(lambda data: b"@EXPLICIT\n" + data))
def test_whatever_stands_in_a_lock_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.lock"
    path.write_bytes(data)
    with pytest.raises(EnvsolveError):
        read_conda_lock(path)

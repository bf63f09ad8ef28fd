"""What an index may send without stopping a plan, filling the memory or holding its reader."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from envsolve.errors import EnvsolveError, IndexUnavailableError
from envsolve.machine.model import Machine, Platform
from envsolve.packages.archives import sdist_metadata
from envsolve.packages.client import IndexClient
from envsolve.packages.links import hashed
from envsolve.packages.model import (
    CoreMetadata,
    IndexFile,
    is_archive,
    is_file_of,
    read_version,
    requirement_text,
    specifier_text,
)
from envsolve.packages.pages import PageError, read_page
from envsolve.packages.settings import IndexSettings
from envsolve.rules.platform import environments_of
from envsolve.system import limits
from envsolve.system.limits import LimitError, joined
from tests.distributions import make_wheel

_PLACE = ("text/html", "https://h/simple/demo/", "https://h/simple", "demo")


@pytest.mark.parametrize(
    "part",
    [b"<a ", b"<![", b"<!--", b'<a x="', b"<a x='", b'<a ">', b'"> "', b"<a x=", b"<a =  ", b"</", b"<?"],
)
@pytest.mark.parametrize("end", [b"", b">", b'">', b"-->"])
def test_a_page_is_read_in_linear_time(part: bytes, end: bytes) -> None:
    """html.parser took 29 s for 40 kB of tags that do not end, and failed on unknown declarations."""
    started = time.process_time()
    with suppress(PageError):
        read_page(part * 100_000 + end, *_PLACE)
    assert time.process_time() - started < 5


def test_a_link_with_quoted_and_escaped_values_is_read() -> None:
    page = b"""<!-- <a href="no-1.0.tar.gz"> --><A class=x HREF='demo-1.0-py3-none-any.whl#sha256=aa'
        data-requires-python=">=3.8" data-yanked>demo</a><a href=demo-2.0.tar.gz data-requires-python='&gt;=3.9'>"""
    found = list(read_page(page, *_PLACE))
    assert [(file.filename, file.requires_python, file.yanked) for file in found] == [
        ("demo-1.0-py3-none-any.whl", ">=3.8", ""),
        ("demo-2.0.tar.gz", ">=3.9", None),
    ]


@pytest.mark.parametrize(
    "tags",
    ["--any", "py3..py2-none-any", "-".join(".".join(f"{c}{i}" for i in range(300)) for c in "abc")],
)
def test_a_wheel_with_odd_tags_does_not_run_anywhere(tags: str) -> None:
    environment = environments_of([Machine(platform=Platform(os="linux", arch="x86_64", libc="glibc 2.35"))], "3.11")[0]
    assert environment.rank(f"demo-2.0-{tags}.whl") is None
    assert environment.rank("demo-2.0-py3-none-any.whl") is not None


def test_numbers_that_python_does_not_convert_are_left_out() -> None:
    digits = "9" * 5000
    assert read_version(digits) is None
    assert specifier_text(f">={digits}") is None
    assert requirement_text(f"x>={digits}") is None
    assert not is_archive(f"demo-{digits}-py3-none-any.whl")


def _endless() -> Iterator[bytes]:
    while True:
        yield b" " * 2**20


def test_a_requirement_with_control_characters_is_left_out() -> None:
    """Its URL would carry them into every lock and requirements file."""
    assert requirement_text("demo @ https://h/demo-1.0-py3-none-any.whl?\x1b]0;pwned\x07") is None
    assert requirement_text("demo>=1.0 \r") == "demo>=1.0"


def test_a_body_without_end_is_left_at_the_limit() -> None:
    with pytest.raises(LimitError, match="larger than 16 MiB"):
        joined(_endless(), limits.METADATA_BYTES, "it")


def test_an_sdist_of_zeros_is_left_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envsolve.packages.archives.SDIST_BYTES", 2**20)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("demo-1.0/zeros")
        member.size = 2**22
        tar.addfile(member, io.BytesIO(bytes(2**22)))
    archive.seek(0)
    with pytest.raises(LimitError, match=r"more than 1 MiB of demo-1\.0\.tar\.gz"):
        sdist_metadata(archive, "demo-1.0.tar.gz")


def test_an_sdist_that_is_not_compressed_by_its_name_is_a_damaged_archive() -> None:
    with pytest.raises(ValueError, match="cannot be decompressed"):
        sdist_metadata(io.BytesIO(b"x" * 1000), "demo-1.0.tar.gz")
    with pytest.raises((ValueError, tarfile.TarError)):
        sdist_metadata(io.BytesIO(gzip.compress(b"x" * 1000)), "demo-1.0.tar.gz")


@pytest.mark.parametrize(("said", "same"), [("2.0", True), ("2.0.0", True), ("2.0+local", True), ("9.9", False)])
def test_metadata_of_another_version_is_told_apart(said: str, same: bool) -> None:
    assert is_file_of("demo-2.0-py3-none-any.whl", CoreMetadata("demo", said)) is same


def _local(directory: Path, **more: Any) -> IndexClient:
    return IndexClient(IndexSettings((directory / "index").as_uri(), **more), use_cache=False)


def test_pipes_devices_and_loops_on_this_machine_are_not_waited_for(tmp_path: Path) -> None:
    """A pipe held the reader for ever, and /dev/zero filled the memory."""
    names = [f"demo-{number}.0-py3-none-any.whl" for number in range(4)]
    os.mkfifo(tmp_path / names[0])
    (tmp_path / names[1]).symlink_to("/dev/zero")
    (tmp_path / names[2]).symlink_to(tmp_path / names[2])
    (tmp_path / names[3]).write_bytes(make_wheel("demo", "3.0"))
    project = tmp_path / "index" / "demo"
    project.mkdir(parents=True)
    with _local(tmp_path, links=(tmp_path.as_uri(),), no_index=True) as client:
        assert [file.filename for file in client.linked("demo")] == [names[3]]
    for name in names[:3]:
        with _local(tmp_path) as client, pytest.raises(EnvsolveError):
            client.metadata(IndexFile(name, (tmp_path / name).as_uri(), "", metadata_hashes={}))
        with pytest.raises(EnvsolveError):
            hashed(IndexFile(name, (tmp_path / name).as_uri(), ""))
    os.mkfifo(project / "index.html")
    with _local(tmp_path) as client, pytest.raises(IndexUnavailableError):
        client.project("demo")

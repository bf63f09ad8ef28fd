"""Metadata of files: siblings, ranged reads, source archives; and what is wrong with some of them."""

from __future__ import annotations

import io
import tarfile
import zipfile

import pytest

from envsolve.errors import IndexUnavailableError
from envsolve.packages.archives import sdist_metadata
from envsolve.packages.model import CoreMetadata, MetadataUnavailableError, MissingFileError
from tests.distributions import make_metadata, make_wheel
from tests.indexserver import IndexServer
from tests.packages.conftest import MakeClient

BULK = {f"demo/data{n}.bin": bytes([n]) * 300_000 for n in range(20)}


def test_the_sibling_is_read_where_it_is_offered(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["a"], requires_python=">=3.8", extras=["x"])
    client = make_client(index)
    metadata = client.metadata(client.project("demo")[0])
    assert metadata == CoreMetadata("demo", "1.0", ("a",), ">=3.8", ("x",))
    assert [r.path.rpartition("/")[2] for r in server.requests[1:]] == ["demo-1.0-py3-none-any.whl.metadata"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_wheel_is_read_where_there_is_no_sibling(server: IndexServer, make_client: MakeClient, ranges: bool) -> None:
    index = server.index(metadata=False, ranges=ranges)
    index.wheel("demo", "1.0", requires=["a"])
    client = make_client(index)
    assert client.metadata(client.project("demo")[0]).requires_dist == ("a",)
    assert server.asked("/simple/-files/") == 1


def test_a_sibling_that_is_not_there_is_no_loss(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0", requires=["a"])
    server.fault("/simple/-files/demo-1.0-py3-none-any.whl.metadata", status=404)
    client = make_client(index)
    assert client.metadata(client.project("demo")[0]).requires_dist == ("a",)


def test_a_sibling_with_another_hash_is_refused(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    index.wheel("demo", "1.0")
    forged = make_metadata("demo", "1.0", requires=["evil"])
    server.fault("/simple/-files/demo-1.0-py3-none-any.whl.metadata", status=200, body=forged)
    client = make_client(index)
    with pytest.raises(MetadataUnavailableError, match="sha256 of its"):
        client.metadata(client.project("demo")[0])


def test_metadata_is_kept_for_ever(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(metadata=False)
    index.wheel("demo", "1.0", requires=["a"])
    index.sdist("demo", "0.9", requires=["b"])
    client = make_client(index)
    files = client.project("demo")
    cold = [client.metadata(f) for f in files]
    asked = len(server.requests)
    client = make_client(index)
    assert [client.metadata(f) for f in files] == cold
    assert len(server.requests) == asked


@pytest.mark.parametrize(
    ("options", "requires", "exact"),
    [
        ({"requires": ["a"]}, ("a",), True),
        ({"requires": ["a"], "dynamic": ["Requires-Dist"]}, ("a",), False),
        ({"metadata_version": "2.1", "requires_txt": "b\n[:python_version < '3']\nc\n"}, ("b", "c ; "), False),
        ({"metadata_version": "1.1"}, (), False),
    ],
)
def test_source_archives(
    server: IndexServer, make_client: MakeClient, options: dict[str, object], requires: tuple[str, ...], exact: bool
) -> None:
    index = server.index()
    index.sdist("demo", "1.0", **options)  # type: ignore[arg-type]
    client = make_client(index)
    metadata = client.metadata(client.project("demo")[0])
    assert metadata.exact is exact
    assert len(metadata.requires_dist) == len(requires)
    assert all(line.startswith(start) for line, start in zip(metadata.requires_dist, requires, strict=True))


def test_a_zip_source_archive(server: IndexServer, make_client: MakeClient) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("demo-1.0/setup.py", "")
        archive.writestr("demo-1.0/tests/data/PKG-INFO", "Metadata-Version: 2.2\nName: wrong\nVersion: 9\n")
        archive.writestr("demo-1.0/PKG-INFO", make_metadata("demo", "1.0", requires=["a"], metadata_version="2.2"))
    index = server.index()
    index.add("demo", "demo-1.0.zip", buffer.getvalue())
    client = make_client(index)
    assert client.metadata(client.project("demo")[0]) == CoreMetadata("demo", "1.0", ("a",))


def test_a_source_archive_without_a_directory_of_its_own() -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        text = make_metadata("demo", "1.0", requires=["a"], metadata_version="2.2")
        text = text if isinstance(text, bytes) else text.encode()
        member = tarfile.TarInfo("PKG-INFO")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    content.seek(0)
    assert sdist_metadata(content, "demo-1.0.tar.gz") == CoreMetadata("demo", "1.0", ("a",))


def test_a_vendored_dist_info_is_not_taken_for_the_wheels_own(server: IndexServer, make_client: MakeClient) -> None:
    other = {"aaa-1.dist-info/METADATA": make_metadata("aaa", "1", requires=["wrong"])}
    index = server.index(metadata=False)
    index.add("demo", "Demo-1.0-py3-none-any.whl", make_wheel("demo", "1.0", requires=["right"], files=other))
    client = make_client(index)
    assert client.metadata(client.project("demo")[0]).requires_dist == ("right",)


def test_of_an_archive_with_only_a_setup_py_the_dependencies_are_not_known() -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("Demo-1.0/setup.py", "from setuptools import setup\nsetup(install_requires=['lib'])\n")
    metadata = sdist_metadata(content, "Demo-1.0.zip")
    assert (metadata.name, metadata.version, metadata.requires_dist, metadata.exact) == ("demo", "1.0", (), False)


@pytest.mark.parametrize(
    ("filename", "content", "reason"),
    [
        ("demo-1.0-py3-none-any.whl", b"no zip" * 50, "no usable metadata"),
        ("demo-1.0-py3-none-any.whl", make_wheel("demo", "1.0")[:-30], "no usable metadata"),
        ("demo-1.0-py3-none-any.whl", make_wheel("evil", "1.0"), "is for evil"),
        ("demo-1.0.tar.gz", b"no archive" * 50, "no usable metadata"),
        ("demo-1.0.tar.gz", b"", "no usable metadata"),
        ("demo-1.0.zip", b"PK\x05\x06" + bytes(18), "contains no PKG-INFO"),
    ],
)
def test_files_that_are_not_what_they_say(
    server: IndexServer, make_client: MakeClient, filename: str, content: bytes, reason: str
) -> None:
    index = server.index(metadata=False)
    index.add("demo", filename, content)
    client = make_client(index)
    with pytest.raises(MetadataUnavailableError, match=reason):
        client.metadata(client.project("demo")[0])


@pytest.mark.parametrize("filename", ["demo-1.0-py3-none-any.whl", "demo-1.0.tar.gz"])
def test_a_listed_file_that_is_gone(server: IndexServer, make_client: MakeClient, filename: str) -> None:
    index = server.index(metadata=False)
    index.add("demo", filename, b"x")
    server.fault("/simple/-files/", status=404)
    client = make_client(index)
    with pytest.raises(MissingFileError, match="does not have the file"):
        client.metadata(client.project("demo")[0])


def test_members_of_a_large_wheel_are_read_in_few_requests(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    content = make_wheel("demo", "1.0", files=BULK, compression=zipfile.ZIP_STORED)
    index.add("demo", "demo-1.0-py3-none-any.whl", content)
    client = make_client(index)
    with client.open(client.project("demo")[0]) as opened, zipfile.ZipFile(opened) as archive:
        asked = len(server.requests)
        assert asked == 2  # the page, the tail
        assert archive.read("demo/data7.bin") == BULK["demo/data7.bin"]
        assert len(server.requests) - asked <= 2
        with archive.open("demo/data12.bin") as member:
            pieces = iter(lambda: member.read(10_000), b"")
            assert b"".join(pieces) == BULK["demo/data12.bin"]
        assert len(server.requests) - asked <= 7
        assert archive.read("demo-1.0.dist-info/METADATA").startswith(b"Metadata-Version")
        assert getattr(opened, "transferred", 0) < len(content) / 3


def test_every_byte_of_a_ranged_file_is_the_files_own(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    content = make_wheel("demo", "1.0", files=BULK, compression=zipfile.ZIP_STORED)
    index.add("demo", "demo-1.0-py3-none-any.whl", content)
    client = make_client(index)
    with client.open(client.project("demo")[0]) as opened:
        size = len(content)
        assert opened.seek(0, io.SEEK_END) == size
        assert opened.read() == b""
        for start, count in [(size - 70_000, 30_000), (0, 1), (65_530, 20), (1_000_000, 999_999), (5, size), (size, 5)]:
            opened.seek(start)
            assert opened.read(count) == content[start : start + count]
            assert opened.tell() == min(start + count, size)
        opened.seek(-4, io.SEEK_END)
        assert opened.read(-1) == content[-4:]
        with pytest.raises(OSError, match="before the start"):
            opened.seek(-1)
        opened.seek(10)
        buffer = bytearray(6)
        assert opened.readinto(buffer) == 6  # type: ignore[attr-defined]
        assert buffer == content[10:16]
        assert not opened.writable()


def test_a_host_without_ranges_is_downloaded_from_once(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(ranges=False)
    content = make_wheel("demo", "1.0", files=BULK)
    index.add("demo", "demo-1.0-py3-none-any.whl", content)
    client = make_client(index)
    with client.open(client.project("demo")[0]) as opened, zipfile.ZipFile(opened) as archive:
        assert archive.read("demo/data3.bin") == BULK["demo/data3.bin"]
        assert archive.testzip() is None
    assert server.asked("/simple/-files/") == 1


def test_broken_range_answers(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index(metadata=False)
    index.add("demo", "demo-1.0-py3-none-any.whl", make_wheel("demo", "1.0", files=BULK))
    client = make_client(index, retries=1)
    [file] = client.project("demo")
    for headers in ({}, {"Content-Range": "bytes 0-1/x"}, {"Content-Range": "bytes 0-99/1000"}):
        server.faults.clear()
        server.fault("/simple/-files/", status=206, body=b"ab", headers=headers)
        with pytest.raises(IndexUnavailableError):
            client.open(file)


def test_a_file_that_changes_while_it_is_read(server: IndexServer, make_client: MakeClient) -> None:
    index = server.index()
    entry = index.add("demo", "demo-1.0-py3-none-any.whl", bytes(1_000_000))
    client = make_client(index)
    with client.open(client.project("demo")[0]) as opened:
        entry.content = bytes(900_000)
        with pytest.raises(IndexUnavailableError, match="changed while it was read"):
            opened.read(10)

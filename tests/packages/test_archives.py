"""Members found by the bytes of a table of contents are those that zipfile finds."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.packages.archives import members_ending

SUFFIX = ".dist-info/METADATA"
NAMES = st.sampled_from(
    [
        f"demo-1.0{SUFFIX}",
        f"dêmo-1.0{SUFFIX}",
        f"vendor/other-2{SUFFIX}",
        f"demo-1.0{SUFFIX}.txt",
        f"demo-1.0{SUFFIX}/x",
        "demo/PK\x01\x02.py",
        "demo/__init__.py",
    ]
)


def archive(contents: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as writer:
        for name, content in contents.items():
            writer.writestr(name, content)
    return buffer.getvalue()


@given(
    st.dictionaries(NAMES, st.binary(max_size=400)),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    st.sampled_from([b"", b"#!/bin/sh\n"]),
    st.sampled_from([b"", b"a comment", b"PK\x05\x06" + bytes(18)]),
)
def test_as_zipfile_has_it(contents: dict[str, bytes], compression: int, front: bytes, comment: bytes) -> None:
    buffer = io.BytesIO(front + archive(contents, compression))
    with zipfile.ZipFile(buffer, "a") as writer:
        writer.comment = comment
    with zipfile.ZipFile(buffer) as reader:
        expected = {name: reader.read(name) for name in reader.namelist() if name.endswith(SUFFIX)}
    assert {member.name: member.read(buffer) for member in members_ending(buffer, SUFFIX)} == expected


def test_what_is_ordinary_takes_no_zipfile(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO(archive({f"demo-1.0{SUFFIX}": b"Name: demo", "demo.py": b""}))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    [member] = members_ending(buffer, SUFFIX)
    assert member.read(buffer) == b"Name: demo"


@pytest.mark.parametrize("damage", [40, 60, 70])
def test_damage_is_noticed(damage: int) -> None:
    content = bytearray(archive({f"demo-1.0{SUFFIX}": bytes(range(200))}, zipfile.ZIP_STORED))
    content[0 if damage == 40 else damage + 30] ^= 0xFF
    buffer = io.BytesIO(bytes(content))
    [member] = members_ending(buffer, SUFFIX)
    with pytest.raises(zipfile.BadZipFile):
        member.read(buffer)

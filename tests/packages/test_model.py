"""Core metadata and setuptools' requires.txt, of today and of long ago."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from envsolve.packages.model import CoreMetadata, parse_metadata, requirement_text, specifier_text
from envsolve.packages.sdists import parse_requires_txt


def test_what_a_resolver_needs() -> None:
    text = b"""Metadata-Version: 2.1
Name: Demo_Pkg
Version: 1.0+cu126
Requires-Python: >=3.9
Provides-Extra: gpu
Requires-Dist: other >=1 ; extra == 'gpu'
Requires-Dist: plain

Requires-Dist: not-this-one
"""
    assert parse_metadata(text) == CoreMetadata(
        name="Demo_Pkg",
        version="1.0+cu126",
        requires_dist=("other >=1 ; extra == 'gpu'", "plain"),
        requires_python=">=3.9",
        provides_extra=("gpu",),
    )


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("foo (>=1.0)", "foo (>=1.0)"),
        ("foo (>=1.0.*)", "foo (>=1.0)"),
        ("foo >=1.0.*,<2.*", "foo >=1.0,<2"),
        ("foo ==1.0.*", "foo ==1.0.*"),
        ("foo >=1.0,", "foo >=1.0,"),
        ("foo @ https://x.test/foo.whl", "foo @ https://x.test/foo.whl"),
        ("foo >=1.0\n ; python_version < '3'", "foo >=1.0 ; python_version < '3'"),
        ("foo >=banana", None),
        ("", None),
    ],
)
def test_old_requirement_lines(line: str, read: str | None) -> None:
    assert requirement_text(line) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (">=3.6", ">=3.6"),
        (">=3.6.*", ">=3.6"),
        ("!=3.0.*,>=2.7", "!=3.0.*,>=2.7"),
        ("3", None),
        ("", None),
        (None, None),
    ],
)
def test_old_requires_python(text: str | None, read: str | None) -> None:
    assert specifier_text(text) == read


def test_one_bad_line_does_not_take_the_others_along() -> None:
    text = b"Metadata-Version: 1.2\nName: x\nVersion: 1\nRequires-Dist: ???\nRequires-Dist: good\n"
    assert parse_metadata(text).requires_dist == ("good",)


def test_a_field_in_another_encoding_is_still_read() -> None:
    text = b"Metadata-Version: 2.1\nName: x\nVersion: 1\nAuthor: Andr\xe9\nRequires-Dist: a\nRequires-Dist: b\xe9\n"
    assert parse_metadata(text).requires_dist == ("a",)


@pytest.mark.parametrize("text", [b"", b"Name: x\n", b"Version: 1\n", b"<html>not found</html>"])
def test_what_is_no_metadata(text: bytes) -> None:
    with pytest.raises(ValueError, match="has no project name"):
        parse_metadata(text)


@pytest.mark.parametrize(
    ("version", "dynamic", "exact"),
    [
        ("2.1", "", False),
        ("1.0", "", False),
        ("2.2", "", True),
        ("2.10", "", True),
        ("2.2", "Dynamic: Requires-Dist\n", False),
        ("2.2", "Dynamic: requires-dist\n", False),
        ("2.2", "Dynamic: Description\n", True),
    ],
)
def test_which_source_archives_are_exact(version: str, dynamic: str, exact: bool) -> None:
    text = f"Metadata-Version: {version}\nName: x\nVersion: 1\n{dynamic}".encode()
    assert parse_metadata(text, sdist=True).exact is exact
    assert parse_metadata(text).exact is True


def test_requires_txt() -> None:
    lines, extras = parse_requires_txt(
        "six>=1\n\n[:python_version < '3']\nenum34\n\n[gpu]\ntorch\n\n[gpu:sys_platform == 'linux']\ntriton>=2\n"
    )
    assert [str(Requirement(line)) for line in lines] == [
        "six>=1",
        'enum34; python_version < "3"',
        'torch; extra == "gpu"',
        'triton>=2; sys_platform == "linux" and extra == "gpu"',
    ]
    assert extras == ("gpu",)


@given(st.binary())
def test_any_bytes_are_metadata_or_a_value_error(text: bytes) -> None:
    try:
        parsed = parse_metadata(b"Metadata-Version: 2.1\nName: x\nVersion: 1\n" + text)
    except ValueError:
        return
    for line in parsed.requires_dist:
        Requirement(line)


@given(st.text())
def test_any_requires_txt_gives_readable_lines(text: str) -> None:
    for line in parse_requires_txt(text)[0]:
        Requirement(line)

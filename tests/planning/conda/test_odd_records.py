"""One odd record of a channel is left out of a plan, and ends none."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import envsolve
from envsolve import Request
from envsolve.errors import IndexUnavailableError

GOOD, ODD = "foo-1.0-0.conda", "foo-2.0-0.conda"


def record(name: str, version: str, **fields: object) -> dict[str, object]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return {
        "name": name,
        "version": version,
        "build": "0",
        "build_number": 0,
        "depends": [],
        "subdir": "linux-64",
        "sha256": digest,
        "size": 10,
        **fields,
    }


def planned(folder: Path, records: Mapping[str, object]) -> dict[str, str]:
    """The versions that are planned from a channel of these records."""
    python = record("python", "3.12.1", build="0_cpython")
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True)
        listed = {"python-3.12.1-0_cpython.conda": python, **records} if subdir == "linux-64" else {}
        index = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": listed, "repodata_version": 1}
        (folder / subdir / "repodata.json").write_text(json.dumps(index))
    machine = envsolve.describe_target("H100, driver 580.65.06, python 3.12, linux-x86_64, glibc 2.35")
    made = envsolve.plan(Request(("foo",), manager="conda", channels=[folder.as_uri()]), [machine])
    return {package.name: package.version for package in made.packages}


RECORDS = {
    "a version": record("foo", "2..0!!"),
    "a dependency": record("foo", "2.0", depends=[1]),
    "no record": 7,
    "null": None,
    "no name": {"version": "2.0"},
    "a negative size": record("foo", "2.0", size=-1),
    "a size of thirty digits": record("foo", "2.0", size=10**30),
    "a hash": record("foo", "2.0", sha256="zz"),
    "a time": record("foo", "2.0", timestamp="soon"),
    "a build number": record("foo", "2.0", build_number=-5),
    "a purl": record("foo", "2.0", purls=["nonsense"]),
}


@pytest.mark.parametrize("what", RECORDS)
def test_an_odd_record_is_left_out(what: str, tmp_path: Path) -> None:
    found = planned(tmp_path / "channel", {GOOD: record("foo", "1.0"), ODD: RECORDS[what]})
    assert found == {"foo": "1.0", "python": "3.12.1"}


@pytest.mark.parametrize("filename", ["foo-2.0-0\x1b[31m.conda", "foo-2.0-0\n.conda", 'foo-2.0-"0".conda'])
def test_an_odd_name_of_a_file_is_left_out(filename: str, tmp_path: Path) -> None:
    found = planned(tmp_path / "channel", {GOOD: record("foo", "1.0"), filename: record("foo", "2.0")})
    assert found["foo"] == "1.0"


def test_an_odd_record_of_another_name_changes_nothing(tmp_path: Path) -> None:
    records = {GOOD: record("foo", "1.0"), "bar-1-0.conda": record("bar", "?? !"), ODD: record("foo", "2.0")}
    assert planned(tmp_path / "channel", records)["foo"] == "2.0"


def test_many_records_with_odd_ones_among_them(tmp_path: Path) -> None:
    records = {f"foo-1.{n}-0.conda": record("foo", f"1.{n}") for n in range(100)}
    records |= {f"foo-2.{n}-0.conda": record("foo", f"2.{n} odd") for n in range(30)}
    assert planned(tmp_path / "channel", records)["foo"] == "1.99"


def test_an_index_that_is_none_is_the_channel_s_failure(tmp_path: Path) -> None:
    channel = tmp_path / "channel"
    planned(channel, {GOOD: record("foo", "1.0")})
    (channel / "linux-64" / "repodata.json").write_text('{"packages": [')
    machine = envsolve.describe_target("H100, driver 580.65.06, python 3.12, linux-x86_64, glibc 2.35")
    with pytest.raises(IndexUnavailableError, match="could not be read"):
        envsolve.plan(Request(("foo",), manager="conda", channels=[channel.as_uri()]), [machine])

"""The facts that ``envsolve index show`` finds, and how it says them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from envsolve.cli.main import run
from envsolve.errors import UsageError
from envsolve.facts.builds import Build, FileFact
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Citation, Dispute, Evidence, Source
from envsolve.facts.files import BUILDS, KINDS
from envsolve.facts.maintain.lookup import Facts, describe_facts, find_facts
from envsolve.facts.maintain.summary import describe_summary, summarize

CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("words", "kind", "found"),
    [
        ("torch 2.9.1 cu126 win_amd64", "builds", {"win_amd64"}),
        ("triton 3.6.0", "tritons", {"3.6.0"}),
        ("driver 580", "drivers", {"580"}),
        ("driver 580.95.05", "drivers", {"580"}),
        ("gpu RTX 4090", "gpus", {"NVIDIA GeForce RTX 4090"}),
        ("GPU rtx4090", "gpus", {"NVIDIA GeForce RTX 4090"}),
        ("toolkit 12.8", "toolkits", {"12.8"}),
        ("toolkits 12.8.93", "toolkits", {"12.8"}),
        ("architecture 8.9", "architectures", {"8.9"}),
        ("image 12.9.1-cudnn-devel-ubuntu22.04", "images", {"12.9.1"}),
        ("conda pytorch 2.9.1 win-64", "conda", {"2.9.1"}),
        ("index pytorch", "indexes", {"pytorch"}),
        ("torch 2.9.1+cu128 win_amd64", "builds", {"win_amd64"}),
        ("architecture sm_90", "architectures", {"9.0"}),
        ("deepspeed", "source_projects", {"deepspeed"}),
        ("image-requirement 12.9.1", "image_requirements", {"12.9.1"}),
    ],
)
def test_things_are_found_as_people_name_them(words: str, kind: str, found: set[str]) -> None:
    what, *which = words.split()
    facts = find_facts(CATALOGUE, what, which)
    key = {"builds": "platform", "images": "version", "conda": "version"}.get(kind) or KINDS[kind].key[0]
    assert {getattr(record, key) for record in facts.records[kind]} == found
    assert facts.sources


def test_a_package_that_is_a_kind_too_is_shown_as_both() -> None:
    assert set(find_facts(CATALOGUE, "triton", ["3.6.0"]).records) == {"builds", "tritons"}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("quux", "architecture, "),
        ("", "architecture, "),
        ("tortch", "did you mean torch, "),
        ("jax", "did you mean jax-cuda12-pjrt, "),
        ("deepspeed 0.1", "it describes deepspeed >="),
        ("deepspeed newest", "it describes deepspeed >="),
        ("torch 2.9.9", "it describes 1.7.0, "),
        ("torch 2.9.1 cu999", "2.9.1 exists as cpu, cu126"),
        ("gpu RTX 4099", "did you mean RTX 4090"),
        ("driver 999", "it describes "),
    ],
)
def test_what_is_not_known_is_told_with_what_is(words: str, hint: str) -> None:
    what, *which = words.split() or [""]
    with pytest.raises(UsageError) as failure:
        find_facts(CATALOGUE, what, which)
    assert hint in str(failure.value.hint)


def test_every_kind_can_be_asked_for() -> None:
    for kind in KINDS.values():
        if kind is not BUILDS and CATALOGUE.has(kind):
            assert find_facts(CATALOGUE, kind.name, []).records[kind.name]


BUILD = Build(
    "torch",
    "2.9.1",
    "cu128",
    "manylinux_2_28_x86_64",
    ("cp310", "cp311", "cp312", "cp313t"),
    "pytorch",
    Evidence.PUBLISHED,
    "page",
    local="+cu128",
    code=("sm_75", "compute_90"),
    cuda="12.8",
    cxx11_abi=True,
    requires=("triton==3.5.1; sys_platform == 'linux'", "pytest; extra == 'test'"),
    files={"cp310": FileFact("a" * 64, 5, ("lock",)), "cp311": FileFact("b" * 64)},
    cited={"code": Citation(Evidence.DOCUMENTED, "script")},
    disputed=(Dispute("code", "sm_70 too", Evidence.INFERRED, "post", "a script beats a post"),),
)
SOURCES = {
    name: Source(f"The {name}", "2026-01-02", f"https://example.org/{name}") for name in ("lock", "page", "post")
}
FACTS = Facts({"builds": (BUILD,)}, {**SOURCES, "script": Source("The script", "2026-01-03")})


def test_a_build_in_words() -> None:
    table, rest = describe_facts(FACTS, requires=True).split("\n\n", 1)
    header, row = (re.split("  +", line) for line in table.splitlines())
    assert dict(zip(header, row, strict=True)) == {
        "build": "torch 2.9.1+cu128",
        "variant": "cu128",
        "index": "pytorch",
        "platform": "manylinux_2_28_x86_64",
        "Pythons": "3.10-3.12 cp313t",
        "C++11 ABI": "yes",
        "triton": "==3.5.1",
        "sha256": "2 of 4, 1 by one source",
        "known": "published",
    }
    assert (
        rest
        == """\
torch 2.9.1+cu128, cu128, manylinux_2_28_x86_64, pytorch index
  pythons    cp310 cp311 cp312 cp313t  (published [2])
  code       sm_75 compute_90  (documented [4])
  cuda       12.8  (published [2])
  cxx11 abi  yes  (published [2])
  requires
    triton==3.5.1; sys_platform == 'linux'
    pytest; extra == 'test'
  sha256 cp310  {a}  listed by [1] alone
  sha256 cp311  {b}
  disputed: code: (inferred [3]) says sm_70 too
    the value above is used: a script beats a post

Sources
  [1] 2026-01-02  The lock  https://example.org/lock
  [2] 2026-01-02  The page  https://example.org/page
  [3] 2026-01-02  The post  https://example.org/post
  [4] 2026-01-03  The script
""".format(a="a" * 64, b="b" * 64)
    )


def test_many_records_are_a_list() -> None:
    text = describe_facts(find_facts(CATALOGUE, "torch", []))
    assert "requires python" not in text
    assert text.count("\n") < len(CATALOGUE.builds("torch")) + 40


def test_the_summary_counts_every_record_once() -> None:
    summary = summarize(CATALOGUE)
    rows = {row.name: row for row in summary.rows}
    assert rows["builds of torch"].records == len(CATALOGUE.builds("torch"))
    assert rows["gpus"].records == len(CATALOGUE.gpus)
    assert all(sum(row.evidence.values()) == row.records for row in summary.rows)
    torch = next(hashes for hashes in summary.hashes if hashes.package == "torch")
    assert torch.files >= torch.hashed >= torch.one_source
    text = describe_summary(summary)
    assert re.search(rf"(?m)^drivers +{len(CATALOGUE.drivers)} ", text)
    assert f"The newest fact about torch is dated {CATALOGUE.date}." in text


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as left:
        run(["index", "show", *words])
    return left.value.code, capsys.readouterr().out


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = shown(capsys, "driver", "580", "--format", "json")
    assert code == 0
    assert json.loads(out)["drivers"][0]["branch"] == "580"
    assert json.loads(out)["sources"]
    assert shown(capsys, "gpu", "RTX 4090")[1].startswith("gpu NVIDIA GeForce RTX 4090\n")
    assert shown(capsys)[1].startswith("facts ")
    assert json.loads(shown(capsys, "--format", "json")[1])["schema"] == "envsolve.facts-summary/1"
    assert shown(capsys, "torch", "0.1")[0] == 2

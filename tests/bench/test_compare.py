"""What the bench says of choices that differ from those of another tool."""

from __future__ import annotations

import json

import pytest

from bench.compare import differences, refusal


@pytest.mark.parametrize(
    ("fact", "rule"),
    [
        ("no numpy ==1.24.4 has a file for Python 3.12 on this platform; pre-releases apart", "rule 11"),
        ("demo 2.0 requires Python <3.11", "rule 11"),
        ("onnxruntime-gpu 1.31.1 [cu130] installs the files of onnxruntime", "rule 9"),
        ("transformers 5.20.2 is built for torch>=2.6", "compiled_against.json"),
        ("vllm 0.9 needs transformers<4.50", None),
    ],
)
def test_a_refusal_has_the_name_of_its_rule(fact: str, rule: str | None) -> None:
    found = refusal("choosing versions\n" + json.dumps({"conflict": [{"fact": "torch was requested"}, {"fact": fact}]}))
    assert found is None if rule is None else rule in (found or "")
    assert refusal("envsolve: the index failed") is None


def test_an_older_release_that_is_made_for_the_torch_has_a_rule() -> None:
    packages = [
        {"name": "torch", "version": "2.0.1", "requires": []},
        {"name": "transformers", "version": "4.51.3", "requires": ["tokenizers"]},
        {"name": "tokenizers", "version": "0.21.4", "requires": []},
    ]
    found = differences(
        json.dumps({"packages": packages, "toolchain": None}),
        "torch==2.0.1\ntransformers==5.20.2\ntokenizers==0.22.2\n",
    )
    assert {one["package"] for one in found} == {"transformers", "tokenizers"}
    assert all("made for" in (one["rule"] or "") for one in found)

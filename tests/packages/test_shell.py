"""Shell texts split into simple commands; rewriting commands is tested with the grammar, in test_commands.py."""

from __future__ import annotations

import pytest

from envsolve.packages.shell import resolved, simple_commands
from envsolve.system.limits import VARIABLE_LENGTH


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("set -ex; pip install a", ["set -ex", "pip install a"]),
        ("bash -lc 'source /v/bin/activate && pip install a'", ["source /v/bin/activate", "pip install a"]),
        ("/bin/sh -c \"bash -c 'pip install a'\"", ["pip install a"]),
        ("conda run -n x --no-capture-output pip install a", ["pip install a"]),
        ("sudo -H -u me env -u B A=1 pip install a", ["pip install a"]),
        ("timeout 60 pip install a | tee log", ["pip install a", "tee log"]),
        ('if [ -n "$X" ]; then pip install a; fi', ["[ -n $X ]", "pip install a", "fi"]),
        ("pip install torch>=2 2>&1 > log", ["pip install torch"]),  # as a shell takes it: > writes a file
        (
            "pip install 'torch>=2' git+https://h/p#egg=p b  # it's one",
            ["pip install torch>=2 git+https://h/p#egg=p b"],
        ),
        ("# isn't\npip install a", ["pip install a"]),
        ("bash install.sh -c x", ["bash install.sh -c x"]),
        ("W='a b'; pip install $W ${W}c", ["pip install a b a bc"]),
        ("pip install a==`cat v`", ["pip install a==$", "cat v"]),
    ],
)
def test_simple_commands(text: str, words: list[str]) -> None:
    assert [" ".join(found) for found, _ in simple_commands(text, {})] == words


def test_variables_that_double_are_cut_at_the_limit() -> None:
    scope = {"A0": "x" * 10}
    for number in range(1, 60):
        scope[f"A{number}"] = resolved(f"${{A{number - 1}}}${{A{number - 1}}}", scope)
    assert len(scope["A59"]) <= VARIABLE_LENGTH


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("${A:+nvidia/cuda:${A}-devel}", "nvidia/cuda:12.6-devel"),
        ("${B:+nvidia/cuda:${A}-devel}", ""),
        ("${B:-${A}}", "12.6"),
        ("${B:-x$A}", "x12.6"),
        ("${A:-${B}}", "12.6"),
        ("${B:-${C}}", "${C}"),
    ],
)
def test_a_default_may_contain_variables(word: str, value: str) -> None:
    assert resolved(word, {"A": "12.6", "B": ""}) == value

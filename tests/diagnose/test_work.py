"""How much work a large log makes: counted, since seconds depend on the machine."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.diagnose import cause_files, signatures
from envsolve.diagnose.model import Vocabulary
from envsolve.diagnose.report.read import observe, read_report
from envsolve.diagnose.report.text import SAME_SHAPE, Log
from envsolve.facts.catalogue import Catalogue

CATALOGUE = Catalogue()
ERROR = "RuntimeError: CUDA error: no kernel image is available for execution on the device\ntorch==2.9.1+cu128\n"


def build_log(lines: int) -> str:
    command = (
        "[{n}/9000] /usr/local/cuda-12.8/bin/nvcc -I/home/me/.venv/lib/python3.11/site-packages/torch/include "
        "-c kernel_{n}.cu -o build/kernel_{n}.o -gencode arch=compute_90,code=sm_90 -O3 -std=c++17\n"
    )
    return "".join(command.format(n=n) for n in range(lines))


def test_a_message_that_repeats_is_searched_at_both_ends_of_the_repetition() -> None:
    log = Log("nvcc first\n" + "".join(f"step {n}: nvcc 12\n" for n in range(10_000)) + "nvcc last\n")
    numbers = [line.number for line in log.containing("nvcc")]
    assert numbers == [1, *range(2, 2 + SAME_SHAPE), *range(10_002 - SAME_SHAPE, 10_002), 10_002]


def test_lines_that_differ_in_more_than_numbers_are_all_searched() -> None:
    log = Log("\n".join(f"{'ab'[n % 2] * (n // 2 + 1)} nvcc" for n in range(400)))
    assert len(list(log.containing("nvcc"))) == 400


def test_what_readers_see_of_a_build_does_not_grow_with_its_length() -> None:
    short, long = (sum(1 for _ in observe(Log(build_log(n) + ERROR), CATALOGUE)) for n in (200, 4_000))
    assert short == long


def test_a_build_tells_the_same_however_long_it_is() -> None:
    short, long = (read_report(build_log(n) + ERROR, CATALOGUE) for n in (200, 4_000))
    assert short.machine.toolkits == long.machine.toolkits and short.machine.toolkits
    assert short.python and long.python and short.python.value == long.python.value == "3.11"
    assert short.installed["torch"].value == long.installed["torch"].value


def test_patterns_are_tried_only_around_their_words(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: Counter[int] = Counter()
    window = signatures._window

    def counted(text: signatures.Text, position: int) -> str:
        tried[len(text.plain)] += 1
        return window(text, position)

    monkeypatch.setattr(signatures, "_window", counted)
    texts = [f"{'the weather stays fine, and so does the harvest ' * n}\n{ERROR}" for n in (1, 20_000)]
    for text in texts:
        assert signatures.find_matches(text, cause_files.signatures())
    assert tried[len(texts[0])] == tried[len(texts[1])] < 40


def test_most_anchors_need_not_be_looked_for() -> None:
    vocabulary = Vocabulary(build_log(50).lower())
    anchors = [anchor for signature in cause_files.signatures() for anchor in signature.anchors]
    assert sum(vocabulary.allows(anchor) for anchor in anchors) < len(anchors) / 4


@given(st.text(max_size=200), st.text(alphabet="abcz .:=_19/", min_size=1, max_size=12), st.text(max_size=200))
def test_no_word_that_is_there_is_denied(before: str, word: str, after: str) -> None:
    assert Vocabulary((before + word + after).lower()).allows(word)

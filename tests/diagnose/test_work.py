"""How much work a large log makes: counted, since seconds depend on the machine."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.diagnose import cause_files, signatures
from envsolve.diagnose.model import Vocabulary
from envsolve.diagnose.project_fixes import Project, project_of_report
from envsolve.diagnose.report import text as report_text
from envsolve.diagnose.report.read import observe, read_report
from envsolve.diagnose.report.text import SAME_SHAPE, Log, read_log
from envsolve.diagnose.scene import scene_of
from envsolve.facts.catalogue import Catalogue
from envsolve.system.limits import LOG_BYTES, MIB

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


def test_empty_lines_take_no_more_memory_than_their_text() -> None:
    tracemalloc.start()
    log = Log("\n" * 4_000_000 + "nvcc")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [line.number for line in log.lines] == [4_000_001]
    assert peak < 64 * MIB


def test_a_large_log_is_read_at_both_ends_with_its_line_numbers() -> None:
    lines = LOG_BYTES // 100 * 2
    log, size = read_log(BytesIO(b"".join(b"%099d\n" % number for number in range(1, lines + 1)) + b"nvcc"))
    assert size > 2 * LOG_BYTES - MIB and len(log) < LOG_BYTES + lines
    (last,) = Log(log).containing("nvcc")
    assert last.number == lines + 1
    assert log.startswith(f"{1:099d}\n{2:099d}\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_a_large_log_is_not_cut_within_a_character(encoding: str) -> None:
    log, _ = read_log(BytesIO(("\u4e2d nvcc 12\n" * (LOG_BYTES // 8)).encode(encoding)))
    assert set(log[-500:].splitlines()[1:]) == {"\u4e2d nvcc 12"}
    assert log.startswith("\u4e2d nvcc 12\n")


def test_signatures_take_linear_time() -> None:
    digits = "xFormers was built for: PyTorch 2.9.0+cu128 with CUDA 1208 (you have " + "2" * 1110
    names = "404 " + "a.b" * 380
    start = time.thread_time()
    signatures.find_matches("\n\n\n\n".join([digits, names] * 40), cause_files.signatures())
    assert time.thread_time() - start < 3


@pytest.mark.parametrize("line", ["\n", "the weather stays fine, and so does the harvest\n"])
def test_the_project_of_a_large_report_is_found_by_literals(line: str) -> None:
    scene = scene_of(read_report(line * (MIB * 8 // len(line)) + "$ uv sync\n", CATALOGUE), (), CATALOGUE)
    start = time.thread_time()
    assert project_of_report(scene) == Project("uv")
    assert time.thread_time() - start < 0.5


def test_a_log_made_of_all_words_is_not_searched_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_text, "LOG_SECONDS", 0.0)
    log = Log("nvcc\n" * 10)
    assert list(log.containing("nvcc")) == []
    assert len(log.lines) == 10

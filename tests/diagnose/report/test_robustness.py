"""No text crashes or stalls it, and what it says is printable and stands where it says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.diagnose.model import ReportFacts, Seen
from envsolve.diagnose.report.packages import read_installed
from envsolve.diagnose.report.read import read_report
from envsolve.diagnose.report.text import MOST_FOUND, Log, decode
from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.known import parse_machine
from envsolve.system.files import dump
from tests.diagnose.report import samples

CATALOGUE = Catalogue()
SAMPLES = [value for name, value in vars(samples).items() if name.isupper()]
FRAGMENTS = sorted(
    {word for sample in SAMPLES for word in sample.split()} | {"\n", "\t", "|", ":", "==", "\r", "\x1b[0m", "\0"}
)


def facts(report: ReportFacts) -> list[Seen[str]]:
    single = [fact for fact in (report.python, report.cuda, report.nvcc) if fact is not None]
    return [*report.installed.values(), *report.variables.values(), *report.images, *report.commands, *single]


def check(text: str) -> None:
    """What holds of every report, whatever the text."""
    report = read_report(text, CATALOGUE)
    count = text.count("\n") + text.count("\r") + 1
    for fact in facts(report):
        assert fact.quote.isprintable() and len(fact.quote) <= 200
        assert 1 <= int(fact.where.removeprefix("line ")) <= count
    # A machine that was read is one that could have been given.
    assert parse_machine(dump(report.machine).encode()) is not None


@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(" ".join))
def test_scrambled_reports(text: str) -> None:
    check(text)


@given(st.sampled_from(SAMPLES), st.integers(0, 3000), st.integers(0, 200), st.text(max_size=5))
def test_damaged_reports(sample: str, start: int, length: int, other: str) -> None:
    check(sample[:start] + other + sample[start + length :])


@given(st.binary(max_size=2000))
def test_any_bytes_decode(data: bytes) -> None:
    assert isinstance(decode(data), str)


@given(st.text(max_size=300))
def test_any_list_of_packages_is_read_or_refused(text: str) -> None:
    try:
        found = read_installed(text)
    except UsageError:
        return
    assert all(version.value for version in found.values())


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings_of_windows_shells(sample: str, encoding: str) -> None:
    text = sample.replace("\n", "\r\n")
    assert decode(text.encode(encoding)) == text


def test_latin_1_and_damage() -> None:
    assert decode("Größe: 12 Gerät-Namen".encode("latin-1")) == "Größe: 12 Gerät-Namen"
    assert decode(b"torch 2.8.0\n" * 1000 + b"\xff") == "torch 2.8.0\n" * 1000 + "\ufffd"


@pytest.mark.parametrize("sample", SAMPLES)
def test_line_ends_colours_and_quotation_change_nothing(sample: str) -> None:
    plain = read_report(sample, CATALOGUE)
    for changed in (
        sample.replace("\n", "\r\n"),
        "\n".join(f"\x1b[32m{line}\x1b[0m" for line in sample.split("\n")),
        "\n".join(f"> {line}" for line in sample.split("\n")),
        "\n".join(f"2025-05-01T10:00:00.1234567Z {line}" for line in sample.split("\n")),
    ):
        report = read_report(changed, CATALOGUE)
        assert (report.machine, report.cuda, report.arch_list) == (plain.machine, plain.cuda, plain.arch_list)
        assert {name: seen.value for name, seen in report.installed.items()} == {
            name: seen.value for name, seen in plain.installed.items()
        }


def test_no_fact_can_fool_a_terminal() -> None:
    text = (
        "$ pip install a\u202eb\ud800\x07\nFROM x/y:1\x00\nexport CUDA_HOME=/a\x1b[31m/b\u200b\n[pip3] torch==2.8.0\x00"
    )
    report = read_report(text, CATALOGUE)
    assert report.installed["torch"].value == "2.8.0"
    assert report.variables["CUDA_HOME"].value == "/a/b"
    for fact in facts(report):
        assert (fact.value + fact.quote).isprintable()


def test_progress_bars_hide_nothing() -> None:
    report = read_report("Downloading 1%\rDownloading 100%\rSuccessfully installed torch-2.8.0\r\n", CATALOGUE)
    assert report.installed["torch"].value == "2.8.0"
    assert report.installed["torch"].where == "line 1"


def test_lines_are_found_by_word_in_order() -> None:
    log = Log("alpha\nBeta alpha\n\ngamma\nAlpha")
    assert [line.number for line in log.containing("alpha")] == [1, 2, 5]
    assert [line.number for line in log.containing("gamma", "beta")] == [2, 4]
    assert list(log.containing("delta")) == []


def repeated(unit: str) -> Callable[[int], str]:
    return lambda size: unit * (size // len(unit))


HOSTILE = {
    "one line": repeated("GPU torch 2."),
    "spaces": repeated(" " * 1990 + "\n"),
    "bars": repeated("|" * 1990 + "\n"),
    "assignments": repeated("CUDA_X=1 " * 200 + "\n"),
    "equal signs": repeated("A=" * 900 + "\n"),
    "quotes": repeated('"' * 1800 + "=\n"),
    "ticks": repeated("`pip install " * 150 + "\n"),
    "paths": repeated("/usr/local/cuda-12.8/" * 90 + "\n"),
    "cards": repeated("NVIDIA RTX 4090 Ti Super " * 70 + "\n"),
    "versions": repeated("torch 2.0. " * 160 + "\n"),
    "digits": repeated("1.2.3." * 300 + "\n"),
    "names": repeated("torch-2-" * 200 + "\n"),
    "installed": repeated("Successfully installed " + "a-1.0 " * 300 + "\n"),
    "drivers": repeated("driver " * 250 + "CUDA\n"),
    "images": repeated("image a/b/c/d/e " * 110 + "\n"),
    "prompts": repeated("a@b:" * 400 + "\n"),
    "escapes": repeated("\x1b[" * 900 + "\n"),
    "short lines": repeated("a\n"),
    "freeze": repeated("package==1.2\n"),
    "table": repeated("NVIDIA GeForce RTX 4090  1.2\n"),
    "continued": repeated("$ pip \\\n"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_time_grows_in_proportion(kind: str) -> None:
    def seconds(size: int) -> float:
        text = HOSTILE[kind](size)
        start = time.process_time()
        read_report(text, CATALOGUE)
        return time.process_time() - start

    seconds(10_000)
    small, large = seconds(20_000), seconds(160_000)
    # Eight times the text; a quadratic reader would take 64 times as long.
    assert large < 24 * small + 0.2


def test_of_very_many_lines_with_the_words_those_at_the_ends_are_looked_at() -> None:
    log = Log("\n".join(f"torch {'abcdefghij'[n % 10] * (n // 10 + 1)}" for n in range(300)) + "\n")
    assert len(list(log.containing("torch"))) == 300
    many = Log("\n".join(f"torch {n:b}".replace("0", "x").replace("1", "y") for n in range(2 * MOST_FOUND + 7)))
    found = [line.number for line in many.containing("torch")]
    assert (len(found), found[0], found[-1]) == (2 * MOST_FOUND, 1, 2 * MOST_FOUND + 7)

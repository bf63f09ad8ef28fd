"""The error signatures: each matches its example, names what it may, and none can be made slow."""

from __future__ import annotations

import importlib
import re
import runpy
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.diagnose import cause_files
from envsolve.diagnose.cause_files import DIRECTORY, PAGE, Signature, causes, code_of, signatures, with_table
from envsolve.diagnose.signatures import cause_of, find_matches
from envsolve.facts.maintain.lookup import describe_facts
from envsolve.inspection import facts

ROOT = Path(__file__).parents[3]
SIGNATURES = signatures()
CODES = set(causes().files)
#: Characters and pieces that patterns repeat over, so that a pattern with two ways to match them is found out.
HOSTILE = (
    "a",
    " ",
    "_",
    "/",
    ".",
    "-",
    "0",
    "'",
    "=",
    "a ",
    "a.",
    "a/",
    "1.",
    "a=1 ",
    "torch ",
    "::",
    "?",
    "(",
    "{",
    "\n",
)


def test_a_signature_matches_its_example_whatever_the_case() -> None:
    for signature in SIGNATURES:
        example = signature.example
        for text in (example, example.upper(), f"noise\n\x1b[31m{example}\x1b[0m\nnoise"):
            assert find_matches(text, [signature]), (signature.id, text)


def test_a_signature_is_whole() -> None:
    for signature in SIGNATURES:
        assert set(re.compile(signature.pattern).groupindex) == set(signature.groups), signature.id
        assert set(signature.causes) <= CODES, signature.id
        assert not (signature.causes and signature.says), f"{signature.id}: words of a cause, or of something else"
        assert signature.anchors, signature.id
        assert all(anchor == anchor.lower() and len(anchor) >= 3 for anchor in signature.anchors), signature.id


def test_every_code_has_words_or_a_rule_that_finds_it() -> None:
    named = {cause for signature in SIGNATURES for cause in signature.causes}
    by_rule_alone = {"torch-replaced"}  # what installers print is a clue for its weighing
    assert CODES - named - by_rule_alone == set()


def test_no_pattern_can_be_made_slow() -> None:
    for signature in SIGNATURES:
        pattern = re.compile(signature.pattern, re.IGNORECASE | re.ASCII)
        start = time.process_time()
        for anchor in signature.anchors:
            for piece in HOSTILE:
                pattern.search((piece * 900)[:900] + anchor + (piece * 900)[:900] + "!")
                pattern.search(anchor + (piece * 1800)[:1800] + "!")
        spent = time.process_time() - start
        assert spent < 0.05 * len(signature.anchors) * len(HOSTILE), f"{signature.id}: {spent:.2f} s"


@given(st.text(max_size=400), st.sampled_from(SIGNATURES), st.text(max_size=400))
def test_any_text_around_an_error_is_survived(before: str, signature: Signature, after: str) -> None:
    find_matches(f"{before}{signature.example}{after}", SIGNATURES)


@given(st.binary(max_size=2000))
def test_noise_is_survived(noise: bytes) -> None:
    find_matches(noise.decode("utf-8", "replace"), SIGNATURES)
    find_matches(noise.decode("latin-1"), SIGNATURES)


def test_time_grows_with_the_length_of_the_text_and_no_faster() -> None:
    line = (
        "2026-11-28 step 17: torch cuda compiler proxy nvcc triton error cannot find libtorch foo=1 gcc 404 timed out\n"
    )

    def spent(lines: int) -> float:
        text = line * lines
        start = time.process_time()
        find_matches(text, SIGNATURES)
        return time.process_time() - start

    small, large = min(spent(2_000) for _ in range(3)), spent(20_000)
    assert large < 30 * small + 0.2


def test_an_error_at_the_end_of_a_long_line_is_found_with_its_line() -> None:
    text = "x" * 500_000 + " CUDA error: no kernel image is available for execution on the device"
    (match, *_) = find_matches(f"first\n{text}\nlast", SIGNATURES)
    assert (match.signature.id, match.line) == ("no-kernel-image", 2)
    assert len(match.quote) <= 240


def test_a_message_that_is_wrapped_or_boxed_is_read_as_one() -> None:
    text = "  x No solution\n  |-> Because there is no version of\n  |   torch==9.9.9 and you require it"
    (match,) = find_matches(text, [s for s in SIGNATURES if s.id == "uv-none"])
    assert (match.groups["package"], match.groups["specifier"]) == ("torch", "==9.9.9")


def test_places_are_told_apart_by_what_they_name_and_equal_ones_are_told_once() -> None:
    error = "nvcc fatal   : Unsupported gpu architecture 'compute_{}'\n"
    text = error.format(120) * 50 + error.format(121)
    found = find_matches(text, [s for s in SIGNATURES if s.id == "nvcc-arch"])
    assert [(m.groups["arch"], m.line) for m in found] == [("compute_120", 1), ("compute_121", 51)]


def test_of_several_signatures_the_specific_one_decides() -> None:
    driver = "ptxas application ptx input, line 9; fatal   : Unsupported .version 8.1; current version is '8.0'"
    program = "ptxas /tmp/a.ptx, line 9; fatal   : Unsupported .version 8.1; current version is '8.0'"
    assert cause_of(driver) == "ptx-newer-than-driver"
    assert cause_of(program) == "triton-ptxas-too-old"
    assert cause_of("all is well") is None


def test_the_list_of_causes_in_the_documentation_is_todays() -> None:
    page = (ROOT / "docs" / PAGE).read_text("utf-8")
    assert page == with_table(page), "run: make catalogue-docs"


def test_every_cause_has_a_module_that_weighs_it_and_whose_texts_are_all_in_its_file() -> None:
    """Names of texts in the code, literal ones, are in the file, and no text of the file is left over."""
    directories = [path.parent for path in sorted(DIRECTORY.glob("*/cause.toml"))]
    assert [code_of(d.name) for d in directories] == list(causes().files)
    source = "".join(path.read_text("utf-8") for path in DIRECTORY.parent.rglob("*.py"))
    for directory in directories:
        module = importlib.import_module(f"envsolve.diagnose.causes.{directory.name}")
        assert hasattr(module, "from_report") or hasattr(module, "from_environment"), directory
        file = causes().files[code_of(directory.name)]
        assert set(file.explains) <= CODES
        by_data = {*file.stated, *(name for stated in file.stated.values() for name in stated.fixes)}
        assert by_data <= {*file.explanations, *file.fixes}, directory
        assert set(file.stated) <= {*file.explanations} & {s.role for s in file.signatures}, directory
        unused = [name for name in (*file.explanations, *file.fixes, *file.words) if f'"{name}"' not in source]
        assert not set(unused) - {s.id for s in file.signatures} - by_data, directory


def test_the_compiled_causes_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the build hook writes is read as the files are, and a file of other causes is not used."""
    found = causes()
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["GeneratedFilesHook"]
    built = tmp_path / "envsolve" / "diagnose" / "causes"
    shutil.copytree(DIRECTORY, built, ignore=shutil.ignore_patterns("*.py", "_compiled.json", "__pycache__"))
    hook._write_causes(SimpleNamespace(root=str(tmp_path)))
    compiled = built / "_compiled.json"
    monkeypatch.setattr(cause_files, "_COMPILED", compiled)
    monkeypatch.setattr(cause_files, "_parsed", None)
    try:
        causes.cache_clear()
        assert causes() == found
        compiled.write_bytes(compiled.read_bytes().replace(b'"digest": "', b'"digest": "0'))
        causes.cache_clear()
        with pytest.raises(TypeError):
            causes()
    finally:
        causes.cache_clear()


def test_a_signature_is_shown_with_its_source() -> None:
    found = facts("signature", "numpy-abi")
    assert [s.id for s in found.records["signatures"]] == ["numpy-abi"]
    assert list(found.sources) == ["nvlibs"]
    assert "numpy.dtype size changed" in describe_facts(found).replace("\\", "")

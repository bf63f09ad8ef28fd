"""The limits on foreign input, and what holds text to them."""

from __future__ import annotations

import io
import time

import pytest

from envsolve.system.limits import (
    KEY_PARTS,
    MIB,
    NUMBER_DIGITS,
    Counted,
    LimitError,
    has_long_number,
    is_sane,
    joined,
    key_parts,
    printable,
)


def test_a_stream_is_read_up_to_the_limit() -> None:
    assert joined([b"x" * MIB], MIB, "the page") == b"x" * MIB
    with pytest.raises(LimitError, match="the page is larger than 1 MiB"):
        joined([b"x" * MIB, b"x"], MIB, "the page")


def test_a_counted_stream_ends_past_the_limit() -> None:
    stream = Counted(io.BytesIO(b"x" * 2 * MIB), MIB, "demo-1.0.tar.gz")
    assert len(stream.read(MIB)) == MIB
    with pytest.raises(LimitError, match=r"more than 1 MiB of demo-1\.0\.tar\.gz"):
        stream.read(1)


@pytest.mark.parametrize("text", ["x>=" + "9" * 5000, "x" * 100_000])
def test_what_packaging_cannot_compare_is_not_sane(text: str) -> None:
    assert not is_sane(text)
    assert is_sane("torch>=2.9.0.dev20251128; python_version > '3'")


def test_control_characters_are_escaped_and_lines_stay() -> None:
    assert printable("a\x1b]0;pwned\x07\tb\n\x9b31m\u202ec é 你") == "a\\x1b]0;pwned\\x07\tb\n\\x9b31m\\u202ec é 你"


def test_a_line_is_no_command_of_a_workflow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "of a::b\n::error::x\n \t::set-env::y\n"
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert printable(text) == text
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert printable(text) == "of a::b\n\\::error::x\n \t\\::set-env::y\n"
    assert printable(printable(text)) == printable(text)
    assert printable(text, commands=True) == text


def test_a_number_that_python_does_not_convert_is_found_in_linear_time() -> None:
    assert has_long_number(b"torch==" + b"9" * (NUMBER_DIGITS + 1) + b"\n")
    assert not has_long_number(b"9" * NUMBER_DIGITS)
    before = time.process_time()
    assert not has_long_number((b"9" * NUMBER_DIGITS + b"a") * 4000)
    assert time.process_time() - before < 3


DOTS = "." * 2 * KEY_PARTS


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a" + ".a" * KEY_PARTS + " = 1", KEY_PARTS + 1),
        ("[a" + " . a" * KEY_PARTS + "]", KEY_PARTS + 1),
        ('"a;"' + '."a;"' * KEY_PARTS + " = 1", KEY_PARTS + 1),
        ("a" + ".a" * (KEY_PARTS - 1) + " = 1", 0),
        (f"a = '{DOTS}'  # {DOTS}", 0),
        (f'a = """\n{DOTS}"\n"""', 0),
        (f"a = [{'1.5, ' * KEY_PARTS}]", 0),
    ],
)
def test_a_dotted_key_of_many_parts_is_found(text: str, parts: int) -> None:
    assert key_parts(f"[project]\n{text}\n") == parts


@pytest.mark.parametrize("start", ['"""', '"', '"a\n', '"a\\', "'''\n"], ids=repr)
def test_unclosed_strings_take_linear_time(start: str) -> None:
    before = time.process_time()
    key_parts(start * 300_000 + DOTS)
    assert time.process_time() - before < 5

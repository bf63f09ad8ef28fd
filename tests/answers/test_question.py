from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.answers.question import key_of, plain, texts

PLAIN = (
    "torch",
    "torch==2.9.*",
    "zope.interface >= 5, < 7",
    "transformers[torch,vision]~=4.40",
    'triton; sys_platform == "linux" and python_version >= "3.10"',
    "torch (>=2.8)",
    "torch!=2.1.0+cu121",
)
MORE = (
    "",
    ".",
    ".[extra]",
    "./torch",
    "~/torch",
    "a/torch",
    "a\\torch",
    "torch-2.9-cp312-cp312-linux_x86_64.whl",
    "torch ; python_version > '3' .whl",
    "pyproject.toml",
    "pyproject.toml[gpu]",
    "torch @ https://example.org/torch-2.9-py3-none-any.whl",
    "torch@file:///torch",
    "git+https://example.org/torch",
    "torch==${VERSION}",
    "torch --hash=sha256:00",
    "torch -r other.txt",
    "-r other.txt",
    "torch\nnumpy",
    "törch",
)


@pytest.mark.parametrize("text", PLAIN)
def test_what_means_the_same_everywhere(text: str, tmp_path: Path) -> None:
    assert plain([text])
    file = tmp_path / "asked.txt"
    file.write_text(
        f"# what we need: a/b § $HOME's ü\n\n{text}  # as of today\n--index-url https://example.org/simple\n"
    )
    assert texts([file]) == [(str(file), file.read_bytes())]


@pytest.mark.parametrize("text", MORE)
def test_what_may_mean_something_else_elsewhere(text: str, tmp_path: Path) -> None:
    assert not plain(["torch", text])
    if text and text != "torch\nnumpy":  # in a file, that is nothing, and two lines
        (tmp_path / "asked.txt").write_text(f"torch\n{text}\n")
        assert texts([tmp_path / "asked.txt"]) is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("asked.txt", b"--find-links /wheels\ntorch\n"),
        ("asked.txt", b"--index-url file:///simple\n"),
        ("asked.txt", b"--index-url https://${TOKEN}@example.org/simple\n"),
        ("asked.txt", b"tor\\\nch\n"),
        ("asked.txt", b"# coding: utf-7\ntorch\n"),
        ("asked.txt", "torch\n".encode("utf-16")),
        ("asked.txt", b"\xff"),
        ("pyproject.toml", b"\n"),
        ("environment.yml", b"torch\n"),
        ("-", b"torch\n"),
    ],
)
def test_a_file_whose_text_is_not_all(
    name: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    assert texts([Path(name)]) is None


def test_a_file_that_is_not_there_has_no_text(tmp_path: Path) -> None:
    assert texts([tmp_path / "asked.txt"]) is None


def test_what_is_no_value_has_no_key() -> None:
    assert key_of({"a": 1, "b": ("x", None)}) == key_of({"b": ["x", None], "a": 1})
    assert key_of({"a": 1}) != key_of({"a": True}) != key_of({"a": "1"})
    assert key_of({"a": object()}) is None

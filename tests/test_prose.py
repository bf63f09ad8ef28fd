"""Text for users is plain English: help, messages, docstrings and pages keep few of the habits that are hard to read.

Each habit has a limit per 1,000 words, because most of these words also have an ordinary use ("the place where it is").
The limits of messages are the strictest: people read them when they already have a problem.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.shape import modules

ROOT = Path(__file__).parent.parent


class Habit(NamedTuple):
    """A habit, a sentence that has it, and how often it may occur per 1,000 words of each kind of text."""

    pattern: str
    example: str
    messages: float
    docs: float


HABITS = {
    "if": Habit(
        r"(?:^|[.;:,] |\bbut |\bonly |\bexcept )where\b|\bNone where\b", "Pins torch, where a lock has it.", 1, 1
    ),
    "negate the verb": Habit(r"\b(?:is|are|was) (?:no|none)\b", "It is no wheel.", 0.6, 0.6),
    "is not a member": Habit(r"\b[Tt]here is no such\b", "There is no such format.", 0.1, 0.1),
    "show, report": Habit(r"\b(?:tells?|told)\b", "The index tells the size.", 0.6, 0.6),
    "be, have, support": Habit(r"\b(?:stands?|stood|bears?|heard)\b", "What stands on torch.", 0.3, 0.3),
    "also": Habit(r"\blikewise\b|, too[.,;]", "Triton works, too.", 0.4, 0.4),
    "noun phrase": Habit(r"(?:^|[.!?] )What\b(?![^.?!\n]{0,80}\?)", "What pip asks for is kept.", 0.4, 0.4),
    "only": Habit(r"\balone\b", "On this machine alone.", 0.3, 0.3),
    "fix": Habit(r"\bmend(?:s|ed|ing)?\b", "A command that mends it.", 0, 0.1),
    "GPU": Habit(r"\bcards?\b", "For each card.", 0.4, 1),
    "variant": Habit(r"\bflavours?\b", "Choose another flavour.", 0.2, 0.2),
    "directory": Habit(r"\bfolders?\b", "The folder is missing.", 2.5, 3),
    "otherwise": Habit(r"[,;] else\b|\bElse,? ", "Takes uv, else pip.", 0.5, 1),
}


def docs() -> Iterator[tuple[str, str]]:
    """The pages, without code; the changelog of released versions stays as it was published."""
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        if path.name != "CHANGELOG.md":
            yield path.name, re.sub(r"```.*?```|^ {4}[^\n]*$|`[^`\n]*`", " ", path.read_text(), flags=re.S | re.M)


def docstrings() -> Iterator[tuple[str, str]]:
    for path, _, text in strings():
        if text is not None:
            yield path, text


def messages() -> Iterator[tuple[str, str]]:
    """String literals of five words or more, among which are all messages and the help of options."""
    for path, text, _ in strings():
        if text is not None and len(text.split()) >= 5:
            yield path, text


@functools.cache
def strings() -> tuple[tuple[str, str | None, str | None], ...]:
    """Every string literal of the package, as a message or as a docstring."""
    return tuple(_strings())


def _strings() -> Iterator[tuple[str, str | None, str | None]]:
    for module in modules():
        found = set()
        nodes = list(ast.walk(module.tree))
        for node in nodes:
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    found.add(id(node.body[0].value))  # type: ignore[attr-defined]
                    yield module.path.name, None, text
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in found:
                yield module.path.name, node.value, None


def occurrences(habit: Habit, texts: list[tuple[str, str]]) -> tuple[float, list[str]]:
    """Return how often a habit occurs per 1,000 words, and where."""
    words = sum(len(text.split()) for _, text in texts)
    found = [
        f"{name}: {text[max(0, match.start() - 40) : match.end() + 40]!r}"
        for name, text in texts
        for match in re.finditer(habit.pattern, text, re.MULTILINE)
    ]
    return 1000 * len(found) / max(words, 1), found


@pytest.mark.parametrize("name", HABITS)
@pytest.mark.parametrize("kind", ["docs", "docstrings", "messages"])
def test_text_for_users_is_plain(kind: str, name: str) -> None:
    habit = HABITS[name]
    texts = list({"docs": docs, "docstrings": docstrings, "messages": messages}[kind]())
    rate, found = occurrences(habit, texts)
    limit = habit.messages if kind == "messages" else habit.docs
    assert rate <= limit, f"write {name!r}: {rate:.2f} per 1,000 words of {kind}, limit {limit}\n" + "\n".join(found)


@pytest.mark.parametrize("name", HABITS)
def test_the_habit_is_found(name: str) -> None:
    rate, found = occurrences(HABITS[name], [("message", HABITS[name].example)])
    assert len(found) == 1
    assert rate > HABITS[name].messages

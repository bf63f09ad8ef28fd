"""Shell texts: the simple commands in them with variables resolved, and installer commands rewritten in place."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from envsolve.packages.commands import Command, parse
from envsolve.system.limits import VARIABLE_LENGTH

Simple: TypeAlias = tuple[tuple[str, ...], Mapping[str, str]]
"""Words of a command, and the variables in force for it."""

_SEPARATORS = frozenset(";&|()\n")
_REDIRECTS = frozenset("<>&")
# Words that can precede a command without being one.
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "exec", "command"})
# Programs that run the command after their own options; the options that take a value.
_WRAPPERS: Mapping[str, frozenset[str]] = {
    "sudo": frozenset({"-u", "-g", "-C", "-D"}),
    "env": frozenset({"-u", "-C", "--unset", "--chdir"}),
    "nice": frozenset({"-n"}),
    "timeout": frozenset({"-s", "-k"}),
    "xargs": frozenset({"-n", "-L", "-I", "-P", "-d", "-a"}),
}
_RUNNERS = frozenset({"conda", "mamba", "micromamba", "uv", "poetry", "pipenv", "pdm", "pixi", "rye", "hatch"})
_RUNNER_VALUES = frozenset(
    {"-n", "--name", "-p", "--prefix", "--cwd", "--with", "--extra", "--group", "--python", "-e"}
)
_SHELL = re.compile(r"(?:\S*/)?(?:ba|da|z|k|a)?sh")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# A default may contain variables: ${CUDA:+nvidia/cuda:${CUDA}-devel}.
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-+])((?:[^${}]|\$\{[^{}]*\}|\$(?!\{))*))?\})")
_BACKTICKS = re.compile(r"`([^`\n]*)`")
_QUOTED_OR_COMMENT = re.compile(r"('[^']*'|\"(?:\\.|[^\"\\])*\"|\\.)|(?<![^\s;&|(])#[^\n]*", re.DOTALL)
# Files go as deep as a shell in a shell in a shell. A limit, since the text may be hostile.
_DEPTH = 4


def simple_commands(text: str, scope: Mapping[str, str]) -> Iterator[Simple]:
    """Each command with the variables in force for it; what is assigned or exported holds for those after it.

    Args:
        text: A shell text, or the JSON list of words that a RUN instruction can be.
        scope: Variables that are set before it.
    """
    yield from _commands(text, dict(scope), _DEPTH)


def words(text: str, scope: Mapping[str, str]) -> list[str]:
    """The words of an instruction that is not a shell text, with variables resolved."""
    return [resolved(token, scope) for token in _tokens(text, "\n") if not set(token) <= {"\n"}]


def resolved(word: str, scope: Mapping[str, str]) -> str:
    """A word with the known variables resolved; unknown ones stay as they are written."""

    left = VARIABLE_LENGTH

    def given(match: re.Match[str]) -> str:
        # Forty lines that each double the variable before them would make a terabyte.
        nonlocal left
        value = value_of(match)[: max(left, 0)]
        left -= len(value)
        return value

    def value_of(match: re.Match[str]) -> str:
        name, operator, other = match[1] or match[2], match[3], match[4]
        value = scope.get(name)
        if value == unset(name):
            value = None
        if operator == "+":
            return resolved(other, scope) if value else ""
        return value or (resolved(other, scope) if operator else match[0] if value is None else "")

    return _VARIABLE.sub(given, word)


def unset(name: str) -> str:
    """The value of a variable that is given at build time: as it is written."""
    return f"${{{name}}}"


def assigned(word: str) -> tuple[str, str] | None:
    """Name and value of ``NAME=VALUE``."""
    match = _ASSIGNMENT.fullmatch(word)
    return (match[1], match[2]) if match else None


def _commands(text: str, scope: dict[str, str], depth: int) -> Iterator[Simple]:
    # A text that begins like the exec form and is not valid JSON is run by the shell, as builders do.
    listed = _json_list(text)
    for found in [[resolved(word, scope) for word in listed]] if listed else _split(text, scope):
        yield from _command(found, scope, depth)


def _command(found: list[str], scope: dict[str, str], depth: int) -> Iterator[Simple]:
    given: dict[str, str] = {}
    found = list(_unwrapped(found, given))
    inner = _inner(found)
    if not found:
        scope |= given
    elif found[0] in ("export", "declare"):
        scope |= dict(filter(None, map(assigned, found[1:])))
    elif inner is not None and depth:
        yield from _commands(inner, {**scope, **given}, depth - 1)
    else:
        yield tuple(found), {**scope, **given}


def _unwrapped(found: Sequence[str], given: dict[str, str]) -> Sequence[str]:
    """A command without its wrappers; assignments go into ``given``."""
    while found:
        pair = assigned(found[0])
        name = found[0].rsplit("/", 1)[-1]
        if pair:
            given[pair[0]] = pair[1]
            found = found[1:]
        elif name in _WRAPPERS:
            found = _behind_options(found[1:], _WRAPPERS[name])
            if name == "timeout":
                found = found[1:]
        # conda run and the like: the command behind it is what runs.
        elif name in _RUNNERS and len(found) > 1 and found[1] == "run":
            found = _behind_options(found[2:], _RUNNER_VALUES)
        else:
            return found
    return found


def _behind_options(found: Sequence[str], values: frozenset[str]) -> Sequence[str]:
    while found and found[0].startswith("-"):
        found = found[2 if found[0] in values else 1 :]
    return found


def _inner(found: Sequence[str]) -> str | None:
    """The text in ``bash -lc 'TEXT'`` or ``eval TEXT``."""
    if not found or not _SHELL.fullmatch(found[0]):
        return "\n".join(found[1:]) if found and found[0] == "eval" else None
    for number, word in enumerate(found[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return found[number + 1] if number + 1 < len(found) else None
        if not word.startswith(("-", "+")) and found[number - 1] != "-o":
            return None
    return None


def _json_list(text: str) -> list[str] | None:
    """The words of a RUN in the exec form."""
    if not text.lstrip().startswith("["):
        return None
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return listed if isinstance(listed, list) and all(isinstance(word, str) for word in listed) else None


def _split(text: str, scope: Mapping[str, str]) -> Iterator[list[str]]:
    found: list[str] = []
    redirected = False
    for token in _tokens(_BACKTICKS.sub(r"$(\1)", text), ";&|()\n<>"):
        if set(token) <= _REDIRECTS and set(token) & set("<>"):
            redirected = True
            # The shell lexer takes the number in 2>&1 for a word.
            if found and found[-1] in ("1", "2"):
                found.pop()
        elif set(token) <= _SEPARATORS:
            yield from ([found] if found else [])
            found, redirected = [], False
        elif redirected:
            redirected = False
        elif found or token not in _KEYWORDS:
            word = resolved(token, scope)
            # A shell splits the value of an unquoted variable. Quotes are gone here; most such words are lists.
            found += word.split() if _VARIABLE.fullmatch(token) and found else [word]
    if found:
        yield found


def _tokens(text: str, punctuation: str) -> list[str]:
    """Words and punctuation of a shell text, split at blanks if its quotes do not match."""
    # Comments first, since an apostrophe in one would open a quote.
    text = _QUOTED_OR_COMMENT.sub(lambda match: match[1] or "", text)
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=punctuation)
    lexer.commenters = ""
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return re.findall(rf"[{re.escape(punctuation)}]+|[^\s{re.escape(punctuation)}]+", text)


# Words of a shell, quotes included, and the operators between simple commands.
_TOKEN = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s&|;()'"\\]|['"\\])+|[&|;()\n]+""", re.DOTALL)


def edit(text: str, change: Callable[[Command, Mapping[str, str]], Command]) -> str:
    """Rewrite the installers' commands in a shell text; everything else stays as it is written.

    Args:
        text: Shell text.
        change: Receives each command and the variables that are set only for it. The words of the command keep their
            quotes, so words that are added must be quoted.
    """
    pieces: list[str] = []
    end = 0
    for first, last, words in _simple_commands(text):
        count = next((n for n, word in enumerate(words) if not assigned(word)), len(words))
        command = parse(words[count:])
        if command is None:
            continue
        variables = dict(word.partition("=")[::2] for word in words[:count])
        changed = change(command, variables)
        # Rendering normalises spellings, so an unchanged command keeps its text.
        if changed != command:
            pieces += [text[end:first], " ".join((*words[:count], *changed.words))]
            end = last
    return "".join([*pieces, text[end:]])


def _simple_commands(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Start, end and words of each simple command."""
    found: list[re.Match[str]] = []
    for token in _TOKEN.finditer(text):
        if token[0][0] not in "&|;()\n":
            found.append(token)
        elif found:
            yield found[0].start(), found[-1].end(), [match[0] for match in found]
            found = []
    if found:
        yield found[0].start(), found[-1].end(), [match[0] for match in found]

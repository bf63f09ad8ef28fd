"""A remedy's command line as steps, each an installer's command on the environment; and running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from envsolve.errors import ImpossibleError, UsageError
from envsolve.guard.installers import read_command
from envsolve.guard.model import Command
from envsolve.install.errors import explained
from envsolve.install.process import run

_VARIABLE = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """One command, with the variables that are set before it."""

    command: Command
    variables: Mapping[str, str]

    @property
    def text(self) -> str:
        """As a shell takes it."""
        return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in self.variables.items()), shlex.join(self.command.words)])


def steps_of(command: str, prefix: str, environ: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps of a remedy.

    Args:
        command: One line of shell, ``A && B``.
        prefix: The environment that every step must name.
        environ: Where programs are looked for.

    Raises:
        ImpossibleError: It is none that pip or uv carries out in this environment.
    """
    steps = tuple(_step(words, environ) for words in _parts(command))
    if not steps or not all(step and _is_on(step, prefix) for step in steps):
        raise ImpossibleError(
            "the least remedy is not one that pip or uv carries out in this environment",
            hint=f"run it yourself: {command}",
        )
    return tuple(step for step in steps if step)


def carry_out(steps: Sequence[Step], environ: Mapping[str, str], on_line: Callable[[str], None]) -> None:
    """Run steps to their end, one after the other.

    Raises:
        EnvsolveError: One fails; those after it are not run.
    """
    for step in steps:
        ended = run(step.command.words, environment={**environ, **step.variables}, on_line=on_line)
        if ended.code != 0:
            raise explained(step.command.installer, ended.code, ended.output)


def _parts(command: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="&|;<>()")
    lexer.whitespace_split = True
    part: list[str] = []
    for word in lexer:
        if word == "&&":
            yield part
            part = []
        else:
            part.append(word)
    yield part


def _step(words: list[str], environ: Mapping[str, str]) -> Step | None:
    variables: dict[str, str] = {}
    while words and (match := _VARIABLE.fullmatch(words[0])):
        variables[match[1]] = match[2]
        words = words[1:]
    try:
        return Step(read_command(words, environ), variables) if words else None
    except UsageError:
        return None


def _is_on(step: Step, prefix: str) -> bool:
    words = step.command.words
    verbs = {"install", "uninstall"} & set(words)
    named = any(word == prefix or word.startswith(f"{prefix}/") for word in words)
    return step.command.installer in ("pip", "uv") and bool(verbs) and named

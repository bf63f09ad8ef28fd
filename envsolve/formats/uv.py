"""The exact uv commands, to be run in order where uv finds the environment."""

from __future__ import annotations

from envsolve.formats.pip import Words, install_commands
from envsolve.planning.plan import Plan

NAME = "uv"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False


_WORDS = Words(
    ("uv", "pip", "install"), "--default-index", ("--no-build-isolation", "--no-cache"), '"$(uv python find)"'
)


def commands(plan: Plan) -> tuple[str, ...]:
    """One command per index, then what compiling the sources takes.

    Raises:
        ImpossibleError: Nothing fits.
    """
    return install_commands(plan, _WORDS)


def render(plan: Plan) -> str:
    """The commands, one a line."""
    return "".join(f"{command}\n" for command in commands(plan))

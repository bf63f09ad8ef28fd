"""The exact uv commands, to be run in order where uv finds the environment."""

from __future__ import annotations

from envsolve.plan import Plan
from envsolve.render._commands import install_commands


def commands(plan: Plan) -> tuple[str, ...]:
    """One command per index.

    Raises:
        ImpossibleError: Nothing fits.
    """
    return install_commands(plan, ("uv", "pip", "install"), "--default-index")


def render(plan: Plan) -> str:
    """The commands, one a line."""
    return "".join(f"{command}\n" for command in commands(plan))

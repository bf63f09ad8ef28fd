"""The environments of a fleet for tools that start programs: each module here is one, found by its name.

``render(fleet, made, python)`` returns the text of a file; ``fleet`` is absolute, and ``python`` has envsolve.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.fleet.plan import FleetPlan


def tools() -> tuple[str, ...]:
    """Return the names of the tools."""
    return tuple(sorted(one.name.replace("_", "-") for one in pkgutil.iter_modules(__path__)))


def emitted(tool: str, fleet: Path, made: FleetPlan, *, python: str) -> str:
    """Write a file for a tool.

    Args:
        tool: One of :func:`tools`.
        fleet: The fleet's directory.
        made: Its plan.
        python: A Python that has envsolve, on every node.

    Raises:
        UsageError: The tool is unknown, or the fleet has no plan.
    """
    if tool not in tools():
        raise UsageError(f"{tool}: unknown tool", hint=f"tools: {', '.join(tools())}")
    if not made.groups:
        raise UsageError("no plan of the fleet fits any node", hint="envsolve fleet plan says why")
    text: str = importlib.import_module(f"{__name__}.{tool.replace('-', '_')}").render(fleet.absolute(), made, python)
    return text

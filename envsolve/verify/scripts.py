"""The check scripts of a folder: what each declares, read without importing it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

RunsOn = Literal["host", "gpu", "architecture"]

BUILT_IN = Path(__file__).parent / "checks"


@dataclass(frozen=True, slots=True)
class Script:
    """One check script.

    Attributes:
        path: The file.
        name: Its ``NAME``, the check's name in reports.
        runs_on: Its ``RUNS_ON``: ``host`` (once on the machine), ``gpu`` (once for each GPU present) or
            ``architecture`` (once for each compute capability asked for, no GPU needed).
        order: Its ``ORDER``; checks run from low to high, so that the first failure is the most basic one.
    """

    path: Path
    name: str
    runs_on: RunsOn
    order: int


def find_scripts(folder: Path = BUILT_IN) -> tuple[Script, ...]:
    """Read the declarations of every ``*.py`` in ``folder``, sorted by order, then name.

    Raises:
        ValueError: A script lacks a declaration or has a wrong one: a defect, as the scripts ship with envsolve.
    """
    return tuple(sorted(map(_read, folder.glob("*.py")), key=lambda script: (script.order, script.name)))


def _read(path: Path) -> Script:
    constants = {
        target.id: node.value.value
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    name, runs_on, order = (constants.get(key) for key in ("NAME", "RUNS_ON", "ORDER"))
    if not isinstance(name, str) or runs_on not in get_args(RunsOn) or not isinstance(order, int):
        raise ValueError(f"{path}: a check declares NAME, RUNS_ON ({', '.join(get_args(RunsOn))}) and ORDER")
    return Script(path, name, cast("RunsOn", runs_on), order)

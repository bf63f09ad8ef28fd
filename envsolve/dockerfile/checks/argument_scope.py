"""A variable that ARG declares before the first FROM alone, and that is empty in the stage that uses it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.packages import Asked


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Source: Dockerfile reference, "Understand how ARG and FROM interact"."""
    for install in asked.installs(stage.commands):
        named = re.findall(r"\$\{?(\w+)", " ".join(install.command.words))
        for name in sorted(stage.outside.intersection(named) - set(install.command.variables)):
            text = f"{name} is declared before FROM alone, so that it is empty in this stage"
            yield Finding(install.command.line, "argument-scope", "error", text, (f"ARG {name} behind FROM",))

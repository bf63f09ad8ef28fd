"""A forecast in the words of a terminal. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from envsolve.guard.family import TORCH
from envsolve.guard.model import Forecast

_WIDTH = 100


def describe(found: Forecast) -> str:
    """What would happen, why that is no good, and what to do in its place."""
    if not found.changes:
        return f"torch and what belongs to it stay as they are in {found.prefix}."
    lines = [f"In {found.prefix}:", *(f"  {change.text}" for change in found.changes)]
    torch = next((c for c in found.changes if c.name in TORCH and c.after), None)
    if torch is not None and found.works is not None:
        says = {"yes": "runs on this machine", "no": "does not run on this machine", "unknown": "may run here or not"}
        lines += _wrapped(f"{torch.name} {torch.after} {says[found.works]}: {found.why}.")
    # Why torch itself does not run has been said.
    for diagnosis in found.causes if found.works != "no" else found.causes[1:]:
        lines += _wrapped(f"Afterwards: {diagnosis.cause}. {diagnosis.explanation}")
    if found.unasked:
        lines += _wrapped(f"The command does not ask for {' or '.join(found.unasked)}: others would drag it along.")
    return "\n".join([*lines, *_instead(found)])


def _instead(found: Forecast) -> Iterator[str]:
    """What to do in place of a command that is refused."""
    if found.keeps:
        yield "  This leaves them as they are:"
        yield f"      {found.keeps}"
        yield "  To have plain installs keep them from now on:"
        yield f"      envsolve guard --write --prefix {shlex.quote(found.prefix)}"
        return
    if found.unasked:
        held = " ".join(f"{c.name}=={c.before}" for c in found.changes if c.name in found.unasked)
        yield from _wrapped(
            f"The installer finds nothing that leaves {held} in place. `envsolve plan` finds what goes together; "
            "keep it in an environment of its own."
        )
    for diagnosis in found.causes[:1]:
        for remedy in [r for r in diagnosis.remedies if r.command][:1]:
            yield "  In its place:"
            yield f"      {remedy.command}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)

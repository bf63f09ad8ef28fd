"""What a change to the machine would give, for a person and for a program."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.jsontext import dump
from envsolve.planner.whatif import Difference, WhatIf, differences
from envsolve.render import json, summary
from envsolve.render._public import public
from envsolve.render._words import count, in_a_line, in_words

_LONG = ("conflict", "warning")


def as_text(answer: WhatIf, *, sources: bool = False) -> str:
    """The summary of the plan as it is, then what would be otherwise.

    Args:
        answer: The two plans.
        sources: As for :func:`envsolve.render.summary.render`.
    """
    answer = _public(answer)
    return summary.render(answer.now, sources=sources) + "\n" + "\n".join(_lines(answer)) + "\n"


def as_json(answer: WhatIf) -> str:
    """The ``envsolve.whatif/1`` JSON, both plans whole."""
    answer = _public(answer)
    plans = {"now": json.document(answer.now), "then": json.document(answer.then)}
    return dump({"schema": answer.schema, "change": answer.change, **plans, "differences": answer.differences})


def _public(answer: WhatIf) -> WhatIf:
    now, then = public(answer.now), public(answer.then)
    return structs.replace(answer, now=now, then=then, differences=tuple(differences(now, then)))


def _lines(answer: WhatIf) -> Iterator[str]:
    yield f"What if   {answer.change}: {in_a_line(answer.then).removeprefix('chosen: ')}"
    if not answer.differences:
        yield "          nothing would change"
    told = _told(answer)
    short = [one for one in answer.differences if one.kind not in _LONG and (one.kind != "package" or one.name in told)]
    rows = [("", "now", "then"), *((_name(one), one.now or "-", one.then or "-") for one in short)] if short else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"          {'  '.join(cells)}".rstrip()
    others = sum(one.kind == "package" and one.name not in told for one in answer.differences)
    if others:
        yield f"          and {count(others, 'other package')}"
    for one in answer.differences:
        if one.kind == "warning":
            yield f"Then      {'also' if one.then else 'no longer'}: {one.then or one.now} [{one.name}]"
    for number, remedy in enumerate(answer.then.remedies, 1):
        yield f"  {number}. {in_words(remedy)}"


def _told(answer: WhatIf) -> set[str]:
    """The packages that are worth a line: those that were asked for, or that a machine decides on."""
    asked = {canonicalize_name(Requirement(text).name) for text in answer.now.requirements}
    plans = (answer.now, answer.then)
    judged = {one.package for plan in plans for one in plan.support}
    return asked | judged | {package.name for plan in plans for package in plan.packages if package.variant}


def _name(one: Difference) -> str:
    if one.kind == "support":
        return f"{one.name}'s code"
    return "driver mode" if one.kind == "driver" else one.name

"""Several plans written down: together as a summary or JSON, or each in a file of its own."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping

from msgspec import structs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.formats import json, render, summary
from envsolve.formats._classes import render_classes
from envsolve.formats._packages import public
from envsolve.formats._words import count, in_a_line, in_words
from envsolve.planning.groups import Difference, Plans, WhatIf, differences
from envsolve.planning.plan import Plan
from envsolve.system.files import dump
from envsolve.values import ComputeCapability

#: Formats in which several plans stand in one text.
TOGETHER = ("summary", "json", "pylock")
# A file's name by format, with the group's name in it; a lock's is PEP 751's.
_FILES = {"pylock": "pylock.{}.toml", "json": "plan.{}.json", "requirements": "requirements.{}.txt"}


def render_plans(plans: Plans, form: str, *, sources: bool = False) -> str:
    """Several plans as one text: a summary for a person, the ``envsolve.plans/1`` JSON, or one lock for all.

    Args:
        plans: The plans.
        form: One of :data:`TOGETHER`.
        sources: In a summary, where the facts of a conflict were read.

    Raises:
        EnvsolveError: Not all plans can be locked, or there is none.
    """
    if form == "pylock":
        return _lock(plans)
    if form == "json":
        served, unserved = ([json.document(plan) for plan in part] for part in (plans.plans, plans.unserved))
        return dump({"schema": plans.schema, "plans": served, "unserved": unserved})
    names = group_names(plans)
    every = [(f"Plan      {name}", plan) for name, plan in zip(names, plans.plans, strict=True)]
    every += [("Unserved  nothing that is published serves this machine", plan) for plan in plans.unserved]
    parts = [f"{title}\n{summary.body(plan, sources=sources)}" for title, plan in every]
    return "\n\n".join([*parts, "\n".join(_closing(plans))]) + "\n"


def _lock(plans: Plans) -> str:
    """One lock for all plans; of a single plan it is the ordinary one."""
    if len(plans.plans) > 1:
        return render_classes(dict(zip(group_names(plans), map(public, plans.plans), strict=True)))
    return render((*plans.plans, *plans.unserved)[0], "pylock")


def files(plans: Plans, form: str) -> Mapping[str, str]:
    """The text of every plan by the name of its file; what is unserved has none.

    Raises:
        EnvsolveError: As :func:`envsolve.formats.render`.
    """
    pattern = _FILES.get(form, f"{form}.{{}}.txt")
    return {
        pattern.format(name): render(plan, form) for name, plan in zip(group_names(plans), plans.plans, strict=True)
    }


def group_names(plans: Plans) -> tuple[str, ...]:
    """A name for each plan by what it is for, ``cu126-sm70-sm90``; with a number where two would have the same."""
    names: list[str] = []
    for plan in plans.plans:
        name = _name(plan)
        taken = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{taken + 1}" if taken else name)
    return tuple(names)


def _name(plan: Plan) -> str:
    systems = {(m.platform.os, m.platform.arch) for m in plan.machines if m.platform}
    odd = sorted(part for os, arch in systems for part in (os, arch) if part not in (None, "linux", "x86_64"))
    cards = sorted({gpu.cc for machine in plan.machines for gpu in machine.gpus or () if gpu.cc})
    return "-".join([plan.cuda or "any", *map(_card, cards), *filter(None, odd)])


def _card(cc: ComputeCapability) -> str:
    return cc.sm.replace("_", "")


def _closing(plans: Plans) -> Iterator[str]:
    served = sum(len(plan.machines) for plan in plans.plans)
    unserved = sum(len(plan.machines) for plan in plans.unserved)
    rest = f"; {count(unserved, 'machine')} unserved" if unserved else ""
    yield f"In all    {count(len(plans.plans), 'plan')} for {count(served, 'machine')}{rest}"
    yield from summary.facts((*plans.plans, *plans.unserved)[0], datetime.date.today())
    if plans.plans:
        yield "Next      the same command with -o pylock.toml, then on each machine:"
        yield "          envsolve install pylock.toml --prefix DIR"


# What a change to the machine would give, for a person and for a program.


_LONG = ("conflict", "warning")


def as_text(answer: WhatIf, *, sources: bool = False) -> str:
    """The summary of the plan as it is, then what would be otherwise.

    Args:
        answer: The two plans.
        sources: As for :func:`envsolve.formats.summary.render`.
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
    rows = (
        [("", "now", "then"), *((_whatif_name(one), one.now or "-", one.then or "-") for one in short)] if short else []
    )
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


def _whatif_name(one: Difference) -> str:
    if one.kind == "support":
        return f"{one.name}'s code"
    return "driver mode" if one.kind == "driver" else one.name

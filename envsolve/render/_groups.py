"""Several plans written down: together as a summary or JSON, or each in a file of its own."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping

from envsolve.jsontext import dump
from envsolve.machine.cc import ComputeCapability
from envsolve.plan import Plan
from envsolve.planner.groups import Plans
from envsolve.render import json, render, summary
from envsolve.render._classes import render_classes
from envsolve.render._public import public
from envsolve.render._words import count

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
        EnvsolveError: As :func:`envsolve.render.render`.
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

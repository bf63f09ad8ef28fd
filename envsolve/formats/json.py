"""The ``envsolve.plan/1`` JSON: the plan field by field, and the commands that install it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from envsolve.formats import pip, uv
from envsolve.formats._packages import public, public_answer
from envsolve.planning.plan import Plan
from envsolve.system.files import dump

if TYPE_CHECKING:
    from envsolve.planning.groups import Plans, WhatIf

NAME = "json"
FILENAMES = ("plan.json", "*.json")
FAMILY = "any"
HOLDS_SEVERAL = True
NEEDS_HASHES = False


def render(plan: Plan) -> str:
    """The plan as indented JSON with sorted keys."""
    return dump(document(plan))


def document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON's own values; an impossible plan, or one of conda packages, has no commands of pip and uv."""
    plan = public(plan)
    fields: dict[str, Any] = msgspec.to_builtins(plan, enc_hook=dict)  # the hook meets mappings that are no dict
    fields["remedies"] = [{"action": fix.text, "unlocks": fix.unlocks} for fix in plan.remedies]
    possible = plan.status != "impossible" and plan.conda is None
    fields["commands"] = {
        "pip": pip.commands(plan) if possible else (),
        "uv": uv.commands(plan) if possible else (),
    }
    return fields


def render_plans(plans: Plans, *, sources: bool = False) -> str:
    """Write the ``envsolve.plans/1`` JSON."""
    served, unserved = ([document(plan) for plan in part] for part in (plans.plans, plans.unserved))
    return dump({"schema": plans.schema, "plans": served, "unserved": unserved})


def render_what_if(answer: WhatIf) -> str:
    """Write the ``envsolve.whatif/1`` JSON, with both plans complete."""
    answer = public_answer(answer)
    plans = {"now": document(answer.now), "then": document(answer.then)}
    return dump({"schema": answer.schema, "change": answer.change, **plans, "differences": answer.differences})

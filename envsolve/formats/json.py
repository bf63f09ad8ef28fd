"""The ``envsolve.plan/1`` JSON: the plan field by field, and the commands that install it."""

from __future__ import annotations

from typing import Any

import msgspec

from envsolve.formats import pip, uv
from envsolve.formats._packages import public
from envsolve.planning.plan import Plan
from envsolve.system.files import dump


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

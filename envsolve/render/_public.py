"""A plan as it may be written down: no address in it holds a login, which pip, uv, git and conda have stores for."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from envsolve.conda.secrets import without_secrets
from envsolve.index.address import without_logins
from envsolve.plan import Plan, PlannedPackage

Cleaned = Callable[[str], str]


def public(plan: Plan) -> Plan:
    """A plan in which no address holds a user, a password, or the token of a conda channel."""
    clean = without_logins if plan.conda is None else without_secrets
    conda = plan.conda and structs.replace(
        plan.conda, channels=tuple(map(clean, plan.conda.channels)), pip=tuple(map(clean, plan.conda.pip))
    )
    return structs.replace(
        plan,
        requirements=tuple(map(clean, plan.requirements)),
        packages=tuple(_package(one, clean) for one in plan.packages),
        warnings=tuple(
            structs.replace(one, message=clean(one.message), remedy=one.remedy and clean(one.remedy))
            for one in plan.warnings
        ),
        conflict=tuple(structs.replace(one, fact=clean(one.fact)) for one in plan.conflict),
        remedies=tuple(structs.replace(one, action=clean(one.action)) for one in plan.remedies),
        conda=conda,
    )


def _package(one: PlannedPackage, clean: Cleaned) -> PlannedPackage:
    tree = one.tree
    if tree is not None and tree.repository:
        tree = structs.replace(tree, repository=clean(tree.repository), unread=tree.unread and clean(tree.unread))
    return structs.replace(
        one,
        url=one.url and clean(one.url),
        index=one.index and clean(one.index),
        why=tuple(map(clean, one.why)),
        tree=tree,
    )

"""No password or token of an address is written down, whichever way a plan goes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from envsolve.errors import EnvsolveError
from envsolve.formats import files, format_named, formats, json, remarks, render, render_plans, summary
from envsolve.packages.urls import Tree
from envsolve.planning.groups import Difference, Plans, WhatIf
from envsolve.planning.plan import CondaTerms, Plan
from envsolve.solve.outcome import ConflictFact, PlanWarning
from tests.formats.plans import GOOD

LOGIN = "me:s3c@ret@"
TREE = Tree(repository=f"https://{LOGIN}h.test/x", commit="a" * 40, unread=None)
FILE = f"https://{LOGIN}h.test/x-1.0-py3-none-any.whl"


def _with_login(plan: Plan, tree: Tree | None) -> Plan:
    asked = f"x @ {tree.address if tree else FILE}"
    first = plan.packages[0]
    one = replace(
        first,
        name="x",
        version="1.0",
        index=None,
        url=tree.address if tree else FILE,
        tree=tree,
        kind="sdist" if tree else "wheel",
        requires=(),
        hashes={} if tree else first.hashes,
        filename=None if tree else "x-1.0-py3-none-any.whl",
        why=(f"asked: {asked}",),
    )
    return replace(
        plan,
        requirements=(asked,),
        packages=(one,),
        warnings=(PlanWarning("tree-unread", f"{asked} was not read", f"write {asked}"),),
        conflict=(ConflictFact(f"{asked} was requested"),),
    )


def _together(form: str, plan: Plan) -> str:
    return render_plans(Plans(plans=(plan,)), form)


def _apart(form: str, plan: Plan) -> object:
    return files(Plans(plans=(plan,)), form)


SECRET = [
    _with_login(GOOD, TREE),
    _with_login(GOOD, replace(TREE, commit=None, unread=f"no https://{LOGIN}h.test")),
    _with_login(GOOD, None),
]
SECRET += [replace(SECRET[0], status="impossible")]
SECRET += [replace(SECRET[0], conda=CondaTerms((f"https://{LOGIN}h.test/t/s3c@ret/main",), "linux-64", {}, ()))]
WAYS: dict[str, Callable[[Plan], object]] = {form: partial(render, format=form) for form in formats()}
WAYS |= {f"groups {form}": partial(_together, form) for form in formats() if format_named(form).HOLDS_SEVERAL}
WAYS |= {f"files {form}": partial(_apart, form) for form in ("json", "pip")}
WAYS |= {
    "one lock": lambda plan: render_plans(Plans(plans=(plan, plan)), "pylock"),
    "unserved": lambda plan: render_plans(Plans(unserved=(plan,)), "json"),
    "what if": lambda plan: summary.render_what_if(WhatIf("driver 580", plan, replace(plan, warnings=()), ())),
    "what if, json": lambda plan: json.render_what_if(
        WhatIf("driver 580", plan, plan, (Difference("warning", "w", None, f"x @ {FILE}"),))
    ),
    "summary with sources": lambda plan: summary.render(plan, sources=True),
    "remarks": lambda plan: [*remarks(plan)],
}


@pytest.mark.parametrize("way", WAYS)
def test_no_login_is_written_down(way: str) -> None:
    for plan in SECRET:
        try:
            written = str(WAYS[way](plan))
        except EnvsolveError as error:
            written = f"{error.message} {error.hint}"
        assert "ret@" not in written and "/t/s3c" not in written
        assert written


def test_what_is_written_still_says_where() -> None:
    assert "x @ git+https://h.test/x@aaaa" in render(SECRET[0], "uv")
    ssh = replace(TREE, repository="ssh://git@h.test/x")
    assert "git+ssh://git@h.test/x@aaaa" in render(_with_login(GOOD, ssh), "uv")

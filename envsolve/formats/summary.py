"""The plan for a person at a terminal: what is chosen, why, and what to do next."""

from __future__ import annotations

import contextlib
import datetime
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envsolve._default_index import DEFAULT_INDEX
from envsolve.formats import group_names
from envsolve.formats._packages import (
    default_index,
    driver_sentence,
    gpu_name,
    in_a_line,
    in_words,
    is_direct,
    no_lock,
    public,
    public_answer,
    variant_sentence,
    warning_lines,
)
from envsolve.machine.model import one_line
from envsolve.planning.plan import CondaTerms, Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.system.limits import count_of
from envsolve.toolchain.model import Toolchain

if TYPE_CHECKING:
    from envsolve.planning.groups import Difference, Plans, WhatIf

NAME = "summary"
FILENAMES: tuple[str, ...] = ()
FAMILY = "any"
HOLDS_SEVERAL = True
NEEDS_HASHES = False
# Differences of two plans that are sentences, not cells of a table.
_LONG = ("conflict", "warning")


def render(
    plan: Plan, *, today: datetime.date | None = None, sources: bool = False, command: Sequence[str] = ()
) -> str:
    """The summary.

    Args:
        plan: Any plan; an impossible one is shown as its conflict and the fixes.
        today: The day from which the age of the catalogue is counted; None for the real one.
        sources: Print the source under each fact of a conflict; the titles are long, so this is optional.
            Also list every package, and what requires it.
        command: The words of the command that made the plan, for the next step that is printed.
    """
    plan = public(plan)
    closing = [*facts(plan, today or datetime.date.today()), *_next(plan, command)]
    return "\n\n".join(filter(None, (body(plan, sources=sources), "\n".join(closing)))) + "\n"


def body(plan: Plan, *, sources: bool = False) -> str:
    """The summary without its end: the age of the facts, and the next step."""
    plan = public(plan)
    sections = [
        _heading(plan),
        *(
            [_conflict(plan, sources), _remedies(plan)]
            if plan.status == "impossible"
            else [_packages(plan, every=sources), _fast_paths(plan) if sources else ()]
        ),
        warning_lines(plan),
        [f"Set at run time: {name}={value}" for name, value in sorted(plan.environment.items())],
    ]
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines)


# An exported file has hundreds of requirements; the table below lists every package that was requested.
_ASKED = 20


def _heading(plan: Plan) -> Iterator[str]:
    for machine, number in Counter(map(one_line, plan.machines)).items():
        yield f"For       {machine}" + (f" ({number} machines)" if number > 1 else "")
    if plan.python:
        yield f"Python    {plan.python}"
    asked, more = plan.requirements[:_ASKED], len(plan.requirements) - _ASKED
    yield f"Request   {', '.join(asked) or 'nothing'}" + (f" and {more} more" if more > 0 else "")
    if plan.status == "impossible":
        return
    if plan.status == "unknown":
        yield "Status    unknown: some facts are missing, see the warnings"
    if plan.cuda:
        yield f"Variant   {variant_sentence(plan)}"
    if plan.driver:
        yield f"Driver    {driver_sentence(plan.driver, plan.cuda)}"
    # A ready wheel outside the indexes comes with a toolchain, too, for who would rather compile it.
    if plan.toolchain and (plan.toolchain.compiles or plan.toolchain.compiles_at_use):
        yield f"Build     {', '.join(_tools(plan.toolchain))}"


def _tools(toolchain: Toolchain) -> Iterator[str]:
    places = {"machine": f" in {toolchain.CUDA_HOME}", "pip": " from packages of this plan", None: ", not available"}
    if toolchain.nvcc:
        yield f"nvcc {toolchain.nvcc}{places[toolchain.nvcc_from]}"
    if toolchain.host_compiler:
        yield f"host compiler {toolchain.host_compiler}"
    if toolchain.TORCH_CUDA_ARCH_LIST:
        yield f"TORCH_CUDA_ARCH_LIST {toolchain.TORCH_CUDA_ARCH_LIST}"


def _packages(plan: Plan, *, every: bool) -> list[str]:
    told = {item.package for item in plan.support} | {canonicalize_name(one.name) for one in _asked(plan)}
    family = [package for package in plan.packages if every or package.variant or package.name in told]
    gpus = list(dict.fromkeys(gpu_name(item) for item in plan.support))
    rows = [("Package", "Version", "Variant", *gpus)] + [_row(plan, package, gpus) for package in family]
    if every:
        reasons = ("Why", *(package.why[0] if package.why else "-" for package in family))
        rows = [(*row, reason) for row, reason in zip(rows, reasons, strict=True)]
    lines = _table(rows) if family else []
    others = len(plan.packages) - len(family)
    if others:
        lines.append(f"and {count_of(others, 'other package')}" if family else count_of(others))
    return lines


def _fast_paths(plan: Plan) -> Iterator[str]:
    """Which fast kernels the wheels have, a line for each GPU and package."""
    label = "Kernels"
    for gpu, package in dict.fromkeys((one.gpu, one.package) for one in plan.fast_paths):
        paths = [one for one in plan.fast_paths if (one.gpu, one.package) == (gpu, package)]
        has = ", ".join(f"{one.path} {one.code}" for one in paths if one.code)
        lacks = ", ".join(one.path for one in paths if not one.code)
        said = filter(None, (has and f"has {has}", lacks and f"lacks {lacks}"))
        yield f"{label:<9} {package} on {gpu} {'; '.join(said)}"
        label = ""


def _asked(plan: Plan) -> Iterator[Requirement]:
    for text in plan.requirements:
        with contextlib.suppress(InvalidRequirement):  # conda's match specs
            yield Requirement(text)


def _row(plan: Plan, package: PlannedPackage, gpus: Sequence[str]) -> tuple[str, ...]:
    cells = {
        gpu_name(
            item
        ): f"{' '.join(filter(None, [item.level, item.code]))}{f' ({item.evidence})' if item.evidence else ''}"
        for item in plan.support
        if item.package == package.name
    }
    return (package.name, package.version, package.variant or "-", *(cells.get(gpu, "-") for gpu in gpus))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _conflict(plan: Plan, sources: bool) -> Iterator[str]:
    yield "Nothing fits"
    for fact in plan.conflict:
        yield f"  because {fact.fact}"
        if sources and fact.source:
            yield f"          (source: {fact.source})"


def _remedies(plan: Plan) -> Iterator[str]:
    if plan.remedies:
        yield f"What would make it fit{', cheapest first' if len(plan.remedies) > 1 else ''}"
    for number, remedy in enumerate(plan.remedies, 1):
        yield f"  {number}. {in_words(remedy)}"


def facts(plan: Plan, today: datetime.date) -> Iterator[str]:
    """How old the facts are."""
    if plan.catalogue_date:
        days = (today - datetime.date.fromisoformat(plan.catalogue_date)).days
        age = "today" if days <= 0 else f"{count_of(days, 'day')} ago"
        own = f"; your own catalogue: of {plan.own_catalogue_date}" if plan.own_catalogue_date else ""
        yield f"Facts     of {plan.catalogue_date}, {age}{own}"


def _next(plan: Plan, command: Sequence[str]) -> Iterator[str]:
    if plan.status == "impossible":
        return
    if plan.conda is not None:
        yield from _next_of_conda(plan, plan.conda)
    elif lack := no_lock(plan.packages, plan.warnings):
        yield f"Next      this plan cannot be locked: {lack.message}"
        yield f"          {lack.hint}"
    elif command:
        yield f"Next      {shlex.join([*command, '-o', 'pylock.toml'])}"
        yield "          envsolve install pylock.toml --prefix .venv"
    else:
        yield "Next      save this plan with -o pylock.toml, then:"
        yield "          envsolve install pylock.toml --prefix DIR"
    if words := _without_lock(plan):
        yield f"Or        {shlex.join(words)}"


#: A line with more packages than that is a file.
_SHORT = 8


def _without_lock(plan: Plan) -> list[str]:
    """The command that installs the requested packages with pip; empty if pip would not do what the plan says."""
    asked: dict[str, Requirement] = {canonicalize_name(one.name): one for one in _asked(plan)}
    # torch before 2.3 breaks beside NumPy 2, which its metadata does not say.
    chosen = [one for one in plan.packages if one.variant or one.name in asked or one.name == "numpy"]
    whole = len(asked) == len(plan.requirements) and asked.keys() <= {one.name for one in chosen}
    if not whole or plan.conda or plan.toolchain or plan.environment or len(chosen) > _SHORT:
        return []
    extras = {name: f"[{','.join(sorted(one.extras))}]" if one.extras else "" for name, one in asked.items()}
    pins = [f"{one.name}{extras.get(one.name, '')}=={one.version}" for one in chosen]
    indexes = _indexes(chosen, default_index(plan.packages))
    return ["pip", "install", *pins, *indexes] if indexes is not None else []


def _indexes(chosen: Sequence[PlannedPackage], default: str) -> list[str] | None:
    """The options of pip for the indexes of packages; None if pip might take another file than the plan."""
    other = [one for one in chosen if (one.index or default) != default]
    # Of two indexes pip takes the newest version, and only a local part says which build it is.
    if any(is_direct(one) or one.kind != "wheel" for one in chosen) or any("+" not in one.version for one in other):
        return None
    words = ["--index-url", default] if default != DEFAULT_INDEX else []
    return words + [
        word for index in sorted({one.index or "" for one in other}) for word in ("--extra-index-url", index)
    ]


def _next_of_conda(plan: Plan, terms: CondaTerms) -> Iterator[str]:
    if terms.pip:
        yield "Next      run the same command with --format environment-yml or --format pixi"
        return
    words = ["envsolve", "install", "--manager", "conda", "--prefix", "DIR"]
    if terms.channels != ("conda-forge",):
        words += [word for channel in terms.channels for word in ("--channel", channel)]
    yield "Next      run the same command with --format environment-yml, conda-lock or pixi; or:"
    yield f"          {shlex.join([*words, *plan.requirements])}"


# Several plans, and what a change to the machine would give.


def render_plans(plans: Plans, *, sources: bool = False) -> str:
    """Write several plans below each other; ``sources`` is that of :func:`render`."""
    every = [(f"Plan      {name}", plan) for name, plan in zip(group_names(plans), plans.plans, strict=True)]
    every += [("No plan   no published build runs on this machine", plan) for plan in plans.unserved]
    parts = [f"{title}\n{body(plan, sources=sources)}" for title, plan in every]
    return "\n\n".join([*parts, "\n".join(_closing(plans))]) + "\n"


def _closing(plans: Plans) -> Iterator[str]:
    served = sum(len(plan.machines) for plan in plans.plans)
    unserved = sum(len(plan.machines) for plan in plans.unserved)
    rest = f"; no plan for {count_of(unserved, 'machine')}" if unserved else ""
    yield f"Total     {count_of(len(plans.plans), 'plan')} for {count_of(served, 'machine')}{rest}"
    yield from facts((*plans.plans, *plans.unserved)[0], datetime.date.today())
    if plans.plans:
        yield "Next      save these plans with -o pylock.toml, then on each machine:"
        yield "          envsolve install pylock.toml --prefix DIR"


def render_what_if(answer: WhatIf, *, sources: bool = False) -> str:
    """Write the summary of the plan as it is, then what the change would give; ``sources`` as in :func:`render`."""
    answer = public_answer(answer)
    return render(answer.now, sources=sources) + "\n" + "\n".join(_what_if_lines(answer)) + "\n"


def _what_if_lines(answer: WhatIf) -> Iterator[str]:
    yield f"What if   {answer.change}: {in_a_line(answer.then).removeprefix('chosen: ')}"
    if not answer.differences:
        yield "          nothing would change"
    told = _packages_to_show(answer)
    packages = [one for one in answer.differences if one.kind == "package"]
    shown = [one for one in packages if one.name in told]
    rows = [
        (_difference_name(one), one.now or "-", one.then or "-")
        for one in answer.differences
        if one.kind not in _LONG and (one.kind != "package" or one in shown)
    ]
    if rows:
        yield from (f"          {row}" for row in _table([("", "now", "then"), *rows]))
    if len(packages) > len(shown):
        yield f"          and {count_of(len(packages) - len(shown), 'other package')}"
    for one in answer.differences:
        if one.kind == "warning":
            yield f"Then      {'also' if one.then else 'no longer'}: {one.then or one.now} [{one.name}]"
    for number, remedy in enumerate(answer.then.remedies, 1):
        yield f"  {number}. {in_words(remedy)}"


def _packages_to_show(answer: WhatIf) -> set[str]:
    """The packages with a line of their own: requested ones, and those that depend on the machine."""
    asked = {canonicalize_name(Requirement(text).name) for text in answer.now.requirements}
    plans = (answer.now, answer.then)
    judged = {one.package for plan in plans for one in plan.support}
    return asked | judged | {package.name for plan in plans for package in plan.packages if package.variant}


def _difference_name(one: Difference) -> str:
    if one.kind == "support":
        return f"{one.name}'s code"
    return {"driver": "driver mode", "flavour": "variant"}.get(one.kind, one.name)

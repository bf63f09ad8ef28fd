"""The packages of a plan as the installable formats need them: possible, hashed, and sorted by where they come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError, UsageError
from envsolve.machine.model import one_line
from envsolve.packages.urls import without_logins, without_secrets
from envsolve.planning.plan import CondaPin, CondaTerms, DriverNeed, Plan, Support
from envsolve.solve.outcome import Fix, PlannedPackage, PlanWarning
from envsolve.system.limits import count_of
from envsolve.toolchain.model import SITE_PACKAGES

if TYPE_CHECKING:
    from envsolve.planning.groups import WhatIf


# What pip takes in hash-checking mode.
_STRONG = ("sha256", "sha384", "sha512")


def installable(plan: Plan) -> tuple[PlannedPackage, ...]:
    """The packages of a plan of wheels that has some.

    Raises:
        ImpossibleError: Nothing fits; the message is the plan's conflict, the hint its cheapest fix.
        UsageError: It is a plan of conda packages.
    """
    possible(plan)
    if plan.conda is not None:
        hint = "use one of the formats for conda plans: environment-yml, conda-lock, pixi, json"
        raise UsageError("this plan contains conda packages, which pip and uv cannot install", hint=hint)
    return plan.packages


def possible(plan: Plan) -> None:
    """Refuse a plan that has no packages because nothing fits.

    Raises:
        ImpossibleError: Nothing fits; the message is the plan's conflict, the hint its cheapest fix.
    """
    if plan.status != "impossible":
        return
    facts = "; because ".join(fact.fact for fact in plan.conflict)
    hint = in_words(plan.remedies[0]) if plan.remedies else None
    raise ImpossibleError(f"nothing fits, because {facts}" if facts else "nothing fits", hint=hint)


def hashed(plan: Plan) -> tuple[PlannedPackage, ...]:
    """The packages of a plan in which every package is a file that has a URL and a strong hash.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some files are known only from the catalogue, or their index gives no hash.
        UsageError: A source tree is among them, or a direct reference without a hash.
    """
    packages = locked(plan)
    for tree in filter(is_tree, packages):
        raise UsageError(
            f"{tree.name} is built from {tree.url}, and there is no hash for a source tree",
            hint="use the format pylock, pip or uv",
        )
    return packages


def locked(plan: Plan) -> tuple[PlannedPackage, ...]:
    """The packages of a plan in which every file has a URL and a strong hash, and every repository a commit.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some files are known only from the catalogue, or their index gives no hash; a source
            tree was not read.
        UsageError: A direct reference has no hash.
    """
    packages = installable(plan)
    if lack := no_lock(packages, plan.warnings):
        raise lack
    return packages


def no_lock(packages: Iterable[PlannedPackage], warnings: Iterable[PlanWarning]) -> EnvsolveError | None:
    """Why no hash or commit can be written down for every package; None if it can.

    Args:
        packages: Those of a plan.
        warnings: The plan's: ``index-unreachable`` marks a hash that was not read, as opposed to one that an index
            lacks.
    """
    packages = list(packages)
    lacks = (_lack_of_reference(package) for package in packages if is_tree(package) or is_direct(package))
    if lack := next(filter(None, lacks), None):
        return lack
    bare = [one for one in packages if not is_tree(one) and (one.url is None or not strong_hashes(one))]
    if not bare:
        return None
    unreached = any(caution.code == "index-unreachable" for caution in warnings)
    # Only what the catalogue describes has evidence, and only that is planned without its index.
    unseen = [package for package in bare if package.url is None or (unreached and package.evidence is not None)]
    if unseen:
        told = (
            f"{index} cannot be reached, and the catalogue has no sha256 of {', '.join(names)}"
            for index, names in _by_index(unseen)
        )
        hint = "run the same command on a machine that can reach the index, or use the format pip or uv"
        return IndexUnavailableError("; ".join(told), hint=hint)
    told = (f"{index} publishes no sha256 of {', '.join(names)}" for index, names in _by_index(bare))
    return IndexUnavailableError("; ".join(told), hint="use the format pip or uv, which do not require hashes")


def _lack_of_reference(package: PlannedPackage) -> EnvsolveError | None:
    """Why a source tree or a file that was requested by URL cannot be locked; None if it can."""
    if is_tree(package):
        return unread_tree(package) if package.tree is None or package.tree.unread is not None else None
    if strong_hashes(package):
        return None
    if package.evidence is not None:
        return UsageError(
            f"{package.name} {package.version} is not on an index, and no public list has the sha256 of {package.url}",
            hint="use --format uv (or pip), which do not require hashes; for "
            f"a lock, request '{package.name} @ {package.url}#sha256=DIGEST' with the digest from: curl -sL URL | "
            "sha256sum",
        )
    return UsageError(
        f"{package.name} is requested by URL ({package.url}) without a hash",
        hint="append #sha256=DIGEST to the URL, or use the format pip or uv",
    )


def unread_tree(package: PlannedPackage) -> IndexUnavailableError:
    """The error for a source tree that was not read, so that its commit is unknown."""
    why = f": {package.tree.unread}" if package.tree is not None else ""
    return IndexUnavailableError(
        f"the commit of {package.name} is not known, because {package.url} was not read{why}",
        hint="run the same command on a machine that can reach it, or use the format pip or uv",
    )


def strong_hashes(package: PlannedPackage) -> dict[str, str]:
    """The hashes that installers trust, sorted by algorithm."""
    return {name: digest for name, digest in sorted(package.hashes.items()) if name in _STRONG}


def is_tree(package: PlannedPackage) -> bool:
    """Whether it is a repository or a directory, which must be built to know what is in it."""
    return package.url is not None and package.filename is None


def is_direct(package: PlannedPackage) -> bool:
    """Whether it was requested by URL, so that no index is used."""
    return package.url is not None and not package.index


def default_index(packages: Iterable[PlannedPackage]) -> str:
    """The index that serves the ordinary packages: the built-in default, or what the user set in its place."""
    packages = [package for package in packages if package.index]
    indexes = {package.index for package in packages}
    if DEFAULT_INDEX in indexes or not indexes:
        return DEFAULT_INDEX
    ordinary = [package for package in packages if package.variant is None] or packages
    counts = Counter(package.index or "" for package in ordinary)
    return min(counts, key=lambda index: (-counts[index], index))


def _by_index(packages: Iterable[PlannedPackage]) -> list[tuple[str, list[str]]]:
    names: dict[str, list[str]] = {}
    for package in packages:
        names.setdefault(package.index or DEFAULT_INDEX, []).append(f"{package.name} {package.version}")
    return sorted(names.items())


# A plan as it may be written down: no URL in it holds a login, which pip, uv, git and conda have stores for.


Cleaned = Callable[[str], str]


def public(plan: Plan) -> Plan:
    """A plan in which no URL holds a user, a password, or the token of a conda channel."""
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
        remedies=tuple(structs.replace(one, text=clean(one.text)) for one in plan.remedies),
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


def public_answer(answer: WhatIf) -> WhatIf:
    """Return an answer to a what-if question with both plans as :func:`public` has them."""
    # Late: it loads the solver, which no format needs.
    from envsolve.planning.groups import differences

    now, then = public(answer.now), public(answer.then)
    return structs.replace(answer, now=now, then=then, differences=tuple(differences(now, then)))


# Machines, drivers, support levels and warnings in words.

#: What torch is called on package indexes and on conda channels.
TORCH = ("torch", "pytorch")
_CUDA_VARIANT = r"cu(\d+)(\d)"

#: What a level means for a GPU, best first.
LEVELS = {
    "native": "compiled for this GPU",
    "family": "compiled for an older GPU of the same architecture family, and runs unchanged",
    "ptx": "PTX, which the driver compiles at the first use",
    "unknown": "not enough is known about the GPU or the build",
    "none": "no code for the GPU",
}


def driver_sentence(need: DriverNeed, variant: str | None) -> str:
    """How the driver runs the plan's CUDA builds.

    Args:
        need: The driver that they need, and the machine's.
        variant: Theirs, ``cu126``.
    """
    if need.required is None:
        return "the plan needs no NVIDIA driver"
    wanted = f"needs {need.required} or newer"
    if need.have is None and need.mode is None:
        return f"{wanted}; the machine's driver is not known"
    have, builds = need.have or "the machine's", _builds(variant)
    if need.mode is None:
        return f"{wanted}; it is not known whether {have} is new enough"
    if need.mode == "forward-compat":
        return (
            f"{have} runs {builds} through the cuda-compat libraries (forward compatibility); without them it {wanted}"
        )
    how = "in full" if need.mode == "full" else "through minor-version compatibility (machine code, no PTX)"
    return f"{have} runs {builds} {how}; {wanted}"


def variant_sentence(plan: Plan) -> str:
    """The variant of the plan and its worst level of support on a GPU of the plan."""
    if plan.cuda == "cpu":
        return f"cpu: {_why_cpu(plan)}"
    torch = tuple(item for item in plan.support if item.package in TORCH)
    level = worst_level(torch or plan.support)
    if level is None:
        return f"{plan.cuda}: the GPU code in its builds is not known"
    return f"{plan.cuda}: {level}, {LEVELS[level]}"


def warning_lines(plan: Plan) -> Iterator[str]:
    """The plan's warnings, each with its code and, on a line of its own, what to do about it."""
    for caution in plan.warnings:
        yield f"Warning   {caution.message} [{caution.code}]"
        if caution.remedy:
            yield f"          {caution.remedy}"


def in_a_line(plan: Plan) -> str:
    """The contents of the plan: ``chosen: cu126, torch 2.14.1+cu126, 29 packages``; or that nothing fits."""
    if plan.status == "impossible":
        return "; ".join(["nothing fits", *(f"because {fact.fact}" for fact in plan.conflict)])
    torch = next((f"{package.name} {package.version}" for package in plan.packages if package.name in TORCH), None)
    return f"chosen: {', '.join(filter(None, [plan.cuda, torch, count_of(len(plan.packages))]))}"


def in_words(remedy: Fix) -> str:
    """The change and, if known, its effect."""
    return f"{remedy.text}: {remedy.unlocks}" if remedy.unlocks else remedy.text


def worst_level(support: tuple[Support, ...]) -> str | None:
    """The least of the levels; None if nothing was judged."""
    return max((item.level for item in support), key=list(LEVELS).index, default=None)


def gpu_name(item: Support) -> str:
    """The GPU of a support entry with its compute capability."""
    cc = item.compute_capability
    return item.gpu if cc is None or cc in item.gpu else f"{item.gpu} (cc {cc})"


def _why_cpu(plan: Plan) -> str:
    """The text for a CPU plan. The planner never chooses one by itself for a machine with a GPU."""
    if plan.machines and all(machine.gpus == () for machine in plan.machines):
        return "the machine has no NVIDIA GPU" if len(plan.machines) == 1 else "the machines have no NVIDIA GPU"
    return "as requested" if plan.status == "ok" else "whether the machine has an NVIDIA GPU is not known"


def _builds(variant: str | None) -> str:
    """``CUDA 13.2 builds`` for ``cu132``."""
    match = re.fullmatch(_CUDA_VARIANT, variant or "")
    return f"CUDA {match[1]}.{match[2]} builds" if match else "its CUDA builds"


# What the formats of a conda plan have in common: its terms, its heading, its pins as match specs.


# Where a conda environment lies once it is activated, from its directory of Python packages: PREFIX/lib/python3.12/...
_UP = f"{SITE_PACKAGES}/../../.."


def conda_terms(plan: Plan) -> CondaTerms:
    """The input of the solve of conda packages.

    Raises:
        ImpossibleError: Nothing fits.
        UsageError: It is a plan of wheels.
    """
    possible(plan)
    if plan.conda is None:
        raise UsageError(
            "this plan contains wheels, which conda does not install", hint="make the plan with --manager conda"
        )
    return plan.conda


def conda_heading(plan: Plan) -> Iterator[str]:
    """Comment lines: what the plan is for."""
    yield f"# envsolve plan for {', '.join(plan.requirements) or 'no packages'}"
    for machine in plan.machines:
        yield f"# machine: {one_line(machine)}"
    yield f"# Python {plan.python or 'none'}, variant {plan.cuda or 'none'}"


def pin_text(pin: CondaPin) -> str:
    """A pin as environment files have it: ``pytorch=2.7.1=cuda129*``."""
    return "=".join(filter(None, (pin.name, pin.version, pin.build)))


def override(terms: CondaTerms) -> str:
    """The variables before a command that solves on a machine without the target's driver; empty without CUDA."""
    cuda = terms.virtual.get("__cuda")
    return f"CONDA_OVERRIDE_CUDA={cuda} " if cuda else ""


def activated(plan: Plan) -> dict[str, str]:
    """The plan's variables as an activated environment has them, in the words of a POSIX shell."""
    return {name: value.replace(_UP, "$CONDA_PREFIX") for name, value in sorted(plan.environment.items())}

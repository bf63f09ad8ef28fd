"""The packages of a plan as the installable formats need them: possible, hashed, and sorted by where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError, UsageError
from envsolve.plan import Caution, Plan, PlannedPackage
from envsolve.render._words import in_words

# What pip takes in hash-checking mode.
_STRONG = ("sha256", "sha384", "sha512")


def installable(plan: Plan) -> tuple[PlannedPackage, ...]:
    """The packages of a plan of wheels that has some.

    Raises:
        ImpossibleError: Nothing fits; the message is the plan's conflict, the hint its cheapest remedy.
        UsageError: It is a plan of conda packages.
    """
    possible(plan)
    if plan.conda is not None:
        hint = "formats of conda plans: environment-yml, conda-lock, pixi, json"
        raise UsageError("this is a plan of conda packages, which pip and uv do not install", hint=hint)
    return plan.packages


def possible(plan: Plan) -> None:
    """Refuse a plan that has no packages because nothing fits.

    Raises:
        ImpossibleError: Nothing fits; the message is the plan's conflict, the hint its cheapest remedy.
    """
    if plan.status != "impossible":
        return
    facts = "; because ".join(fact.fact for fact in plan.conflict)
    hint = in_words(plan.remedies[0]) if plan.remedies else None
    raise ImpossibleError(f"nothing fits, because {facts}" if facts else "nothing fits", hint=hint)


def hashed(plan: Plan) -> tuple[PlannedPackage, ...]:
    """The packages of a plan in which every package is a file that has an address and a strong hash.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some files are known from the catalogue alone, or their index gives no hash.
        UsageError: A source tree is among them, or a direct reference without a hash.
    """
    packages = locked(plan)
    for tree in filter(is_tree, packages):
        raise UsageError(
            f"{tree.name} is built from {tree.url}, and a source tree has no hash",
            hint="use the format pylock, pip or uv",
        )
    return packages


def locked(plan: Plan) -> tuple[PlannedPackage, ...]:
    """The packages of a plan in which every file has an address and a strong hash, and every repository a commit.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: Some files are known from the catalogue alone, or their index gives no hash; a source
            tree was not read.
        UsageError: A direct reference has no hash.
    """
    packages = installable(plan)
    if lack := no_lock(packages, plan.warnings):
        raise lack
    return packages


def no_lock(packages: Iterable[PlannedPackage], warnings: Iterable[Caution]) -> EnvsolveError | None:
    """Why no hash or commit can be written down for every package; None where it can.

    Args:
        packages: Those of a plan.
        warnings: The plan's: ``index-unreachable`` tells a hash that was not seen from one that the index lacks.
    """
    packages = list(packages)
    for package in packages:
        if is_tree(package):
            if package.tree is None or package.tree.unread is not None:
                return unread_tree(package)
            continue
        if is_direct(package) and not strong_hashes(package) and package.evidence is not None:
            return UsageError(
                f"{package.name} {package.version} is on no index, and no public list has the sha256 of {package.url}",
                hint=f"--format uv (or pip) gives commands that need none; for a lock ask for "
                f"'{package.name} @ {package.url}#sha256=DIGEST', with the digest of: curl -sL ADDRESS | sha256sum",
            )
        if is_direct(package) and not strong_hashes(package):
            return UsageError(
                f"{package.name} is asked for by the address {package.url}, without a hash",
                hint="append #sha256=DIGEST to the address, or use the format pip or uv",
            )
    files = [package for package in packages if not is_tree(package)]
    bare = [package for package in files if package.url is None or not strong_hashes(package)]
    if not bare:
        return None
    unreached = any(caution.code == "index-unreachable" for caution in warnings)
    # Only what the catalogue describes has evidence, and only that is planned without its index.
    unseen = [package for package in bare if package.url is None or (unreached and package.evidence is not None)]
    if unseen:
        told = (
            f"{index} could not be reached, and the catalogue has no sha256 of {', '.join(names)}"
            for index, names in _by_index(unseen)
        )
        hint = "run the same command again where the index can be reached, or use the format pip or uv"
        return IndexUnavailableError("; ".join(told), hint=hint)
    told = (f"{index} gives no sha256 of {', '.join(names)}" for index, names in _by_index(bare))
    return IndexUnavailableError("; ".join(told), hint="use the format pip or uv, which need no hashes")


def unread_tree(package: PlannedPackage) -> IndexUnavailableError:
    """What to say of a source tree that was not read where its commit is to be written down."""
    why = f": {package.tree.unread}" if package.tree is not None else ""
    return IndexUnavailableError(
        f"the commit of {package.name} is not known, since {package.url} was not read{why}",
        hint="run the same command again where it can be reached, or use the format pip or uv",
    )


def strong_hashes(package: PlannedPackage) -> dict[str, str]:
    """The hashes that installers trust, sorted by algorithm."""
    return {name: digest for name, digest in sorted(package.hashes.items()) if name in _STRONG}


def is_tree(package: PlannedPackage) -> bool:
    """Whether it is a repository or a folder, which must be built to know what is in it."""
    return package.url is not None and package.filename is None


def is_direct(package: PlannedPackage) -> bool:
    """Whether it was asked for by address, so that no index is asked."""
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

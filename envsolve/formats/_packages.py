"""The packages of a plan as the installable formats need them: possible, hashed, and sorted by where they come from."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
from msgspec import structs

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError, UsageError
from envsolve.formats._words import in_words
from envsolve.packages.urls import without_logins, without_secrets
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import Caution, PlannedPackage
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain

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


# The shell commands by which the CUDA sources of a plan are compiled, the way ``envsolve install`` does it.


# Gigabytes that one compiler of CUDA code takes; flash-attention's README warns of as much for each job.
_JOB_GB = 4
_JOBS = (
    "import os; memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'); "
    f"print(max(1, min(os.cpu_count(), memory // {_JOB_GB}000000000)))"
)
# Headers of torch's own CUDA 12 wheels, for a toolkit that has the compiler alone.
_HEADERS = "import glob, sysconfig; print(':'.join(glob.glob(sysconfig.get_path('purelib') + '/nvidia/*/include')))"
_PACKAGES = "import sysconfig; print(sysconfig.get_path('purelib'))"
# NVIDIA's packages have libcudart.so.13 and no libcudart.so, which is what a linker asks for.
_LINKS = (
    'for file in "$CUDA_HOME"/lib/*.so.*; do ln -sf "${file##*/}" "${file%%.so.*}.so"; done; '
    'ln -sfn lib "$CUDA_HOME/lib64"'
)
# Nor a stub of the driver's library, which is linked against where no driver is.
_STUB = (
    'mkdir -p "$CUDA_HOME/lib/stubs"; '
    'grep -ohE "\\bcu[A-Z][A-Za-z0-9_]*" "$CUDA_HOME"/include/cuda*.h | sort -u | sed "s/.*/void &(void) {}/" | '
    '"${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$CUDA_HOME/lib/stubs/libcuda.so" -x c -'
)
_LIBRARY_PATH = 'LIBRARY_PATH="$CUDA_HOME/lib64:$CUDA_HOME/lib64/stubs${LIBRARY_PATH:+:$LIBRARY_PATH}"'


def is_compiled(package: PlannedPackage, plan: Plan) -> bool:
    """Whether it is compiled in the environment, after all else is there."""
    return plan.toolchain is not None and package.kind == "sdist" and package.name in plan.toolchain.compiles


def export_jobs(python: str) -> str:
    """Set ``MAX_JOBS`` to what processors and memory allow, unless it is set."""
    return f'export MAX_JOBS="${{MAX_JOBS:-$({python} -c "{_JOBS}")}}"'


def library_path(toolchain: Toolchain) -> str | None:
    """The linker's option by which what is compiled finds the CUDA libraries of the environment; None without such."""
    if toolchain.nvcc_from != "pip" or toolchain.CUDA_HOME is None:
        return None
    return f"-Wl,-rpath,$ORIGIN/..{toolchain.CUDA_HOME.removeprefix(SITE_PACKAGES)}/lib"


def prepare(toolchain: Toolchain, python: str) -> Iterator[str]:
    """What comes before the sources, in the same shell.

    Args:
        toolchain: What compiles them.
        python: The environment's Python, in the shell's words.
    """
    if toolchain.nvcc_from == "pip" and toolchain.CUDA_HOME:
        below = toolchain.CUDA_HOME.removeprefix(SITE_PACKAGES)
        yield f'export CUDA_HOME="$({python} -c "{_PACKAGES}"){below}"'
        yield _LINKS
        yield _STUB
    elif toolchain.CUDA_HOME:
        yield f"export CUDA_HOME={shlex.quote(toolchain.CUDA_HOME)}"
    elif toolchain.get_nvcc:
        yield toolchain.get_nvcc
    told = [_LIBRARY_PATH, *(f"{name}={shlex.quote(value)}" for name, value in toolchain.environment.items())]
    if run_path := library_path(toolchain):
        told.append(f"LDFLAGS={shlex.quote(run_path)}")
    else:
        told.append(f'CPATH="$({python} -c "{_HEADERS}")"')
    yield " ".join(['export PATH="$CUDA_HOME/bin:$PATH"', *told])
    yield export_jobs(python)


# Install commands, the same for pip and uv but for their words.
#
# The plan holds every package, so nothing is left to the installer's resolver (``--no-deps``), and each index has its
# own
# command: no index can supply a package that the plan takes from another.


class Words(msgspec.Struct, frozen=True):
    """An installer's words.

    Attributes:
        install: Those that begin a command: ``("uv", "pip", "install")``.
        index: The option that replaces the default index.
        unisolated: The options that build in the environment itself, and take no wheel that was built before.
        python: The environment's Python, in the shell's words.
    """

    install: Sequence[str]
    index: str
    unisolated: Sequence[str]
    python: str


def install_commands(plan: Plan, words: Words) -> tuple[str, ...]:
    """The commands that install a plan, to be run in order in one POSIX shell.

    Raises:
        ImpossibleError: Nothing fits.
    """
    packages, install = installable(plan), words.install
    compiled = [package for package in packages if is_compiled(package, plan)]
    default = default_index(packages)
    served: dict[str, list[str]] = {}
    for package in (package for package in packages if package not in compiled):
        if not is_direct(package):
            served.setdefault(package.index or default, []).append(f"{package.name}=={package.version}")
    commands: list[list[str]] = []
    # The default index last: what it serves may have to be built, with a torch that is there already.
    for index in sorted(served, key=lambda index: (index == default, index)):
        where = [] if index == DEFAULT_INDEX else [words.index, index]
        commands.append([*install, "--no-deps", *where, *served[index]])
    direct = [package for package in packages if is_direct(package) and package not in compiled]
    if files := [_reference(package) for package in direct if not is_tree(package)]:
        commands.append([*install, "--no-deps", *files])
    commands += [[*install, *trees] for trees in _trees(direct)]
    return (*map(shlex.join, commands), *_compile(plan, compiled, default, words))


def _compile(plan: Plan, compiled: Sequence[PlannedPackage], default: str, words: Words) -> Iterator[str]:
    """Last of all, what is compiled against the rest."""
    if not compiled or plan.toolchain is None:
        return
    yield from prepare(plan.toolchain, words.python)
    where = [] if default == DEFAULT_INDEX else [words.index, default]
    begin = [*words.install, *words.unisolated]
    known = [package for package in compiled if not is_tree(package)]
    if known:
        named = [_reference(p) if is_direct(p) else f"{p.name}=={p.version}" for p in known]
        yield shlex.join([*begin, "--no-deps", *where, *named])
    yield from (shlex.join([*begin, *trees]) for trees in _trees(compiled))


def _trees(packages: Sequence[PlannedPackage]) -> Iterator[list[str]]:
    """Source trees: those whose dependencies are known, and in the plan; then those whose are not."""
    trees = [package for package in packages if is_tree(package)]
    known = [_reference(package) for package in trees if package.tree and package.tree.exact]
    others = [_reference(package) for package in trees if not (package.tree and package.tree.exact)]
    if known:
        yield ["--no-deps", *known]
    if others:
        yield others


def _reference(package: PlannedPackage) -> str:
    return f"{package.name} @ {package.url}"


# A plan as it may be written down: no address in it holds a login, which pip, uv, git and conda have stores for.


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

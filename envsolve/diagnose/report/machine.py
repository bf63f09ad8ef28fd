"""The machine that a text describes, and what is given by option laid over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import asdict, replace

from envsolve.diagnose.model import Seen
from envsolve.diagnose.report.observation import Card, Field, Observation, Trust
from envsolve.diagnose.report.readers._gpus import model_of
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Driver, Gpu, HostCompiler, Machine, Platform, Toolkit
from envsolve.machine.target import complete, driver_branch

Value = TypeVar("Value", Machine, Driver, Platform)
_Pair: TypeAlias = "tuple[Card, Observation]"

# Names of os-release, as image tags have them; the rebuilds of RHEL have its libraries.
_IMAGE_NAMES = {
    "rhel": "ubi", "almalinux": "ubi", "rocky": "rockylinux", "ol": "oraclelinux", "opensuse-leap": "opensuse",
}  # fmt: skip
# The driver of Jetson Linux 36 reports different CUDA versions within this one branch.
_TEGRA_BRANCH = 540
_PLATFORM = (Field.OS, Field.ARCH, Field.LIBC, Field.DISTRO, Field.WSL, Field.CONTAINER, Field.JETSON)


def machine_of(
    scalars: Mapping[Field, Seen[str]], observations: Sequence[Observation], catalogue: Catalogue
) -> Machine:
    """The machine; fields that the text does not tell are None, ``sources`` has the line of each that it does."""
    sources = {
        field.value: scalars[field].where for field in (*_PLATFORM, Field.DRIVER, Field.PYTHON) if field in scalars
    }
    driver, more = _driver(scalars, catalogue)
    gpus, where = _gpus(observations, catalogue)
    toolkits = _toolkits(observations)
    compilers = _compilers(observations)
    sources |= more | where
    platform, filled = _platform(scalars, catalogue)
    sources |= filled
    machine = Machine(
        platform=platform,
        driver=driver,
        gpus=gpus,
        toolkits=toolkits,
        host_compilers=compilers,
        python=scalars[Field.PYTHON].value if Field.PYTHON in scalars else None,
        sources=sources,
    )
    return complete(machine, catalogue)


def laid_over(given: Machine, read: Machine) -> Machine:
    """``given``, with what it leaves open taken from ``read``, as far as the two can be one machine."""
    driver = given.driver
    if driver is None or read.driver is None:
        driver = driver or read.driver
    elif _same_driver(driver, read.driver):
        driver = _filled(driver, read.driver)
    platform = given.platform
    if platform is None or read.platform is None:
        platform = platform or read.platform
    elif not (platform.os and read.platform.os and platform.os != read.platform.os):
        platform = _filled(platform, read.platform)
    merged = _filled(replace(given, driver=driver, platform=platform), read)
    return replace(merged, sources={**read.sources, **given.sources})


def _same_driver(given: Driver, read: Driver) -> bool:
    if given.version and read.version:
        return given.version.split(".")[0] == read.version.split(".")[0]
    return not (given.cuda and read.cuda) or given.cuda == read.cuda


def _filled(value: Value, other: Value) -> Value:
    """A value with its None fields taken from another of its kind."""
    open_ = [name for name, own in asdict(value).items() if own is None]
    return replace(value, **{name: getattr(other, name) for name in open_})


def _platform(scalars: Mapping[Field, Seen[str]], catalogue: Catalogue) -> tuple[Platform | None, dict[str, str]]:
    """The system, and where its C library was read, if in the catalogue.

    A distribution has one glibc. What a Python before 3.9 reports (and collect_env repeats) is only the newest symbol
    version that the interpreter itself needs, so the distribution's decides where it is newer.
    """
    found = {field.value.partition(".")[2]: scalars[field].value for field in _PLATFORM if field in scalars}
    if not found:
        return None, {}
    wsl = True if found.pop("wsl", None) else None
    if wsl:
        found["os"] = "linux"  # the Windows around it shows in paths
    filled = {}
    libc = _libc_of(found.get("distro", ""), catalogue)
    if libc is not None and _is_newer(libc, found.get("libc")):
        found["libc"] = libc
        filled[Field.LIBC.value] = f"catalogue ({found['distro']})"
    return Platform(**found, wsl=wsl), filled


def _libc_of(distro: str, catalogue: Catalogue) -> str | None:
    """The C library of a distribution; that of a major release where the catalogue names no minor ones."""
    name, _, version = distro.partition(" ")
    name = _IMAGE_NAMES.get(name, name)
    known = catalogue.distributions.get(name + version) or catalogue.distributions.get(name + version.split(".")[0])
    return known.libc if known is not None and version else None


def _is_newer(libc: str, than: str | None) -> bool:
    if than is None:
        return True
    (kind, version), (other, reported) = libc.split(), than.split()
    return kind == other and _number(version) > _number(reported)


def _driver(scalars: Mapping[Field, Seen[str]], catalogue: Catalogue) -> tuple[Driver | None, dict[str, str]]:
    """The driver, and where its CUDA version was read.

    nvidia-smi and "found version 12080" tell what the ``libcuda`` in use supports. Where that is more than the kernel
    driver's branch does, it is a compat one.
    """
    version, cuda, compat = scalars.get(Field.DRIVER), scalars.get(Field.DRIVER_CUDA), scalars.get(Field.COMPAT)
    if version is None and cuda is None and compat is None:
        return None, {}
    sources = {Field.DRIVER_CUDA.value: cuda.where} if cuda else {}
    sources |= {Field.COMPAT.value: compat.where} if compat else {}
    own = _own_cuda(version.value, catalogue) if version and Field.JETSON not in scalars else None
    if cuda and own and _number(cuda.value) > _number(own):
        sources = {Field.COMPAT.value: cuda.where, Field.DRIVER_CUDA.value: "catalogue (driver branch)"}
        return Driver(version.value if version else None, own, cuda.value), sources
    driver = Driver(*(fact.value if fact else None for fact in (version, cuda, compat)))
    if compat and cuda and not own and compat.value == cuda.value:
        driver = replace(driver, cuda=None)  # it is the compat library that answered
    return driver, sources


def _own_cuda(version: str, catalogue: Catalogue) -> str | None:
    """The CUDA version of a driver's branch; None for a branch that the catalogue may not know yet, and for L4T's."""
    number = int(version.partition(".")[0])
    newest = max((int(branch.branch) for branch in catalogue.drivers), default=0)
    branch = driver_branch(version, catalogue)
    return branch.cuda if branch is not None and number <= newest and number != _TEGRA_BRANCH else None


def _number(cuda: str) -> tuple[int, ...]:
    return tuple(int(part) for part in cuda.split("."))


def _gpus(observations: Sequence[Observation], catalogue: Catalogue) -> tuple[tuple[Gpu, ...] | None, dict[str, str]]:
    """The cards: of the best list that a program printed, else those that messages name, else people."""
    cards = [(fact, observation) for observation in observations if isinstance(fact := observation.fact, Card)]
    chosen = _listed(cards) or _mentioned(cards, Trust.IMPLIED, catalogue) or _mentioned(cards, Trust.STATED, catalogue)
    bare = {card.compute_capability: pair for pair in cards if (card := pair[0]).name is None and card.count}
    if not chosen:
        chosen = list(bare.values())
    if not chosen:
        return None, {}
    where = {"gpus": f"line {chosen[0][1].line.number}"}
    gpus = [gpu for card, _ in chosen for gpu in card.count * (_gpu(card, catalogue),)]
    if len(bare) == 1 and len({gpu.name for gpu in gpus}) == 1 and gpus[0].compute_capability is None:
        gpus = [replace(gpu, compute_capability=next(iter(bare))) for gpu in gpus]
    return tuple(gpus), where


def _listed(cards: Sequence[_Pair]) -> list[_Pair]:
    """The cards of one list: one with whole names, the longest, the last."""
    lists: dict[int, list[_Pair]] = {}
    for card, observation in cards:
        if observation.trust == Trust.PRINTED and (card.name or card.listing is not None):
            key = observation.line.index if card.listing is None else card.listing
            lists.setdefault(key, []).append((card, observation))
    if not lists:
        return []

    def worth(item: tuple[int, list[_Pair]]) -> tuple[bool, int, int]:
        index, members = item
        return not any(card.truncated for card, _ in members), sum(card.count for card, _ in members), index

    return max(lists.items(), key=worth)[1]


def _mentioned(cards: Sequence[_Pair], trust: Trust, catalogue: Catalogue) -> list[_Pair]:
    """Each model once, with the largest count; of those, the ones that a capability which was told agrees with."""
    found: dict[str, _Pair] = {}
    for card, observation in cards:
        if observation.trust != trust or card.name is None:
            continue
        name = _full_name(card.name, catalogue) if trust == Trust.STATED else card.name
        if name not in found or card.count > found[name][0].count:
            found[name] = (dataclasses.replace(card, name=name), observation)
    told = {card.compute_capability for card, observation in cards if card.name is None and observation.trust > trust}
    agreeing = [pair for pair in found.values() if _gpu(pair[0], catalogue).compute_capability in told]
    return agreeing or list(found.values())


def _full_name(name: str, catalogue: Catalogue) -> str:
    """The model's name where a person's words mean one; a shortened name that several models have stays as it is."""
    model = model_of(name, catalogue)
    whole = model is not None and _letters(name) in {_letters(alias) for alias in (model.name, *model.aliases)}
    return model.name if model is not None and whole else name


def _letters(name: str) -> str:
    """A name without what people leave out: case, spaces, the word GPU."""
    return "".join(character for character in name.lower().removesuffix(" gpu") if character.isalnum())


def _gpu(card: Card, catalogue: Catalogue) -> Gpu:
    name, capability = card.name, card.compute_capability
    if name is not None and capability is None:
        if model := model_of(name, catalogue):
            capability = model.compute_capability
        elif card.truncated:
            capability = _capability_of_start(name, catalogue)
            name = None
    return Gpu(name, capability, card.memory_mib, card.mig)


def _capability_of_start(name: str, catalogue: Catalogue) -> str | None:
    """The capability that all cards have whose names begin as the table shows before it cuts the name off."""
    start = name.removeprefix("NVIDIA ").strip().lower()
    fitting = {
        model.compute_capability
        for model in catalogue.gpus
        if model.name.removeprefix("NVIDIA ").lower().startswith(start)
    }
    return fitting.pop() if start and len(fitting) == 1 else None


def _toolkits(observations: Iterable[Observation]) -> tuple[Toolkit, ...] | None:
    """Each version once a folder; what people say counts where no program or path tells."""
    told = ((fact, observation.trust) for observation in observations if isinstance(fact := observation.fact, Toolkit))
    seen = list(dict.fromkeys(told))
    if any(trust > Trust.STATED for _, trust in seen):
        seen = [(toolkit, trust) for toolkit, trust in seen if trust > Trust.STATED]
    paths = {toolkit.path for toolkit, _ in seen if toolkit.version is None}
    seen = [(toolkit, trust) for toolkit, trust in seen if toolkit.version is not None]
    if len(paths) == 1 and len({toolkit.version for toolkit, _ in seen}) == 1:
        seen = [(replace(toolkit, path=toolkit.path or min(paths, key=str)), trust) for toolkit, trust in seen]
    found: dict[tuple[str | None, str | None], Toolkit] = {}
    for toolkit, _ in seen:
        key = (toolkit.version, toolkit.path)
        found[key] = replace(toolkit, nvcc=toolkit.nvcc or (found[key].nvcc if key in found else None))
    placed = {toolkit.version: toolkit for toolkit in found.values() if toolkit.path}
    result = [
        replace(toolkit, nvcc=toolkit.nvcc or (found[nameless].nvcc if nameless in found else None))
        for (version, path), toolkit in found.items()
        if (nameless := (version, None)) and (path or version not in placed)
    ]
    return tuple(result) or None


def _compilers(observations: Iterable[Observation]) -> tuple[HostCompiler, ...] | None:
    seen = [
        (fact, observation.trust) for observation in observations if isinstance(fact := observation.fact, HostCompiler)
    ]
    best = max((trust for _, trust in seen), default=None)
    distinct = dict.fromkeys(compiler for compiler, trust in seen if trust == best)
    longer = [c for c in distinct if not any(_is_longer(other, c) for other in distinct)]
    return tuple(longer) or None


def _is_longer(other: HostCompiler, compiler: HostCompiler) -> bool:
    return other.kind == compiler.kind and f"{other.version}".startswith(f"{compiler.version}.")

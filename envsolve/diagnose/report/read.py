"""From what a person sends (a traceback, a log, a whole issue) to the facts of a machine and an environment.

Readers take observations from lines; here they are weighed against each other. Input given beside the text wins
over what is read from it. A number that might mean something else is ignored.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import asdict, replace
from packaging.version import Version

from envsolve.diagnose.model import ReportFacts, Seen, Value
from envsolve.diagnose.report import gpus, packages, prose, shell, system
from envsolve.diagnose.report.gpus import model_of
from envsolve.diagnose.report.observation import (
    Codes,
    Command,
    Fact,
    Field,
    GpuGroup,
    Image,
    Observation,
    Package,
    Scalar,
    Trust,
    Variable,
)
from envsolve.diagnose.report.text import Log, with_short_numbers
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import complete, driver_branch
from envsolve.machine.model import Driver, Gpu, HostCompiler, Machine, Platform, Toolkit
from envsolve.values import CudaVersion, DriverVersion

_READERS = (packages.READERS, gpus.READERS, prose.READERS, shell.READERS, system.READERS)

Record = TypeVar("Record", Machine, Driver, Platform)
FactOf = TypeVar("FactOf", bound=Fact)
_Pair: TypeAlias = "tuple[GpuGroup, Observation]"


def observe(log: Log, catalogue: Catalogue) -> Iterator[Observation]:
    """The observations of every reader, reader by reader."""
    return (observation for readers in _READERS for observation in readers(log, catalogue))


def read_report(
    text: str,
    catalogue: Catalogue,
    *,
    machine: Machine | None = None,
    installed: Mapping[str, Seen[str]] | None = None,
) -> ReportFacts:
    """Facts about a machine and an environment that a text contains.

    Args:
        text: An error, a log or a report; see :func:`decode` for a file's bytes.
        catalogue: Tells GPU names from other words, and a driver's own CUDA version from that of a compat library.
        machine: Given by option: it wins, field by field, over what is read.
        installed: Given by option (:func:`read_installed`): it wins package by package.
    """
    text = with_short_numbers(text)
    observations = sorted(observe(Log(text), catalogue), key=lambda observation: observation.line.index)
    facts = scalars(observations)
    read = machine_of(facts, observations, catalogue)
    python = Seen(given, "--machine", given) if machine and (given := machine.python) else facts.get(Field.PYTHON)
    codes = [seen(fact.codes, o) for fact, o in _of(Codes, observations)]
    return ReportFacts(
        text=text,
        machine=read if machine is None else completed(machine, read),
        installed={**installed_packages(observations), **(installed or {})},
        python=python,
        cuda=facts.get(Field.TORCH_CUDA),
        arch_list=codes[-1] if codes else None,
        nvcc=facts.get(Field.NVCC),
        images=_distinct(seen(fact.reference, o) for fact, o in _of(Image, observations)),
        commands=_distinct(seen(fact.text, o) for fact, o in _of(Command, observations)),
        variables={fact.name: seen(fact.value, o) for fact, o in _of(Variable, observations)},
    )


def seen(value: Value, observation: Observation) -> Seen[Value]:
    """The value with the place of the observation."""
    return Seen(value, f"line {observation.line.number}", observation.line.quote)


def _of(kind: type[FactOf], observations: Iterable[Observation]) -> Iterator[tuple[FactOf, Observation]]:
    return ((fact, observation) for observation in observations if isinstance(fact := observation.fact, kind))


def _distinct(values: Iterable[Seen[str]]) -> tuple[Seen[str], ...]:
    """Each value at its first place."""
    first: dict[str, Seen[str]] = {}
    for value in values:
        first.setdefault(value.value, value)
    return tuple(first.values())


# Observations, in the order of their lines, weighed against each other: one value per fact, or none if they disagree
# and none of them is more reliable.


def scalars(observations: Iterable[Observation]) -> Mapping[Field, Seen[str]]:
    """The value of each field.

    The most trusted kind decides. Of what programs printed the last value counts, because a report ends with the
    present; of what people said the first, because they go on to what they tried; what is implied counts if most of
    it agrees.
    """
    by_field: dict[Field, list[tuple[str, Observation]]] = {}
    for fact, observation in _of(Scalar, observations):
        by_field.setdefault(fact.field, []).append((fact.text, observation))
    chosen = {field: _chosen(values) for field, values in by_field.items()}
    return {field: value for field, value in chosen.items() if value is not None}


def _chosen(values: Sequence[tuple[str, Observation]]) -> Seen[str] | None:
    trust = max(observation.trust for _, observation in values)
    best = [(value, observation) for value, observation in values if observation.trust == trust]
    if trust >= Trust.PRINTED:
        value, observation = best[-1]
    elif trust == Trust.STATED:
        value, observation = best[0]
    else:
        value, count = Counter(value for value, _ in best).most_common(1)[0]
        if 2 * count <= len(best):
            return None
        observation = next(observation for text, observation in best if text == value)
    for longer, other in values:  # "535" in one place and "535.161.07" in another are one driver
        if longer.startswith(f"{value}."):
            value, observation = longer, other
    return seen(value, observation)


def installed_packages(observations: Iterable[Observation]) -> Mapping[str, Seen[str]]:
    """The version of each package that is installed in the end.

    Lines printed or implied are a history: the last state counts, and a removal ends it. A local part that another
    line shows of the same version is kept, because pip's messages omit it.
    """
    by_name: dict[str, list[tuple[str | None, Observation]]] = {}
    for fact, observation in _of(Package, observations):
        by_name.setdefault(fact.name, []).append((fact.version, observation))
    found = {name: _last_state(history) for name, history in by_name.items()}
    return {name: value for name, value in found.items() if value is not None}


def _last_state(history: Sequence[tuple[str | None, Observation]]) -> Seen[str] | None:
    trust = max(observation.trust for _, observation in history)
    facts = [entry for entry in history if entry[1].trust == trust]
    if trust == Trust.HINTED and len({version for version, _ in facts}) > 1:
        return None
    version, observation = facts[0] if trust <= Trust.STATED else facts[-1]
    if version is None:
        return None
    if "+" not in version:
        removals = [place for place, (text, _) in enumerate(history) if text is None]
        present = history[removals[-1] :] if removals else history
        locals_ = {text for text, _ in present if text and text.startswith(f"{version}+")}
        if len(locals_) == 1:
            version = locals_.pop()
            observation = next(observation for text, observation in history if text == version)
    return seen(version, observation)


# The machine.

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
    """The machine; fields that the text does not give are None, and ``sources`` has the line of each that it gives."""
    driver, driver_sources = _driver(scalars, catalogue)
    gpus, gpu_sources = _gpus(observations, catalogue)
    platform, platform_sources = _platform(scalars, catalogue)
    only = complete(Machine(gpus=gpus), catalogue).platform
    if only and platform:  # "and an x86_64 machine" is another one than that of a GPU of one processor
        platform = replace(platform, os=only.os, arch=only.arch)
    named = {field.value: scalars[field].where for field in (Field.DRIVER, Field.PYTHON) if field in scalars}
    machine = Machine(
        platform=platform,
        driver=driver,
        gpus=gpus,
        toolkits=_toolkits(observations),
        host_compilers=_compilers(observations),
        python=scalars[Field.PYTHON].value if Field.PYTHON in scalars else None,
        sources={**platform_sources, **named, **driver_sources, **gpu_sources},
    )
    return complete(machine, catalogue)


def completed(given: Machine, read: Machine) -> Machine:
    """``given``, with its unset fields filled from ``read`` if both can be the same machine."""
    driver, platform = given.driver, given.platform
    if driver is None or read.driver is None:
        driver = driver or read.driver
    elif _same_driver(driver, read.driver):
        driver = _filled(driver, read.driver)
    if platform is None or read.platform is None:
        platform = platform or read.platform
    elif not (platform.os and read.platform.os and platform.os != read.platform.os):
        platform = _filled(platform, read.platform)
    merged = _filled(replace(given, driver=driver, platform=platform), read)
    return replace(merged, sources={**read.sources, **given.sources})


def _same_driver(given: Driver, read: Driver) -> bool:
    if given.version and read.version:
        return DriverVersion.parse(given.version)[:1] == DriverVersion.parse(read.version)[:1]
    return not (given.cuda and read.cuda) or given.cuda == read.cuda


def _filled(value: Record, other: Record) -> Record:
    """A value whose None fields are filled from another value of the same type."""
    return replace(value, **{name: getattr(other, name) for name, own in asdict(value).items() if own is None})


def _platform(scalars: Mapping[Field, Seen[str]], catalogue: Catalogue) -> tuple[Platform | None, dict[str, str]]:
    """The system, and the source of each of its fields.

    A distribution has one glibc. A Python before 3.9 reports (and collect_env repeats) only the newest symbol version
    that the interpreter itself requires, so the distribution's decides if it is newer.
    """
    fields = [field for field in _PLATFORM if field in scalars]
    found = {field.value.partition(".")[2]: scalars[field].value for field in fields}
    sources = {field.value: scalars[field].where for field in fields}
    if not found:
        return None, {}
    wsl = True if found.pop("wsl", None) else None
    if wsl:
        found["os"] = "linux"  # the Windows around it shows in paths
    libc, reported = _libc_of(found.get("distro", ""), catalogue), found.get("libc")
    if libc is not None and (reported is None or _is_newer(libc, reported)):
        found["libc"] = libc
        sources[Field.LIBC.value] = f"catalogue ({found['distro']})"
    return Platform(**found, wsl=wsl), sources


def _libc_of(distro: str, catalogue: Catalogue) -> str | None:
    """The C library of a distribution; that of a major release if the catalogue has no minor ones."""
    name, _, version = distro.partition(" ")
    name = _IMAGE_NAMES.get(name, name)
    known = catalogue.distributions.get(name + version) or catalogue.distributions.get(name + version.split(".")[0])
    return known.libc if known is not None and version else None


def _is_newer(libc: str, reported: str) -> bool:
    (kind, version), (other, than) = libc.split(), reported.split()
    return kind == other and Version(version) > Version(than)


def _driver(scalars: Mapping[Field, Seen[str]], catalogue: Catalogue) -> tuple[Driver | None, dict[str, str]]:
    """The driver, and the sources of the CUDA versions that it and a compat library support.

    nvidia-smi and "found version 12080" report what the ``libcuda`` in use supports. If that is more than the branch
    of the kernel driver does, it is a compat one.
    """
    version, cuda, compat = scalars.get(Field.DRIVER), scalars.get(Field.DRIVER_CUDA), scalars.get(Field.COMPAT)
    if version is None and cuda is None and compat is None:
        return None, {}
    own = _own_cuda(version.value, catalogue) if version and Field.JETSON not in scalars else None
    if cuda and own and CudaVersion.parse(cuda.value) > CudaVersion.parse(own):
        sources = {Field.COMPAT.value: cuda.where, Field.DRIVER_CUDA.value: "catalogue (driver branch)"}
        return Driver(version.value if version else None, own, cuda.value), sources
    sources = {Field.DRIVER_CUDA.value: cuda.where} if cuda else {}
    sources |= {Field.COMPAT.value: compat.where} if compat else {}
    driver = Driver(*(fact.value if fact else None for fact in (version, cuda, compat)))
    if compat and cuda and not own and compat.value == cuda.value:
        driver = replace(driver, cuda=None)  # it is the compat library that answered
    return driver, sources


def _own_cuda(version: str, catalogue: Catalogue) -> str | None:
    """The CUDA version of a driver's branch; None for branches newer than the catalogue, and for L4T's."""
    number = DriverVersion.parse(version)[0]
    newest = max((int(branch.branch) for branch in catalogue.drivers), default=0)
    branch = driver_branch(version, catalogue)
    return branch.cuda if branch is not None and number <= newest and number != _TEGRA_BRANCH else None


def _gpus(observations: Sequence[Observation], catalogue: Catalogue) -> tuple[tuple[Gpu, ...] | None, dict[str, str]]:
    """The GPUs: of the best list that a program printed, otherwise those in messages, otherwise in people's words."""
    groups = list(_of(GpuGroup, observations))
    bare = {group.compute_capability: (group, o) for group, o in groups if group.name is None and group.count}
    said = (_mentioned(groups, trust, catalogue) for trust in (Trust.IMPLIED, Trust.STATED, Trust.HINTED))
    chosen = _listed(groups) or next(filter(None, said), []) or list(bare.values())
    if not chosen:
        return None, {}
    gpus = [gpu for group, _ in chosen for gpu in group.count * (_gpu(group, catalogue),)]
    if len(bare) == 1 and len({gpu.name for gpu in gpus}) == 1 and gpus[0].compute_capability is None:
        gpus = [replace(gpu, compute_capability=next(iter(bare))) for gpu in gpus]
    return tuple(gpus), {"gpus": f"line {chosen[0][1].line.number}"}


def _listed(groups: Sequence[_Pair]) -> list[_Pair]:
    """The GPUs of one list: one with whole names, the longest, the last."""
    lists: dict[int, list[_Pair]] = {}
    for group, observation in groups:
        if observation.trust == Trust.PRINTED and (group.name or group.listing is not None):
            key = observation.line.index if group.listing is None else group.listing
            lists.setdefault(key, []).append((group, observation))

    def worth(index: int) -> tuple[bool, int, int]:
        members = [group for group, _ in lists[index]]
        return not any(group.truncated for group in members), sum(group.count for group in members), index

    return lists[max(lists, key=worth)] if lists else []


def _mentioned(groups: Sequence[_Pair], trust: Trust, catalogue: Catalogue) -> list[_Pair]:
    """Each model once, with the largest count; of those, the ones with a capability that the report gives."""
    found: dict[str, _Pair] = {}
    for group, observation in groups:
        if observation.trust != trust or group.name is None:
            continue
        name = _full_name(group.name, catalogue) if trust <= Trust.STATED else group.name
        if name not in found or group.count > found[name][0].count:
            found[name] = (dataclasses.replace(group, name=name), observation)
    given = {group.compute_capability for group, o in groups if group.name is None and o.trust > trust}
    agreeing = [pair for pair in found.values() if _gpu(pair[0], catalogue).compute_capability in given]
    return agreeing or list(found.values())


def _full_name(name: str, catalogue: Catalogue) -> str:
    """The model's full name if a person's words mean one model; an ambiguous short name stays as it is."""
    model = model_of(name, catalogue)
    whole = model is not None and _letters(name) in {_letters(alias) for alias in (model.name, *model.aliases)}
    return model.name if model is not None and whole else name


def _letters(name: str) -> str:
    """A name without what people leave out: case, spaces, the word GPU."""
    return "".join(character for character in name.lower().removesuffix(" gpu") if character.isalnum())


def _gpu(group: GpuGroup, catalogue: Catalogue) -> Gpu:
    name, capability = group.name, group.compute_capability
    if name is not None and capability is None:
        if model := model_of(name, catalogue):
            capability = model.compute_capability
        elif group.truncated:
            capability = _capability_of_start(name, catalogue)
            name = None
    return Gpu(name, capability, group.memory_mib, group.mig)


def _capability_of_start(name: str, catalogue: Catalogue) -> str | None:
    """The capability of all models whose names begin with what the table shows before it cuts the name off."""
    start = name.removeprefix("NVIDIA ").strip().lower()
    models = (m for m in catalogue.gpus if m.name.removeprefix("NVIDIA ").lower().startswith(start))
    capabilities = {model.compute_capability for model in models}
    return capabilities.pop() if start and len(capabilities) == 1 else None


def _toolkits(observations: Iterable[Observation]) -> tuple[Toolkit, ...] | None:
    """Each version once per directory, the most reliable first; what people say counts only without the others."""
    every = sorted(_of(Toolkit, observations), key=lambda pair: -pair[1].trust)
    toolkits = [toolkit for toolkit, o in every if o.trust > Trust.STATED] or [toolkit for toolkit, _ in every]
    by_version: dict[str | None, list[Toolkit]] = {}
    for toolkit in toolkits:
        by_version.setdefault(toolkit.version, []).append(toolkit)
    directories = {toolkit.path for toolkit in by_version.pop(None, ())}
    only = directories.pop() if len(directories) == len(by_version) == 1 else None
    found = [toolkit for version, own in by_version.items() for toolkit in _placed(version, own, only)]
    return tuple(found) or None


def _placed(version: str | None, toolkits: Sequence[Toolkit], only: str | None) -> Iterator[Toolkit]:
    """A version in each of its directories; ``only`` is the directory of those that no line places."""
    for path in dict.fromkeys(toolkit.path or only for toolkit in toolkits):
        if path or not any(toolkit.path for toolkit in toolkits):
            nvcc = any(toolkit.nvcc for toolkit in toolkits if toolkit.path in (path, None))
            yield Toolkit(version, path, nvcc or None)


def _compilers(observations: Iterable[Observation]) -> tuple[HostCompiler, ...] | None:
    """The compilers of the most reliable lines, without those that another line states more precisely."""
    every = list(_of(HostCompiler, observations))
    best = max((observation.trust for _, observation in every), default=None)
    compilers = dict.fromkeys(compiler for compiler, observation in every if observation.trust == best)
    shortened = {
        c for c in compilers for o in compilers if c.kind == o.kind and f"{o.version}".startswith(f"{c.version}.")
    }
    return tuple(compiler for compiler in compilers if compiler not in shortened) or None

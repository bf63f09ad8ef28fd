"""The machine: the value that detection, profile files and target strings all produce.

The structs mirror the ``envsolve.machine/2`` JSON field by field. ``None`` means "not known", an empty tuple means
"known to have none"; nothing is ever filled in silently.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec.structs import asdict, force_setattr, replace

from envsolve.values import ComputeCapability, CudaVersion, DriverVersion

Schema = Literal["envsolve.machine/1", "envsolve.machine/2"]
SCHEMA: Schema = "envsolve.machine/2"
SCHEMAS = get_args(Schema)
NVIDIA = "nvidia"


Found = TypeVar("Found")


class Platform(msgspec.Struct, frozen=True):
    """Operating system side of a machine.

    Attributes:
        os: ``linux`` or ``windows``.
        arch: ``x86_64`` or ``aarch64``.
        libc: ``glibc 2.35`` or ``musl 1.2``.
        distro: ``ubuntu 22.04``.
        wsl: Whether this Linux runs under Windows Subsystem for Linux.
        container: ``docker``, ``podman``, ``apptainer``, ... ; None on bare metal or where unknown.
        jetson: L4T release (``36.3``) on a Jetson; None elsewhere.
    """

    os: str | None = None
    arch: str | None = None
    libc: str | None = None
    distro: str | None = None
    wsl: bool | None = None
    container: str | None = None
    jetson: str | None = None


class Driver(msgspec.Struct, frozen=True):
    """The NVIDIA kernel driver.

    Attributes:
        version: ``550.54.15``, or only a branch (``550``).
        cuda: The newest CUDA version the driver itself supports, ``12.4``; never that of a compat ``libcuda``.
        compat_libcuda: CUDA version of a cuda-compat ``libcuda`` that the loader would find first, or None.
    """

    version: str | None = None
    cuda: str | None = None
    compat_libcuda: str | None = None

    @property
    def release(self) -> DriverVersion | None:
        """The version as a comparable value; None if unknown."""
        return DriverVersion.parse(self.version) if self.version else None

    @property
    def cuda_version(self) -> CudaVersion | None:
        """The newest CUDA version as a comparable value; None if unknown."""
        return CudaVersion.parse(self.cuda) if self.cuda else None

    def supports(self, cuda: str) -> bool:
        """Whether the driver is known to support a CUDA version in full, PTX included."""
        return self.cuda_version is not None and self.cuda_version >= CudaVersion.parse(cuda)


class Accelerator(msgspec.Struct, frozen=True):
    """One accelerator of any vendor.

    Attributes:
        vendor: ``nvidia``, ``amd``, ``intel`` or ``apple``.
        name: As its driver or the user names it.
        arch: The vendor's name of its architecture: the compute capability ``9.0``, or ``gfx1100``.
        memory_mib: Total memory in MiB.
        uuid: As its driver gives it.
        mig: Whether MIG mode is enabled; None for other vendors.
    """

    vendor: str
    name: str | None = None
    arch: str | None = None
    memory_mib: int | None = None
    uuid: str | None = None
    mig: bool | None = None

    @property
    def label(self) -> str:
        """A short name for messages: ``NVIDIA H100 (cc 9.0)``, ``Radeon RX 7900 XTX (gfx1100)``."""
        name = self.name or ("GPU" if self.vendor == NVIDIA else f"{self.vendor} GPU")
        return f"{name} ({'cc ' if self.vendor == NVIDIA else ''}{self.arch})" if self.arch else name


class Gpu(msgspec.Struct, frozen=True):
    """One visible GPU (or MIG slice).

    Attributes:
        name: As the driver or the user names it.
        compute_capability: ``8.9``.
        memory_mib: Total memory in MiB.
        mig: Whether MIG mode is enabled.
        uuid: ``GPU-...`` or ``MIG-...``.
    """

    name: str | None = None
    compute_capability: str | None = None
    memory_mib: int | None = None
    mig: bool | None = None
    uuid: str | None = None

    @property
    def cc(self) -> ComputeCapability | None:
        """The compute capability as a comparable value, or None if unknown."""
        return ComputeCapability.parse(self.compute_capability) if self.compute_capability else None

    @property
    def accelerator(self) -> Accelerator:
        """This GPU as an accelerator of its vendor."""
        return Accelerator(NVIDIA, self.name, self.compute_capability, self.memory_mib, self.uuid, self.mig)

    @property
    def label(self) -> str:
        """A short name for messages: ``NVIDIA H100 (cc 9.0)``."""
        return self.accelerator.label


class Toolkit(msgspec.Struct, frozen=True):
    """A CUDA toolkit on disk: its version, root directory, and whether ``nvcc`` is in it."""

    version: str | None = None
    path: str | None = None
    nvcc: bool | None = None

    @property
    def cuda_version(self) -> CudaVersion | None:
        """The version without its patch level; None if unknown."""
        return CudaVersion.parse(self.version) if self.version else None


class HostCompiler(msgspec.Struct, frozen=True):
    """A C++ compiler: kind (``gcc``, ``clang``, ``msvc``), version, path."""

    kind: str
    version: str | None = None
    path: str | None = None


class Interpreter(msgspec.Struct, frozen=True):
    """A Python interpreter: version ``3.12.1`` and executable path."""

    version: str
    path: str


class Installer(msgspec.Struct, frozen=True):
    """An installer found on ``PATH``: name (``uv``, ``pip``, ``conda``, ...), version, path."""

    name: str
    version: str | None = None
    path: str | None = None


class Machine(msgspec.Struct, frozen=True):
    """A machine as envsolve sees it.

    Attributes:
        gpus: NVIDIA's GPUs; None if it is not known whether there are any.
        accelerators: The GPUs of all vendors, NVIDIA's first: those of ``gpus`` are always among them.
        python: The Python version that an environment is meant to use, ``3.12``.
        pythons: Interpreters found.
        installers: Installers found.
        environment: CUDA-related environment variables that were set (``CUDA_HOME``, ``CUDA_VISIBLE_DEVICES``, ...).
        sources: Where each field came from: ``{"driver.version": "nvml", ...}``.
    """

    schema: Schema = SCHEMA
    platform: Platform | None = None
    driver: Driver | None = None
    gpus: tuple[Gpu, ...] | None = None
    accelerators: tuple[Accelerator, ...] | None = None
    toolkits: tuple[Toolkit, ...] | None = None
    host_compilers: tuple[HostCompiler, ...] | None = None
    python: str | None = None
    pythons: tuple[Interpreter, ...] | None = None
    installers: tuple[Installer, ...] | None = None
    environment: Mapping[str, str] | None = None
    sources: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        """List the GPUs among the accelerators, in place of those of the machine that this one was copied from."""
        others = tuple(one for one in self.accelerators or () if one.vendor != NVIDIA)
        known = self.gpus is not None or bool(others)
        own = tuple(gpu.accelerator for gpu in self.gpus or ())
        force_setattr(self, "accelerators", (*own, *others) if known else None)

    def with_compat(self, cuda: str) -> Machine:
        """The machine with the compat ``libcuda`` of a CUDA version first on the loader path."""
        release = str(CudaVersion.parse(cuda))
        return replace(self, driver=replace(self.driver, compat_libcuda=release)) if self.driver else self


# One machine with what another says: what options change of a profile, and what a question supposes.


def changed(machine: Machine, said: Machine) -> Machine:
    """A machine with the platform, driver, GPUs and Python of another; unset fields stay as they are.

    Another operating system takes the old one's libc and distribution away. A cuda-compat ``libcuda`` stays on the
    loader path whatever the driver.
    """
    return replace(
        machine,
        platform=_platform(machine.platform, said.platform),
        driver=_driver(machine.driver, said.driver),
        gpus=machine.gpus if said.gpus is None else said.gpus,
        accelerators=machine.accelerators if said.accelerators is None else said.accelerators,
        python=said.python or machine.python,
    )


def _platform(own: Platform | None, said: Platform | None) -> Platform | None:
    if own is None or said is None or (said.os is not None and said.os != own.os):
        return own if said is None else said
    stated = {name: value for name, value in asdict(said).items() if value is not None}
    return replace(own, **stated)


def _driver(own: Driver | None, said: Driver | None) -> Driver | None:
    if said is None or own is None:
        return own if said is None else said
    return replace(said, compat_libcuda=said.compat_libcuda or own.compat_libcuda)


# A machine in words, for people.


UNKNOWN = "unknown"
_WIDTH = 12
_LONGEST_VALUE = 100


def describe(machine: Machine, *, verbose: bool = False) -> str:
    """The machine as lines of text: one fact a line, "unknown" where it is not known.

    Args:
        machine: What to describe.
        verbose: Also list every interpreter and installer, and where each field came from; leave no value out.
    """
    return "\n".join(f"{label:<{_WIDTH}}{text}".rstrip() for label, text in _lines(machine, verbose))


def one_line(machine: Machine) -> str:
    """The machine in one line: ``2x NVIDIA H100 (cc 9.0), driver 580.95, linux x86_64, glibc 2.35``.

    Without its own Python: what is planned for it has one Python, and that may be another.
    """
    return ", ".join(filter(None, _traits(machine)))


def told_apart(machines: Sequence[Machine]) -> tuple[str, ...]:
    """Each machine by its GPUs and what distinguishes it: ``Tesla V100 (cc 7.0), driver 535.104.05``."""
    traits = [_traits(machine) for machine in machines]
    differing = [len({own[place] for own in traits}) > 1 for place in range(len(_traits(Machine())))]
    return tuple(
        ", ".join(t for place, t in enumerate(own) if t and (place == 0 or differing[place])) for own in traits
    )


def _traits(machine: Machine) -> tuple[str | None, ...]:
    """GPUs, driver, system, libc; None for what is not known."""
    platform, driver = machine.platform, machine.driver
    counts = Counter(gpu.label for gpu in machine.accelerators or ())
    cards = " + ".join(f"{count}x {name}" if count > 1 else name for name, count in counts.items())
    return (
        "GPUs unknown" if machine.accelerators is None else cards or "no GPU",
        f"driver {driver.version}" if driver and driver.version else None,
        " ".join(filter(None, (platform.os, platform.arch))) or None if platform else None,
        platform.libc if platform else None,
    )


def _lines(machine: Machine, verbose: bool) -> Iterator[tuple[str, str]]:
    yield "platform", _described(machine.platform)
    yield "driver", _drivers(machine)
    yield from _items("GPU", _gpus(machine), machine.sources.get("gpus"))
    toolkits = _texts(machine.toolkits, lambda t: f"CUDA {t.version or UNKNOWN}{'' if t.nvcc else ', no nvcc'}")
    yield from _items("toolkit", toolkits and _with_paths(toolkits, machine.toolkits))
    compilers = _texts(machine.host_compilers, lambda c: f"{_program(c)} {c.version or UNKNOWN}")
    yield from _items("compiler", compilers and _with_paths(compilers, machine.host_compilers))
    yield "python", machine.python or UNKNOWN
    # In the order of PATH they look random once a version manager has put a dozen there; --verbose keeps that order.
    known = machine.pythons if verbose else machine.pythons and sorted(machine.pythons, key=_newest_last)
    pythons = _texts(known, lambda p: p.version)
    installers = _texts(machine.installers, lambda i: f"{i.name} {i.version or UNKNOWN}")
    for label, texts, found in (("pythons", pythons, known), ("installers", installers, machine.installers)):
        if texts is not None:
            yield from _items(label, _with_paths(texts, found) if verbose else [", ".join(texts) or "none"])
    for name, value in sorted((machine.environment or {}).items()):
        yield "environment", f"{name}={value if verbose else _shortened(value)}"
    for name, source in sorted(machine.sources.items()) if verbose else ():
        yield "source", f"{name}: {source}"


def _texts(found: Sequence[Found] | None, text: Callable[[Found], str]) -> list[str] | None:
    return None if found is None else list(map(text, found))


def _program(compiler: HostCompiler) -> str:
    """The program's name, since the C and the C++ compiler of a family have the same kind."""
    plus = "++" in (compiler.path or "").replace("\\", "/").rsplit("/", 1)[-1]
    return {"gcc": "g++", "clang": "clang++"}.get(compiler.kind, compiler.kind) if plus else compiler.kind


def _newest_last(python: Interpreter) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", python.version)]


def _with_paths(texts: Sequence[str], found: Sequence[Any] | None) -> list[str]:
    return [f"{text} ({one.path})" if one.path else text for text, one in zip(texts, found or (), strict=True)]


def _items(label: str, texts: Sequence[str] | None, why: str | None = None) -> Iterator[tuple[str, str]]:
    """One line per item with the label on the first; without items, the reason if it is known."""
    if not texts:
        word = UNKNOWN if texts is None else "none"
        yield label, f"{word}: {why.removeprefix('unknown: ')}" if why else word
    for index, text in enumerate(texts or ()):
        yield label if index == 0 else "", text


def _described(platform: Platform | None) -> str:
    if platform is None:
        return UNKNOWN
    name = "-".join(filter(None, (platform.os, platform.arch))) or UNKNOWN
    extras = [
        platform.distro,
        platform.libc,
        "WSL" if platform.wsl else None,
        f"in {platform.container}" if platform.container else None,
        f"Jetson L4T {platform.jetson}" if platform.jetson else None,
    ]
    return ", ".join([name, *filter(None, extras)])


def _drivers(machine: Machine) -> str:
    driver: Driver | None = machine.driver
    if driver is None:
        why = machine.sources.get("driver")
        return f"none: {why}" if why else UNKNOWN
    text = f"{driver.version or UNKNOWN}, supports CUDA up to {driver.cuda or UNKNOWN}"
    if driver.compat_libcuda:
        text += f"; a compat libcuda of CUDA {driver.compat_libcuda} comes first on the loader path"
    return text


def _gpus(machine: Machine) -> list[str] | None:
    """One line for all equal GPUs."""
    if machine.accelerators is None:
        return None
    counts = Counter(map(_gpu, machine.accelerators))
    return [f"{count}x {text}" if count > 1 else text for text, count in counts.items()]


def _gpu(gpu: Accelerator) -> str:
    own = gpu.vendor == NVIDIA
    facts = [
        gpu.name or "GPU",
        f"{'compute capability' if own else f'{gpu.vendor}, architecture'} {gpu.arch or UNKNOWN}",
        f"{gpu.memory_mib} MiB" if gpu.memory_mib is not None else None,
        "MIG" if gpu.mig else None,
    ]
    return ", ".join(filter(None, facts))


def _shortened(value: str) -> str:
    if len(value) <= _LONGEST_VALUE:
        return value
    return f"{value[:_LONGEST_VALUE]}... ({len(value)} characters; --verbose shows all)"

"""A machine in words, for a person. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from envsolve.machine.model import NVIDIA, Accelerator, Driver, Machine, Platform, traits

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
    return ", ".join(filter(None, traits(machine)))


def _lines(machine: Machine, verbose: bool) -> Iterator[tuple[str, str]]:
    yield "platform", _platform(machine.platform)
    yield "driver", _driver(machine)
    yield from _items("GPU", _gpus(machine), machine.sources.get("gpus"))
    toolkits = machine.toolkits
    yield from _items(
        "toolkit",
        None
        if toolkits is None
        else [f"CUDA {t.version or UNKNOWN}{'' if t.nvcc else ', no nvcc'}{_at(t.path)}" for t in toolkits],
    )
    compilers = machine.host_compilers
    yield from _items(
        "compiler", None if compilers is None else [f"{c.kind} {c.version or UNKNOWN}{_at(c.path)}" for c in compilers]
    )
    yield "python", machine.python or UNKNOWN
    if machine.pythons is not None:
        versions = [p.version for p in machine.pythons]
        yield from _items(
            "pythons",
            [f"{p.version}{_at(p.path)}" for p in machine.pythons] if verbose else [", ".join(versions) or "none"],
        )
    if machine.installers is not None:
        found = [f"{i.name} {i.version or UNKNOWN}" for i in machine.installers]
        yield from _items(
            "installers",
            [f"{text}{_at(i.path)}" for text, i in zip(found, machine.installers, strict=True)]
            if verbose
            else [", ".join(found) or "none"],
        )
    for name, value in sorted((machine.environment or {}).items()):
        yield "environment", f"{name}={value if verbose else _shortened(value)}"
    if verbose:
        for name, source in sorted(machine.sources.items()):
            yield "source", f"{name}: {source}"


def _items(label: str, texts: list[str] | None, why: str | None = None) -> Iterator[tuple[str, str]]:
    """One line an item, the label on the first; why there is none, where that is told."""
    if not texts:
        word = UNKNOWN if texts is None else "none"
        yield label, f"{word}: {why.removeprefix('unknown: ')}" if why else word
    for index, text in enumerate(texts or ()):
        yield label if index == 0 else "", text


def _platform(platform: Platform | None) -> str:
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


def _driver(machine: Machine) -> str:
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


def _at(path: str | None) -> str:
    return f" ({path})" if path else ""

"""``lock-incomplete``: what torch needs to be loaded is not all there, never installed or removed in part."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from packaging.requirements import Requirement

from envsolve.diagnose.environment.advice import very_torch
from envsolve.diagnose.environment.distributions import LIBRARY
from envsolve.diagnose.environment.loading import unresolved
from envsolve.diagnose.environment.model import Distribution, Environment, SharedLibrary, TorchFiles
from envsolve.diagnose.environment.needs import needs, pinned, torch_distribution
from envsolve.diagnose.finding import Finding, Grounds
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene

_RUNTIME = re.compile(r"nvidia-[a-z0-9-]+|triton|pytorch-triton|cuda-bindings|cuda-toolkit")

_EXPLANATION = (
    "Torch's wheel does not hold NVIDIA's libraries; it requires them as wheels of their own, and loads them from "
    "there. Here {what}. A lock made for another platform, an install without dependencies, or an uninstall that "
    "took files of two wheels leaves such a gap, and installing what is missing closes it."
)
_CONDA = (
    "conda's records name files that are gone: {what}. Something outside conda removed them, most often pip or a "
    "copy that was cut off. Installing the package again puts them back."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Hold what torch requires against what is there: distributions, the files of their records, and needed names."""
    own = torch_distribution(environment)
    wanted = {name: r for name, r in needs(environment, own).items() if _RUNTIME.fullmatch(name)}
    absent = [r for name, r in wanted.items() if environment.distribution(name) is None]
    halved = list(_concerned(environment, own, wanted))
    nowhere = unresolved(environment) if environment.torch and environment.torch.cuda else {}
    cut = [library for library in environment.libraries if library.cut_off and library.owner]
    gaps = [d for d in halved if _matters(d) or any(library.owner == d.name for library in cut)]
    # What another copy stands in for is no gap: conda and system packagers bring the libraries without the wheels.
    unmet = [r for r in absent if nowhere or "triton" in r.name]
    if environment.torch and (gaps or unmet or nowhere):
        yield _gap(scene, environment.torch, own, unmet, gaps, tuple(nowhere), cut, environment.unreadable)
    yield from _conda(environment)


def _concerned(
    environment: Environment, own: Distribution | None, wanted: Mapping[str, Requirement]
) -> Iterator[Distribution]:
    if own is not None:
        yield own
    yield from (d for name in wanted if (d := environment.distribution(name)) is not None)


def _matters(distribution: Distribution) -> bool:
    """Whether a library or a module is gone, and not only a licence or a header."""
    return any(LIBRARY.search(path) or path.endswith(".py") for path in distribution.missing)


def _gap(
    scene: Scene,
    torch: TorchFiles,
    own: Distribution | None,
    absent: list[Requirement],
    halved: list[Distribution],
    nowhere: tuple[str, ...],
    cut: list[SharedLibrary],
    unreadable: tuple[str, ...],
) -> Finding:
    parts, evidence = [], []
    if absent:
        parts.append(f"{_listed([r.name for r in absent])} {'is' if len(absent) == 1 else 'are'} not installed")
        place = own.info if own else torch.site
        evidence += [f"{place}: requires {pinned(r)}, which is not installed" for r in absent]
    for distribution in halved:
        if _matters(distribution):
            files = [path for path in distribution.missing if LIBRARY.search(path)] or list(distribution.missing)
            parts.append(f"{PurePosixPath(files[0]).name} of {distribution.label} is gone")
            count = len(distribution.missing)
            evidence.append(f"{distribution.info}/RECORD: files that are gone: {count}, {files[0]} among them")
        short = [library.path for library in cut if library.owner == distribution.name]
        if short:
            parts.append(f"{PurePosixPath(short[0]).name} of {distribution.label} is cut off")
            evidence.append(f"{short[0]}: shorter than its own header says")
    if nowhere:
        evidence.append(f"{torch.site}/torch/lib: needs {_listed(list(nowhere))}, which is nowhere on the loader's way")
        if not parts:
            parts.append(f"{_listed(list(nowhere))} {'is' if len(nowhere) == 1 else 'are'} nowhere on the loader's way")
    again = [f"{d.name}=={d.version}" for d in halved]
    steps = []
    if absent:
        steps.append("pip install --no-deps " + " ".join(pinned(r) for r in absent))
    if again:
        steps.append("pip install --force-reinstall --no-deps " + " ".join(again))
    if steps:
        remedy = Remedy("Install what is missing, in the releases that this torch pins.", " && ".join(steps))
    else:
        command = f"pip install --force-reinstall {very_torch(scene, torch)}"
        remedy = Remedy("Install torch again with all that it requires.", command)
    text = _EXPLANATION.format(what=", and ".join(parts))
    return Finding("lock-incomplete", Grounds.READ, text, (*evidence, *unreadable), (remedy,))


def _conda(environment: Environment) -> Iterator[Finding]:
    broken = [p for p in environment.conda if any(LIBRARY.search(path) for path in p.missing)]
    if environment.kind not in ("conda", "pixi") or not broken:
        return
    what = _listed([f"{PurePosixPath(p.missing[0]).name} of {p.name} {p.version}" for p in broken])
    evidence = tuple(f"{p.record}: {p.missing[0]} is gone" for p in broken)
    names = " ".join(f"{p.name}={p.version}={p.build}" for p in broken)
    remedy = Remedy("Install those packages again.", f"conda install --force-reinstall {names}")
    yield Finding("lock-incomplete", Grounds.READ, _CONDA.format(what=what), evidence, (remedy,))


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

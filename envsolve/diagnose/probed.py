"""What was tried in an environment, as text for the same reasoning and as findings of its own. Pure.

An error that a probe met is told by the signatures like any other. Beyond that, what was seen is held against what the
files say: the torch that was imported, the libraries that were mapped, and what works although its files raise doubts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from envsolve.diagnose.environment.loading import CUDA_LIBRARY
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.environment.running.shadowed import off_the_path
from envsolve.diagnose.environment.running.two_torches import CONSEQUENCES
from envsolve.diagnose.finding import Finding, Grounds, RuledOut
from envsolve.diagnose.model import Diagnoses, Probe, Remedy
from envsolve.files import real_path

_LINE = re.compile(r"line (\d+)")

_ELSEWHERE = (
    "Python imports {seen} from {place}, though the environment's own paths lead to {own}. Something moves the path "
    "while Python starts: code in a .pth file, sitecustomize, the hook of an editable install, or a start script. "
    "What is installed and what runs are two different builds."
)
_MAPPED = (
    "The process has mapped {name} from {place}, and not the environment's own copy of {owner}, and {step} does not "
    "work in it. Torch's libraries are made for the copies that were installed with them. Nothing has to be "
    "installed: the other copy must leave the loader's way."
)


@dataclass(frozen=True, slots=True)
class Fed:
    """A text with what the probes said at its end.

    Attributes:
        text: All of it.
        starts: The number of the first line of each probe.
        names: Their names.
    """

    text: str
    starts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def named(self, found: Diagnoses) -> Diagnoses:
        """Diagnoses whose evidence names the probe in place of a line that nobody has."""
        diagnoses = (replace(d, evidence=tuple(map(self._place, d.evidence))) for d in found.diagnoses)
        return replace(found, diagnoses=tuple(diagnoses))

    def _place(self, evidence: str) -> str:
        match = _LINE.match(evidence)
        at = bisect_right(self.starts, int(match[1])) if match else 0
        return f"{self.names[at - 1]}{evidence[match.end() :]}" if match and at else evidence


def fed(log: str, probes: Sequence[Probe]) -> Fed:
    """A text continued by the words of the probes; as it is where nothing was tried."""
    parts, starts = [log] if log else [], []
    tried = [probe for probe in probes if probe.outcome != "skipped"]
    for probe in tried:
        starts.append(1 + sum(part.count("\n") + 1 for part in parts))
        said = probe.printed if probe.outcome == "works" else f"{probe.printed}\n{probe.detail}"
        parts.append(said.replace("\r\n", "\n").replace("\r", "\n"))
    return Fed("\n".join(parts), tuple(starts), tuple(probe.name for probe in tried))


def held_against(
    environment: Environment, probes: Sequence[Probe], answers: Sequence[Finding | RuledOut]
) -> list[Finding | RuledOut]:
    """What the probes alone show, before the other answers; doubts that a run has dispelled are ruled out."""
    seen = [*_imported_elsewhere(environment, probes), *_mapped_elsewhere(environment, probes)]
    if not _everything_works(probes):
        return [*seen, *answers]
    return [*seen, *(_dispelled(answer) for answer in answers)]


def _everything_works(probes: Sequence[Probe]) -> bool:
    """Whether kernels ran, and nothing that was tried failed."""
    return any(p.gpu and p.outcome == "works" for p in probes) and not any(p.failed for p in probes)


def _dispelled(answer: Finding | RuledOut) -> Finding | RuledOut:
    if isinstance(answer, Finding) and answer.grounds is Grounds.NOTICED and answer.cause.startswith("library-"):
        return RuledOut(f"{answer.cause}: {answer.evidence[0]}; yet every kernel that was tried gave right values")
    return answer


def _imported_elsewhere(environment: Environment, probes: Sequence[Probe]) -> Iterator[Finding]:
    own = environment.torch
    for probe in probes:
        file, version = probe.seen.get("file"), probe.seen.get("version")
        if own is None or file is None:
            continue
        site = Path(file).parent.parent
        if site == real_path(Path(own.site)) or version == own.version:
            continue
        text = _ELSEWHERE.format(seen=f"torch {version}", place=site, own=own.label)
        evidence = (f"{probe.name}: torch {version} from {file}", f"{own.site}/torch/version.py: {own.label}")
        remedy = Remedy(
            "Find what puts that folder first, and take it out: python -v shows in which order.",
            f"{environment.prefix}/bin/python -v -c 'import torch' 2>&1 | grep -m 40 -E 'sitecustomize|\\.pth|torch'",
        )
        yield Finding("torch-replaced", Grounds.READ, text, evidence, (remedy,), CONSEQUENCES)


def _mapped_elsewhere(environment: Environment, probes: Sequence[Probe]) -> Iterator[Finding | RuledOut]:
    """Copies of the environment's own CUDA libraries that came from elsewhere."""
    own = {library.soname: library for library in environment.libraries}
    inside = {str(real_path(Path(environment.prefix))), *(library.real for library in environment.libraries)}
    failed = next((probe for probe in probes if probe.failed and probe.name != "driver"), None)
    told: dict[str, str] = {}
    for probe in probes:
        for place in probe.seen.get("mapped", "").splitlines():
            name = PurePosixPath(place).name
            known = next((s for s in own if name == s or name.startswith(f"{s}.")), None)
            foreign = place not in inside and not any(place.startswith(f"{folder}/") for folder in inside)
            if known and CUDA_LIBRARY.fullmatch(known) and foreign:
                told.setdefault(known, place)
    if not told:
        return
    if failed is None:
        yield from (RuledOut(f"{place} is mapped in place of {own[n].path}, and works") for n, place in told.items())
        return
    name, place = next(iter(told.items()))
    text = _MAPPED.format(name=name, place=place, owner=own[name].owner or "that", step=failed.name)
    evidence = tuple(f"mapped: {place}, not {own[n].path}" for n, place in told.items())
    folders = {str(PurePosixPath(place).parent) for place in told.values()}
    yield Finding("library-shadowed", Grounds.READ, text, evidence, tuple(off_the_path(environment, folders)))

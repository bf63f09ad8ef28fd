"""Whether the environments of a machine work there: a line for each, from files only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envsolve.diagnose.cause_files import causes
from envsolve.diagnose.environment import examined, report_of
from envsolve.diagnose.model import Finding, Grounds, ReportFacts
from envsolve.diagnose.reason import in_order
from envsolve.diagnose.scene import scene_of
from envsolve.environment.model import Environment, Kind, TorchFiles, torch_distribution
from envsolve.environment.read import read_outline
from envsolve.errors import UsageError
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Machine
from envsolve.rules.judge import Judge, as_judged, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.verdict import Level, Verdict
from envsolve.values import CudaVersion

SCHEMA: Literal["envsolve.environments/1"] = "envsolve.environments/1"
Works = Literal["yes", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class Surveyed:
    """One environment.

    Attributes:
        prefix: Its root directory.
        kind: What created it; None if it cannot be read.
        python: Version of its interpreter.
        torch: Version of the torch that it imports; None if it has none.
        cuda: The toolkit of that torch.
        works: Whether that torch runs on every GPU of the machine, or on its CPU if it has none; None without torch.
        why: What decides, in words.
        causes: The codes of what is wrong, as ``envsolve diagnose --prefix`` names them.
    """

    prefix: str
    kind: Kind | None
    python: str | None
    torch: str | None
    cuda: str | None
    works: Works | None
    why: str
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """The answer of ``envsolve envs``."""

    schema: Literal["envsolve.environments/1"]
    environments: tuple[Surveyed, ...]


def survey(prefixes: Sequence[Path], machine: Machine, catalogue: Catalogue, environ: Mapping[str, str]) -> Survey:
    """Read environments and judge each on a machine; one that cannot be read is listed with the reason."""
    return Survey(SCHEMA, tuple(_surveyed(prefix, machine, catalogue, environ) for prefix in prefixes))


def _surveyed(prefix: Path, machine: Machine, catalogue: Catalogue, environ: Mapping[str, str]) -> Surveyed:
    try:
        environment = read_outline(prefix, environ)
    except UsageError as error:
        return Surveyed(str(prefix), None, None, None, None, None, str(error))
    torch = environment.torch
    if torch is None:
        return Surveyed(str(prefix), environment.kind, environment.python, None, None, None, "no torch")
    scene = scene_of(report_of(environment, ReportFacts("", machine)), (), catalogue)
    answers = (answer for answer in examined(environment, scene) if isinstance(answer, Finding))
    found = in_order(list(answers), scene)
    works, why = _answer(torch, _verdict(environment, torch, machine, catalogue), machine)
    stops = [finding for finding in found if causes().files[finding.cause].stops == "running"]
    if works != "no" and stops:
        # Files that only often do harm may do none here: they make a yes unknown, not a no.
        works = "unknown" if all(finding.grounds is Grounds.NOTICED for finding in stops) else "no"
        why = f"{stops[0].cause}: {next(iter(stops[0].evidence), stops[0].explanation)}"
    if environment.program is None:
        works, why = "no", "its Python is missing: bin/python does not exist, or is a link to one that does not"
    codes = tuple(finding.cause for finding in found)
    return Surveyed(str(prefix), environment.kind, environment.python, torch.version, torch.cuda, works, why, codes)


def _answer(torch: TorchFiles, verdict: Verdict, machine: Machine) -> tuple[Works, str]:
    failed = "; ".join(reason.text for reason in verdict.failures if not reason.rule.startswith("triton"))
    if torch.version is None:
        return "unknown", "torch/version.py is missing or damaged"
    if torch.cuda and machine.gpus == ():
        return "yes", "only on the CPU: the machine has no NVIDIA GPU"
    if verdict.level is Level.NONE:
        return "no", failed
    if verdict.level is Level.UNKNOWN:
        return "unknown", "; ".join(r.text for r in verdict.reasons if r.ok is None)
    if not machine.gpus:
        return "yes", "a CPU build, and the machine has no GPU"
    without = "; Triton's kernels do not run" if verdict.triton is False else ""
    return "yes", f"{verdict.code} runs on {machine.gpus[0].label}{without}"


def _verdict(environment: Environment, torch: TorchFiles, machine: Machine, catalogue: Catalogue) -> Verdict:
    """The rules' word on the torch as it was read from disk, whatever the catalogue knows of its version."""
    own = torch_distribution(environment)
    cuda = torch.cuda
    build = Build(
        package="torch",
        version=(torch.version or "0").partition("+")[0],
        variant=CudaVersion.parse(cuda).variant if cuda else "cpu",
        platform=f"linux_{environment.arch}" if environment.arch else "any",
        pythons=(),
        index="default",
        evidence=Evidence.MEASURED,
        source="",
        code=torch.code,
        requires=own.requires if own else None,
        cuda=cuda,
    )
    judged = as_judged(machine, None, catalogue.drivers)
    return worst(Judge(judged, Facts.of(catalogue)).verdicts(build, None))


def describe(found: Survey) -> str:
    """The environments as text: one line each, then why."""
    return "\n".join(line for e in found.environments for line in _lines(e)) or "No environments were found."


def _lines(surveyed: Surveyed) -> Iterator[str]:
    mark = {"yes": "works", "no": "does not work", "unknown": "unknown", None: "-"}[surveyed.works]
    torch = f"torch {surveyed.torch or '?'}" if surveyed.works else ""
    python = f"python {surveyed.python}" if surveyed.python else ""
    yield f"{mark:<14} {surveyed.kind or '?':<8} {python:<14} {torch:<22} {surveyed.prefix}".rstrip()
    if surveyed.works:
        yield f"    {surveyed.why}"
        if surveyed.causes:
            yield f"    envsolve diagnose --prefix {surveyed.prefix}   ({', '.join(surveyed.causes)})"
    elif surveyed.kind is None:
        yield f"    {surveyed.why}"

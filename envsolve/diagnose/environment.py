"""From an environment to its diagnoses: its facts as a report, weighed like any other, and its own checks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Literal

from envsolve.diagnose.cause_files import causes
from envsolve.diagnose.causes import environment_checks, library_shadowed, torch_replaced
from envsolve.diagnose.fixes import addressed
from envsolve.diagnose.model import Diagnoses, Finding, Grounds, ReportFacts, RuledOut, Seen
from envsolve.diagnose.project_fixes import project_of_environment
from envsolve.diagnose.reason import concluded, diagnose, in_order, weighed
from envsolve.diagnose.report.packages import read_installed
from envsolve.diagnose.report.read import read_report
from envsolve.diagnose.report.text import read_log
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.environment.model import Environment, Kind, TorchFiles, torch_distribution
from envsolve.errors import UsageError
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import Evidence
from envsolve.machine.model import Machine
from envsolve.rules.judge import as_judged, judge_of, worst
from envsolve.rules.nvidia import Facts
from envsolve.rules.verdict import Level, Verdict
from envsolve.system.files import real_path
from envsolve.values import CudaVersion
from envsolve.verify.report import Probe

# What was tried in an environment, as text for the same reasoning and as findings of its own. Pure.
#
# An error that a probe met is told by the signatures like any other. Beyond that, what was seen is held against what
# the files say: the torch that was imported, the libraries that were mapped, and what works although its files raise
# doubts.


#: Installers of wheels; what they install from an index has no ``direct_url.json``.
_OF_WHEELS = ("pip", "uv")
_LINE = re.compile(r"line (\d+)")


@dataclass(frozen=True, slots=True)
class Fed:
    """A text followed by the output of the probes.

    Attributes:
        text: All of it.
        starts: The number of the first line of each probe.
        names: Their names.
    """

    text: str
    starts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def named(self, found: Diagnoses) -> Diagnoses:
        """Diagnoses whose evidence names the probe in place of a line that the user does not have."""
        diagnoses = (replace(d, evidence=tuple(map(self._place, d.evidence))) for d in found.diagnoses)
        return replace(found, diagnoses=tuple(diagnoses))

    def _place(self, evidence: str) -> str:
        match = _LINE.match(evidence)
        at = bisect_right(self.starts, int(match[1])) if match else 0
        return f"{self.names[at - 1]}{evidence[match.end() :]}" if match and at else evidence


def fed(log: str, probes: Sequence[Probe]) -> Fed:
    """A text followed by the output of the probes."""
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
    """Faults that only the probes show come first; causes that a run disproved are ruled out."""
    seen = [*torch_replaced.from_probes(environment, probes), *library_shadowed.from_probes(environment, probes)]
    if not _everything_works(probes):
        return [*seen, *answers]
    return [*seen, *(_dispelled(answer) for answer in answers)]


def _everything_works(probes: Sequence[Probe]) -> bool:
    """Whether kernels ran, and nothing that was tried failed."""
    return any(p.gpu and p.outcome == "works" for p in probes) and not any(p.failed for p in probes)


def _dispelled(answer: Finding | RuledOut) -> Finding | RuledOut:
    if isinstance(answer, Finding) and answer.grounds is Grounds.NOTICED and answer.cause.startswith("library-"):
        return RuledOut(f"{answer.cause}: {answer.evidence[0]}; but every kernel that was tried gave correct values")
    return answer


def diagnose_environment(
    environment: Environment,
    report: ReportFacts,
    others: Sequence[Machine],
    catalogue: Catalogue,
    probes: Sequence[Probe] = (),
) -> Diagnoses:
    """The faults of an environment on a machine, and their fixes.

    Args:
        environment: As read from its files.
        report: The machine, and what an error text says; the environment's files win over it.
        others: Further machines that the fixes must support.
        catalogue: The facts.
        probes: What was tried in it; the report's text contains their output.

    Returns:
        The diagnoses, most likely first, with commands for this environment.
    """
    scene = scene_of(report_of(environment, report), others, catalogue)
    answers = held_against(environment, probes, examined(environment, scene))
    found = addressed(concluded(scene, answers, project_of_environment(environment)), environment)
    return replace(found, probes=tuple(probes))


def examined(environment: Environment, scene: Scene) -> list[Finding | RuledOut]:
    """The diagnoses that the causes derive from an environment and its report.

    Of equal grounds the earlier comes first: what keeps torch from running, by files, then only by the rules. To
    install another torch also installs what it requires, so what is merely missing comes later.
    """
    return [
        *(finding for check in environment_checks("running") for finding in check(environment, scene)),
        *(_by_files(answer) for answer in weighed(scene)),
        *(finding for check in environment_checks("importing") for finding in check(environment, scene)),
        *(finding for check in environment_checks("compiling") for finding in check(environment, scene)),
    ]


def _by_files(answer: Finding | RuledOut) -> Finding | RuledOut:
    """Facts of a report are those of files here, so what follows from them is based on files."""
    if isinstance(answer, Finding) and answer.grounds is Grounds.DERIVED:
        return replace(answer, grounds=Grounds.READ)
    return answer


def report_of(environment: Environment, report: ReportFacts) -> ReportFacts:
    """A report completed with the environment's files, which win over what was read from a text."""
    torch = environment.torch
    place = f"{torch.site}/torch" if torch else ""
    return replace(
        report,
        installed={**report.installed, **_installed(environment)},
        wheels=frozenset(d.name for d in environment.distributions if d.installer in _OF_WHEELS and not d.direct_url),
        python=_seen(environment.python, environment.prefix, "Python") or report.python,
        cuda=_seen(torch.toolkit if torch else None, f"{place}/version.py", "CUDA") or report.cuda,
        arch_list=Seen(torch.code, f"{place}/lib", " ".join(torch.code)) if torch and torch.code else report.arch_list,
    )


def _installed(environment: Environment) -> dict[str, Seen[str]]:
    """Version by name of what is imported, with the variant if a package's own files name it."""
    stated = {e.package: e.stated for e in environment.extensions or () if e.stated}
    found: dict[str, Seen[str]] = {}
    for distribution in environment.distributions:
        version = stated.get(distribution.name) or distribution.version
        if version and distribution.name not in found:
            found[distribution.name] = Seen(version, distribution.info, f"{distribution.name} {version}")
    torch = environment.torch
    if torch and torch.version:
        # A build without CUDA may not say so in its version.
        variant = "" if torch.toolkit or torch.local or torch.code is None else "+cpu"
        version = torch.version + variant
        name = "pytorch" if _is_condas(environment) else "torch"
        found.pop("torch", None)
        found[name] = Seen(version, f"{torch.site}/torch/version.py", f"{name} {version}")
    return found


def _is_condas(environment: Environment) -> bool:
    """Whether the torch that is imported came from a conda channel: reports know it by another name then."""
    own = torch_distribution(environment)
    return own is not None and own.installer == "conda" and any(p.name == "pytorch" for p in environment.conda)


def _seen(value: str | None, where: str, what: str) -> Seen[str] | None:
    return Seen(value, where, f"{what} {value}") if value else None


# Everything that a diagnosis can start from: a text, a list of packages, an environment, machines.


def answer(
    log: str | bytes,
    machines: Sequence[Machine],
    installed: str | None,
    prefix: Path | None,
    catalogue: Catalogue,
    environ: Mapping[str, str],
    probes: Sequence[Probe] = (),
) -> Diagnoses:
    """The root causes.

    Args:
        log: An error text or report; may be empty if there is an environment.
        machines: Where it happened, completed from the text, then further ones that the fixes must support.
        installed: A list of packages, which wins over the text.
        prefix: An environment on this computer, whose files win over both.
        catalogue: The facts.
        environ: Environment variables that affect the environment.
        probes: What was tried in it.

    Raises:
        UsageError: The list of packages is empty, or ``prefix`` has no environment.
    """
    text = read_log(BytesIO(log))[0] if isinstance(log, bytes) else log
    listed = read_installed(installed) if installed else None
    words = fed(text, probes)
    report = read_report(words.text, catalogue, machine=machines[0] if machines else None, installed=listed)
    if prefix is None:
        return diagnose(report, machines[1:], catalogue)
    from envsolve.environment.read import read_environment

    environment = read_environment(prefix, environ)
    return words.named(diagnose_environment(environment, report, machines[1:], catalogue, probes))


# It begins where a word does and has an end: otherwise it takes the square of a long line.
SITE_PACKAGES = re.compile(r"(?<![\w.+~/\\:-])[\w.+~/\\:-]{0,400}[/\\](?:site|dist)-packages\b")


def elsewhere(
    text: str, prefix: Path, machine: Machine, catalogue: Catalogue, environ: Mapping[str, str]
) -> str | None:
    """What shows that a text is not from an environment on a machine; None if nothing does."""
    from envsolve.environment.read import read_environment

    environment, report = read_environment(prefix, environ), read_report(text, catalogue)
    return next(chain(_other_files(text, environment), _other_versions(report, environment, machine)), None)


def _other_files(text: str, environment: Environment) -> Iterator[str]:
    places, own = dict.fromkeys(SITE_PACKAGES.findall(text)), {real_path(Path(site.path)) for site in environment.sites}
    if places and own.isdisjoint(real_path(Path(place)) for place in places):
        yield f"the text names files in {next(iter(places))}"


def _other_versions(report: ReportFacts, environment: Environment, machine: Machine) -> Iterator[str]:
    if environment.torch is None or machine.gpus == ():
        yield "that environment has no torch" if environment.torch is None else "this machine has no NVIDIA GPU"
        return
    have, said = _have(environment, machine), {name: seen.value for name, seen in report.installed.items()}
    said |= {"python": report.python.value} if report.python else {}
    said |= {"driver": report.machine.driver.version or ""} if report.machine.driver else {}
    for name, version in said.items():
        own = have.get(name, "none")
        if not f"{own}.".startswith(f"{version}.") and f"{own}+".partition("+")[0] != version and own:
            yield f"the text is about {name} {version}, and here is {own}"
    labels = {gpu.label for gpu in machine.gpus or ()}
    yield from (f"the text is about {gpu.label}" for gpu in report.machine.gpus or () if labels - {gpu.label} == labels)


def _have(environment: Environment, machine: Machine) -> dict[str, str]:
    """Versions by name, torch's with its variant; empty if not known."""
    have = {one.name: one.version or "" for one in reversed(environment.distributions)}
    torch = environment.torch
    if torch and torch.version:
        cuda = CudaVersion.parse(torch.toolkit).variant if torch.toolkit and "+" not in torch.version else None
        have["torch"] = f"{torch.version}+{cuda}" if cuda else torch.version
    driver = machine.driver.version if machine.driver else None
    return {**have, "python": environment.python or "", "driver": driver or ""}


# Whether the environments of a machine work there: a line for each, from files only.

SURVEY_SCHEMA: Literal["envsolve.environments/1"] = "envsolve.environments/1"
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
    return Survey(SURVEY_SCHEMA, tuple(_surveyed(prefix, machine, catalogue, environ) for prefix in prefixes))


def _surveyed(prefix: Path, machine: Machine, catalogue: Catalogue, environ: Mapping[str, str]) -> Surveyed:
    from envsolve.environment.read import read_outline

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
    works, why = _works(torch, _verdict(environment, torch, machine, catalogue), machine)
    stops = [f for f in found if causes().files[f.cause].stops != "compiling" and not f.beside_torch]
    if works != "no" and stops:
        # Files that only often do harm may do none here: they make a yes unknown, not a no.
        works = "unknown" if all(finding.grounds is Grounds.NOTICED for finding in stops) else "no"
        why = f"{stops[0].cause}: {next(iter(stops[0].evidence), stops[0].explanation)}"
    if environment.program is None:
        works, why = "no", "its Python is missing: bin/python does not exist, or is a link to one that does not"
    codes = tuple(finding.cause for finding in found)
    return Surveyed(str(prefix), environment.kind, environment.python, torch.version, torch.toolkit, works, why, codes)


def _works(torch: TorchFiles, verdict: Verdict, machine: Machine) -> tuple[Works, str]:
    failed = "; ".join(reason.text for reason in verdict.failures if not reason.rule.startswith("triton"))
    if torch.version is None:
        return "unknown", "torch/version.py is missing or damaged"
    if torch.toolkit and machine.gpus == ():
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
    """The verdict of the rules on the torch that was read from disk, even if the catalogue lacks its version."""
    own = torch_distribution(environment)
    cuda = torch.toolkit
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
    return worst(judge_of(judged, Facts.of(catalogue)).verdicts(build, None))


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

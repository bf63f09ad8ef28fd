"""From a report to its diagnoses: weigh every cause, and put the findings in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envsolve.diagnose.causes import report_checks
from envsolve.diagnose.fixes import as_uv_takes_it
from envsolve.diagnose.model import (
    SCHEMA,
    Certainty,
    Diagnoses,
    Diagnosis,
    Finding,
    Fix,
    Grounds,
    ReportFacts,
    RuledOut,
)
from envsolve.diagnose.project_fixes import Project, in_project, project_of_report
from envsolve.diagnose.scene import Scene, scene_of
from envsolve.diagnose.trial import Trial
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine

# What to run next if the cause is not known: each step adds what the report lacks.


def next_steps(scene: Scene) -> tuple[Fix, ...]:
    """The commands whose output would decide, the most useful first."""
    return tuple(_steps(scene))


def _steps(scene: Scene) -> Iterator[Fix]:
    if scene.torch is None or scene.torch.code is None:
        yield Fix("Add the output of PyTorch's collect_env.", "python -m torch.utils.collect_env")
    if scene.driver is None:
        yield Fix("Add the output of nvidia-smi.", "nvidia-smi")
    if not scene.report.installed:
        yield Fix("Add the installed packages.", "python -m pip list")
    if scene.mentions("nccl"):
        yield Fix("Let NCCL say which call failed: its first WARN line names it.", "NCCL_DEBUG=INFO python ...")
    # Kernels run asynchronously: without this the traceback ends at a later call than the one that failed.
    if scene.mentions("cuda error", "cudnn", "cublas"):
        yield Fix(
            "Run the program again so that the error is reported where it occurs.", "CUDA_LAUNCH_BLOCKING=1 python ..."
        )
    yield Fix(
        "Verify the environment kernel by kernel: the first check that fails names the cause.",
        "envsolve verify --prefix DIR",
    )


def diagnose(report: ReportFacts, others: Sequence[Machine], catalogue: Catalogue) -> Diagnoses:
    """Find the root causes of a report, the most likely first.

    Args:
        report: What was read of the environment and its error.
        others: Further machines that the fixes must support.
        catalogue: The facts.

    Returns:
        The diagnoses; without any, what was ruled out and what to run next.
    """
    scene = scene_of(report, others, catalogue)
    return concluded(scene, weighed(scene))


def weighed(scene: Scene) -> list[Finding | RuledOut]:
    """The findings of each cause on a report."""
    return [answer for check in report_checks() for answer in check(scene)]


def concluded(scene: Scene, answers: Sequence[Finding | RuledOut], project: Project | None = None) -> Diagnoses:
    """The answers in order, with what to run next if none of them names a cause.

    Args:
        scene: What is known.
        answers: What the causes make of it.
        project: The project that the fixes must change, if it is known; otherwise that of the report.
    """
    project = project or project_of_report(scene)
    findings = in_order([a for a in answers if isinstance(a, Finding)], scene)
    trial = Trial(scene, weighed)
    said = [m.signature.says for m in scene.matches if m.signature.says]
    ruled_out = [answer.text for answer in answers if isinstance(answer, RuledOut)]
    return Diagnoses(
        schema=SCHEMA,
        diagnoses=tuple(_diagnosis(f, certainty(f, findings), trial, project) for f in findings),
        meanings=tuple(dict.fromkeys(said)),
        ruled_out=tuple(dict.fromkeys(ruled_out)),
        next_steps=() if findings else next_steps(scene),
    )


def in_order(findings: Sequence[Finding], scene: Scene) -> list[Finding]:
    """Sort diagnoses by their grounds, then by the order of their signatures; a consequence comes after its cause."""
    proposed = {cause: n for n, match in reversed(list(enumerate(scene.matches))) for cause in match.signature.causes}
    ordered = sorted(
        findings, key=lambda f: (f.beside_torch, f.grounds.rank, proposed.get(f.cause, len(scene.matches)))
    )
    told: dict[str, Finding] = {}
    for finding in ordered:
        told.setdefault(finding.cause, finding)
    explained = {cause for f in told.values() for cause in f.explains}
    first = [f for f in told.values() if f.cause not in explained]
    # A consequence without error words of its own is not a second diagnosis.
    return first + [f for f in told.values() if f.cause in explained and f.grounds.rank <= Grounds.STATED.rank]


def _diagnosis(finding: Finding, certainty: Certainty, trial: Trial, project: Project | None) -> Diagnosis:
    scene = trial.scene
    fixes = (for_shell(in_container(in_project(fix, project, scene), scene), scene) for fix in tried(finding, trial))
    precision = scene.catalogue.precisions[finding.grounds.value]
    return Diagnosis(
        cause=finding.cause,
        # Laplace's rule: a few right answers do not make a certainty.
        confidence=round((precision.right + 1) / (precision.of + 2), 2),
        explanation=finding.explanation,
        evidence=tuple(dict.fromkeys(finding.evidence)),
        remedies=tuple(fixes) or _to_find_one(scene),
        certainty=certainty,
    )


def certainty(finding: Finding, findings: Sequence[Finding]) -> Certainty:
    """How sure a finding is; of two confirmed causes that do not explain each other, neither is certain."""
    confirmed = [f for f in findings if f.grounds is Grounds.CONFIRMED]
    first = confirmed[0] if confirmed else None
    if finding is first and all(other.cause in finding.explains for other in confirmed[1:]):
        return "certain"
    return "likely" if finding.grounds.rank <= Grounds.READ.rank else "possible"


def tried(finding: Finding, trial: Trial) -> Iterator[Fix]:
    """The fixes of a finding that remove its cause in the model, each once."""
    return (fix for fix in dict.fromkeys(map(_as_taken, finding.remedies)) if trial.holds(finding.cause, fix))


def _to_find_one(scene: Scene) -> tuple[Fix, ...]:
    """What to add to the report so that a fix can be found; or that no fix exists."""
    missing = []
    if not scene.gpus or scene.driver is None:
        missing.append(
            Fix("No fix is certain without the GPU and the driver: add the output of nvidia-smi.", "nvidia-smi")
        )
    if scene.about_torch and (scene.torch is None or scene.torch.version is None):
        missing.append(Fix("Add the installed packages.", "python -m pip list"))
    return tuple(missing) or (_LOOK_FURTHER,)


#: ``docker run`` as a fix writes it, whose image is the report's.
_RUN = re.compile(r"^(?:docker|podman) run (?P<options>-.{1,80}) \.\.\.$")
#: A shell in a container, where a command of pip is right as it is.
_INSIDE = re.compile(r"root@[0-9a-f]{8,12}:|docker exec|\bFROM [\w./:-]+\n", re.IGNORECASE)
#: A Python that the report runs in a container by its path.
_EXEC = re.compile(r"docker exec (?:-[ditu]{1,3} )*(?P<name>[\w.-]+) (?P<python>/[\w./-]{1,80}python[\d.]*)\b")
#: An environment at a path that is none of the host's usual ones.
_ENVIRONMENT = re.compile(r"(?P<prefix>/(?!usr/|home/|root/|opt/conda)[\w./-]{1,80}?)/lib/python3\.\d+/site-packages/")
_NO_VALUE = re.compile(
    r"-[ditPq]{1,4}|--(?:rm|privileged|init|detach|interactive|tty|publish-all|read-only)|--?[\w-]+=.*"
)


def in_container(fix: Fix, scene: Scene) -> Fix:
    """A fix for a program that a container runs: the report's own command with its options, or a layer on its image."""
    if (inside := _EXEC.search(scene.report.text)) and (fix.command or "").startswith("pip "):
        text = f"{fix.text} The change lasts as long as the container: put it into the image as well."
        return Fix(text, f"docker exec {inside['name']} {inside['python']} -m {fix.command}")
    own = next((c for seen in scene.report.commands if (c := _container_run(seen.value))), None)
    if own is None and scene.report.images and (there := _ENVIRONMENT.search(scene.report.text)):
        return _in_its_environment(fix, scene, there["prefix"])
    if own is None or not fix.command:
        return fix
    command, image = own
    if options := _RUN.match(fix.command):
        return Fix(fix.text, command.replace(" run ", f" run {options['options']} ", 1))
    if not fix.command.startswith(("pip install ", "uv pip install ")) or _INSIDE.search(scene.report.text):
        return fix
    layer = f"FROM {image}\\nRUN {fix.command}\\n".replace("'", '"')
    name = re.sub(r"[^a-z0-9]+", "-", image.rpartition("/")[2].partition(":")[0].lower()) + "-fixed"
    text = f"{fix.text} The program runs in a container: make an image of {image} with it, and run {name} in its place."
    return Fix(text, f"printf '{layer}' | {command.split()[0]} build -t {name} -")


def _in_its_environment(fix: Fix, scene: Scene, prefix: str) -> Fix:
    """A pip command for the Python in a container whose paths a traceback shows."""
    if not (fix.command or "").startswith("pip ") or _INSIDE.search(scene.report.text):
        return fix
    text = f"{fix.text} The program runs in a container: put its name (docker ps) in the place of CONTAINER."
    return Fix(text, f"docker exec CONTAINER {prefix}/bin/python -m {fix.command}")


def _container_run(command: str) -> tuple[str, str] | None:
    """``docker run`` from the first word on, and its image; None for another command."""
    found = re.search(r"\b(?:docker|podman) run .+", command)
    words = iter(found[0].split()[2:] if found else ())
    for word in words:
        if not word.startswith("-"):
            return (found[0], word) if found and re.fullmatch(r"[\w./-]+(?::[\w.-]+)?", word) else None
        if not _NO_VALUE.fullmatch(word):
            next(words, None)
    return None


_ASSIGNED = re.compile(r'([A-Z][A-Z0-9_]{1,60})=("[^"]*"|[^\s"]*) ')


def for_shell(fix: Fix, scene: Scene) -> Fix:
    """A fix whose command sets variables, in the form of the shell of Windows."""
    command = fix.command
    # What runs a command inside another has no such form.
    if scene.os != "windows" or not command or "$(" in command or "for /" in command:
        return fix
    return Fix(fix.text, " && ".join(part for one in command.split(" && ") for part in _of_windows(one)))


def _of_windows(command: str) -> Iterator[str]:
    words, rest = command.partition(" ")[::2]
    if words == "unset":
        yield from (f'set "{name}="' for name in rest.split())
        return
    rest = f"{rest} " if words == "export" else command
    while match := _ASSIGNED.match(rest):
        value = match[2].strip('"')
        yield f'set "{match[1]}={value}"'
        rest = rest[match.end() :]
    if rest.strip():
        yield re.sub(r"'([^'\"]*)'", r'"\1"', rest.strip())


def _as_taken(fix: Fix) -> Fix:
    return Fix(fix.text, as_uv_takes_it(fix.command)) if fix.command else fix


_LOOK_FURTHER = Fix("No published build or driver in the catalogue fixes this by itself.", "envsolve detect")

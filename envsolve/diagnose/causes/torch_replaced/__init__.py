"""``torch-replaced``: another torch than the one that was chosen is imported, or was put in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import Cause, lines
from envsolve.diagnose.fixes import led_by, pair_with, very_torch
from envsolve.diagnose.model import Finding, Fix, Grounds, public, shown
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment, Site, TorchFiles, release, torch_distribution
from envsolve.system.files import real_path
from envsolve.verify.report import Probe

CAUSE = Cause.of(__name__)

#: What a command installs: a requirements file, a project in place, or a name.
_REQUESTED = re.compile(r"pip3? install (?:--?[\w-]+(?:=\S+)? )*?((?:-[re] )?[^-\s]\S{0,100})")
#: A uv project made what it is with an extra or a group.
_SYNCED = re.compile(r"\buv (?:sync|run)\b[^|;&]*?--(extra|group)[= ]([\w.-]+)")
_PINNING = ("xformers", "vllm", "torchvision", "torchaudio")
_CONDA_NAMES = ("pytorch", "libtorch", "pytorch-gpu", "pytorch-cpu")
_OF_A_SWAP = ("cpu-build", "mixed-flavours", "index-confusion", "nvcc-torch-mismatch")


def from_report(scene: Scene) -> Iterator[Finding]:
    """An installer's own words show the swap; a requirement that no longer holds suggests it."""
    old, new = _swap(scene)
    conflict = scene.first("pip-incompatible")
    wanted = re.match(r"==\s*([\w.+]+)", conflict.groups["wanted"]) if conflict else None
    twice = _two_records(scene)
    swaps = scene.found("torch-uninstalled", "torch-swapped-uv", "torch-swapped-words", "torch-installed")
    evidence = lines(*swaps, conflict)
    if old and not new and (removed := scene.first("torch-uninstalled")):
        evidence = lines(removed, *scene.found("torch-incoming"))
        yield _replaced(scene, Grounds.STATED, old, "another", evidence, both=bool(twice))
    elif old and new and (extra := _extra(scene)):
        named = {"kind": extra[1], "extra": extra[2], "old": old, "new": new}
        fixes = [CAUSE.fix(name, **named) for name in ("uv-run", "uv-run-no-sync", "uv-source")]
        yield CAUSE.finding("uv-run", Grounds.CONFIRMED, evidence, fixes, _OF_A_SWAP, **named)
    elif old and new and old != new:
        yield _replaced(scene, Grounds.CONFIRMED, old, new, (*evidence, *twice), both=bool(twice))
    elif twice:
        kept, values = public(scene.report.installed, "pytorch") or "", [text.split(": ")[-1] for text in twice]
        yield CAUSE.finding(
            "replaced",
            Grounds.DERIVED,
            twice,
            _reinstalled(scene, kept),
            ("cpu-build", "mixed-flavours"),
            old=values[0],
            new=values[1],
            by="",
            both=CAUSE.words("both"),
        )
    elif conflict and wanted and re.search(r"\+(?:rocm|xpu)", conflict.groups["have"]):
        # The build for another vendor's GPU was chosen; what pins the CUDA build has to go.
        package = conflict.groups["package"]
        fixes = [CAUSE.fix("vendor-package", package=package, have=conflict.groups["have"])]
        named = {"package": package, "have": conflict.groups["have"]}
        yield CAUSE.finding("vendor", Grounds.STATED, evidence, fixes, _OF_A_SWAP, **named)
    elif conflict and wanted:
        yield _replaced(scene, Grounds.SUGGESTED, wanted[1], conflict.groups["have"], evidence, explains=())


def _extra(scene: Scene) -> re.Match[str] | None:
    """The extra or group with which a uv project was synchronized, if a later ``uv run`` or ``uv sync`` names none."""
    commands = [seen.value for seen in scene.report.commands]
    found = [(place, match) for place, text in enumerate(commands) if (match := _SYNCED.search(text))]
    if not found:
        return None
    place, match = found[0]
    without = (text for text in commands[place + 1 :] if re.search(r"\buv (?:run|sync)\b", text))
    return match if any(not _SYNCED.search(text) and "--no-sync" not in text for text in without) else None


def _replaced(
    scene: Scene,
    grounds: Grounds,
    old: str,
    new: str,
    evidence: Sequence[str],
    *,
    both: bool = False,
    explains: Sequence[str] = _OF_A_SWAP,
) -> Finding:
    culprit = _culprit(scene)
    # The texts of a file have no space at their ends.
    by = " " + CAUSE.words("by", culprit=culprit) if culprit else ""
    two = CAUSE.words("both") + " " if both else ""
    fixes = _reinstalled(scene, old)
    return CAUSE.finding("replaced", grounds, evidence, fixes, explains, old=old, new=new, by=by, both=two)


def _swap(scene: Scene) -> tuple[str | None, str | None]:
    """The former torch and the one that replaced it, by the installer's words."""
    if uv := scene.first("torch-swapped-uv"):
        return uv.groups["old"], uv.groups["new"]
    removed, words = scene.found("torch-uninstalled"), scene.first("torch-swapped-words")
    if not removed:
        return (words.groups["old"], words.groups["new"].rstrip(".")) if words else (None, None)
    if _requested(scene, removed[0].line):
        return None, None
    # The install that follows the removal: an earlier one is what was removed.
    installed = [m for m in scene.found("torch-installed") if m.line > removed[0].line]
    old, new = removed[0].groups["old"], installed[-1].groups["new"] if installed else None
    torch = scene.torch
    if new and torch and torch.version and torch.variant and "+" not in new and new == torch.version:
        new = f"{new}+{torch.variant}"
    return old, new


def _requested(scene: Scene, line: int) -> bool:
    """Whether the command that removed torch requested torch by name, so that it was not an accident."""
    before = [s for s in scene.report.commands if (n := re.match(r"line (\d+)", s.where)) and int(n[1]) <= line]
    return bool(before) and re.search(r"install\b.*?\s[\"']?torch(?![\w-])", before[-1].value) is not None


def _two_records(scene: Scene) -> tuple[str, ...]:
    """conda's ``pytorch`` beside pip's ``torch``, of another version."""
    conda, pip = scene.report.installed.get("pytorch"), scene.report.installed.get("torch")
    if conda is None or pip is None or conda.value.partition("+")[0] == pip.value.partition("+")[0]:
        return ()
    return f"{shown(conda)}: pytorch {conda.value}", f"{shown(pip)}: torch {pip.value}"


def _culprit(scene: Scene) -> str | None:
    """The requirements of the command that replaced torch."""
    if match := re.search(r"Collecting torch[^\n(]{0,60}\(from ([\w.-]+(?:==[\w.]+)?)", scene.report.text):
        return match[1]
    commands = filter(None, (_REQUESTED.search(seen.value) for seen in scene.report.commands))
    installs = [match[1].strip() for match in commands if "torch==" not in match[1]]
    return installs[-1] if installs else None


def _reinstalled(scene: Scene, old: str) -> Iterator[Fix]:
    for name in ("xformers", "vllm"):
        version = public(scene.report.installed, name)
        if version and scene.family.follows_torch(name):
            if pinned := pair_with(scene, {name: SpecifierSet(f"=={version}")}):
                by = next((n for n in _PINNING if n in scene.report.installed), "the package")
                yield led_by(f"Put back the CUDA build of the torch that {by} pins", pinned)
            break
    version, _, local = old.partition("+")
    index = f" --index-url https://download.pytorch.org/whl/{local}" if re.fullmatch(r"cu\d+", local) else ""
    if "pytorch" in scene.report.installed:
        yield CAUSE.fix("conda", old=old, version=version)
    else:
        yield CAUSE.fix("reinstall", old=old, index=index)
    if scene.mentions("\nrun ", "dockerfile"):
        yield CAUSE.fix("dockerfile", old=old)
    yield CAUSE.fix("constraint", old=old, culprit=_culprit(scene) or "PACKAGE")


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Find a torch that shadows another, and one that was put over another."""
    torch = environment.torch
    if torch is not None:
        yield from _shadowing(environment, torch)
        yield from _over_conda(environment, torch)
        yield from _overlaid(environment, scene, torch)


def _shadowing(environment: Environment, first: TorchFiles) -> Iterator[Finding]:
    site = environment.site(first.site)
    own = next((t for t in environment.torches[1:] if _origin(environment, t) == "environment"), None)
    if site is None or own is None or site.origin == "environment" or own.version == first.version:
        return
    where = CAUSE.words(site.origin, file=Path(site.named_by or "").name)
    evidence = (f"{first.site}/torch: {first.label}, imported", f"{own.site}/torch: {own.label}, not imported")
    fixes = _off_the_path(environment, site)
    yield CAUSE.finding("shadowed", Grounds.READ, evidence, fixes, first=first.label, where=where, own=own.label)


def _origin(environment: Environment, torch: TorchFiles) -> str | None:
    site = environment.site(torch.site)
    return site.origin if site else None


def _off_the_path(environment: Environment, site: Site) -> Iterator[Fix]:
    if site.origin == "user":
        yield CAUSE.fix("no-user-site")
        names = [d.name for d in environment.distributions if d.site == site.path and d.name in ("torch", "triton")]
        python = f"{environment.base}/bin/python"
        yield CAUSE.fix("uninstall-own", python=python, names=" ".join(dict.fromkeys(("torch", *names))))
    elif site.origin == "PYTHONPATH":
        yield CAUSE.fix("no-pythonpath")
    elif site.named_by:
        yield CAUSE.fix("pth")


def _over_conda(environment: Environment, torch: TorchFiles) -> Iterator[Finding]:
    record = next((p for p in environment.conda if p.name in _CONDA_NAMES), None)
    own = torch_distribution(environment)
    if record is None or own is None or own.installer in (None, "conda"):
        return
    if _origin(environment, torch) != "environment":
        return
    conda = f"{record.name} {record.version} ({record.build})"
    evidence = (f"{record.record}: {conda}", f"{own.info}: {own.label}, INSTALLER {own.installer}")
    fixes = (
        CAUSE.fix("conda-back", spec=f"{record.name}={record.version}={record.build}"),
        CAUSE.fix("conda-forget", package=record.name),
    )
    label = f"{torch.label} (by {own.installer})"
    yield CAUSE.finding("over-conda", Grounds.READ, evidence, fixes, conda=conda, torch=label)


def _overlaid(environment: Environment, scene: Scene, torch: TorchFiles) -> Iterator[Finding]:
    records = [d for d in environment.named("torch") if d.site == torch.site]
    stated = next((d for d in records if release(d.version) == release(torch.version)), None)
    if not records or torch.version is None or (len(records) == 1 and stated):
        return
    what = CAUSE.words("records", torch=torch.label, versions=" and ".join(d.version or "?" for d in records))
    evidence = (f"{torch.site}/torch/version.py: {torch.version}", *(f"{d.info}: {d.label}" for d in records))
    # pip removes one record at a time.
    removals = " && ".join(["pip uninstall -y torch"] * len(records))
    fix = CAUSE.fix("anew", torch=torch.label, removals=removals, requirement=very_torch(scene, torch))
    yield CAUSE.finding("overlaid", Grounds.READ, evidence, (fix,), site=torch.site, what=what)


def from_probes(environment: Environment, probes: Sequence[Probe]) -> Iterator[Finding]:
    """Find an imported torch that the files of the environment do not lead to."""
    own = environment.torch
    for probe in probes:
        file, version = probe.seen.get("file"), probe.seen.get("version")
        if own is None or file is None:
            continue
        site = Path(file).parent.parent
        if site == real_path(Path(own.site)) or version == own.version:
            continue
        evidence = (f"{probe.name}: torch {version} from {file}", f"{own.site}/torch/version.py: {own.label}")
        fix = CAUSE.fix("find", prefix=environment.prefix)
        seen = f"torch {version}"
        yield CAUSE.finding("imported", Grounds.READ, evidence, (fix,), seen=seen, place=site, own=own.label)

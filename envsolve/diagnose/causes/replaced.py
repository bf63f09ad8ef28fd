"""``torch-replaced``: a later install put another torch in the place of the one that worked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.torch import led_by, pair_with
from envsolve.diagnose.scene import Scene, public, shown

_EXPLANATION = (
    "An installer that meets a demand on torch resolves it anew, and its index does not know that a certain build "
    "was chosen: torch {old} was replaced by {new}{by}. {both}A constraint that names the build with its local "
    "version keeps it in place: later installs then fit in, or say why not."
)
_BOTH = "conda and pip keep books apart, so that the environment now holds two torches. "

#: What a command installs: a requirements file, a project in place, or a name.
_ASKED = re.compile(r"pip3? install (?:--?[\w-]+(?:=\S+)? )*?((?:-[re] )?[^-\s]\S{0,100})")

_CONSEQUENCES = frozenset({"cpu-build", "mixed-flavours", "index-confusion", "nvcc-torch-mismatch"})


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """An installer's own words show the swap; a requirement that no longer holds suggests it."""
    old, new = _swap(scene)
    conflict = scene.first("pip-incompatible")
    twice = _two_records(scene)
    evidence = lines(
        *scene.found("torch-uninstalled", "torch-swapped-uv", "torch-swapped-words", "torch-installed"), conflict
    )
    if old and not new and (removed := scene.first("torch-uninstalled")):
        evidence = lines(removed, *scene.found("torch-incoming"))
        text = _EXPLANATION.format(old=old, new="another", by=_by(scene), both=_BOTH if twice else "")
        yield Finding("torch-replaced", Grounds.STATED, text, evidence, tuple(_remedies(scene, old)), _CONSEQUENCES)
    elif old and new and old != new:
        text = _EXPLANATION.format(old=old, new=new, by=_by(scene), both=_BOTH if twice else "")
        yield Finding(
            "torch-replaced",
            Grounds.CONFIRMED,
            text,
            (*evidence, *twice),
            tuple(_remedies(scene, old)),
            explains=_CONSEQUENCES,
        )
    elif twice:
        text = _EXPLANATION.format(old=twice[0].split(": ")[-1], new=twice[1].split(": ")[-1], by="", both=_BOTH)
        kept = public(scene.report.installed, "pytorch") or ""
        found = frozenset({"cpu-build", "mixed-flavours"})
        yield Finding("torch-replaced", Grounds.DERIVED, text, twice, tuple(_remedies(scene, kept)), explains=found)
    elif conflict and _exact(conflict.groups["wanted"]):
        text = _EXPLANATION.format(
            old=_exact(conflict.groups["wanted"]), new=conflict.groups["have"], by=_by(scene), both=""
        )
        wanted = _exact(conflict.groups["wanted"]) or ""
        yield Finding("torch-replaced", Grounds.SUGGESTED, text, evidence, tuple(_remedies(scene, wanted)))


def _swap(scene: Scene) -> tuple[str | None, str | None]:
    """What was there and what came, by the installer's words."""
    if uv := scene.first("torch-swapped-uv"):
        return uv.groups["old"], uv.groups["new"]
    removed, told = scene.found("torch-uninstalled"), scene.first("torch-swapped-words")
    if not removed:
        return (told.groups["old"], told.groups["new"].rstrip(".")) if told else (None, None)
    if _meant(scene, removed[0].line):
        return None, None
    # The install that follows the removal: an earlier one is what was removed.
    came = [m for m in scene.found("torch-installed") if m.line > removed[0].line]
    old, new = removed[0].groups["old"], came[-1].groups["new"] if came else None
    torch = scene.torch
    if new and torch and torch.version and torch.variant and "+" not in new and new == torch.version:
        new = f"{new}+{torch.variant}"
    return old, new


def _meant(scene: Scene, line: int) -> bool:
    """Whether the command that removed torch asked for torch by name: that is no accident."""
    before = [s for s in scene.report.commands if (n := re.match(r"line (\d+)", s.where)) and int(n[1]) <= line]
    return bool(before) and re.search(r"install\b.*?\s[\"']?torch(?![\w-])", before[-1].value) is not None


def _two_records(scene: Scene) -> tuple[str, ...]:
    """conda's ``pytorch`` beside pip's ``torch``, of another version."""
    conda, pip = scene.report.installed.get("pytorch"), scene.report.installed.get("torch")
    if conda is None or pip is None or conda.value.partition("+")[0] == pip.value.partition("+")[0]:
        return ()
    return f"{shown(conda)}: pytorch {conda.value}", f"{shown(pip)}: torch {pip.value}"


def _by(scene: Scene) -> str:
    culprit = _culprit(scene)
    return f" when {culprit} was installed" if culprit else ""


def _culprit(scene: Scene) -> str | None:
    """What was asked for when torch was replaced."""
    if match := re.search(r"Collecting torch[^\n(]{0,60}\(from ([\w.-]+(?:==[\w.]+)?)", scene.report.text):
        return match[1]
    installs = [
        m[1].strip() for seen in scene.report.commands if (m := _ASKED.search(seen.value)) and "torch==" not in m[1]
    ]
    return installs[-1] if installs else None


def _exact(wanted: str) -> str | None:
    match = re.match(r"==\s*([\w.+]+)", wanted)
    return match[1] if match else None


def _remedies(scene: Scene, old: str) -> Iterator[Remedy]:
    if pinned := _pinned_pair(scene):
        yield led_by(f"Put back the CUDA build of the torch that {_pinned_by(scene)} pins", pinned)
    public_old, _, local = old.partition("+")
    where = f" --index-url https://download.pytorch.org/whl/{local}" if re.fullmatch(r"cu\d+", local) else ""
    culprit = _culprit(scene) or "PACKAGE"
    if "pytorch" in scene.report.installed:
        text = f"Take pip's torch out and reinstall the one of conda ({old}); then install the extra with a constraint."
        yield Remedy(text, f"pip uninstall -y torch triton && conda install --force-reinstall pytorch={public_old}")
    else:
        yield Remedy(f"Put torch {old} back: reinstall it.", f"pip install --force-reinstall torch=={old}{where}")
    if scene.mentions("\nrun ", "dockerfile"):
        yield Remedy(
            "In a Dockerfile every RUN is a shell of its own, so an exported variable is gone in the next: set the "
            "constraint "
            "file with ENV, before the later installs.",
            f"RUN echo 'torch=={old}' > /etc/torch-constraints.txt\nENV PIP_CONSTRAINT=/etc/torch-constraints.txt "
            "UV_CONSTRAINT=/etc/torch-constraints.txt",
        )
    yield Remedy(
        "Install the other package under a constraint, so that it cannot replace torch; or with --no-deps.",
        f"echo 'torch=={old}' > torch-constraints.txt && pip install -c torch-constraints.txt {culprit}",
    )


def _pinned_by(scene: Scene) -> str:
    return next(
        (n for n in ("xformers", "vllm", "torchvision", "torchaudio") if n in scene.report.installed), "the package"
    )


def _pinned_pair(scene: Scene) -> Remedy | None:
    """Where the package that came wants one torch exactly, the CUDA build of that torch."""
    for name in ("xformers", "vllm"):
        version = public(scene.report.installed, name)
        if version and scene.family.follows_torch(name):
            return pair_with(scene, {name: SpecifierSet(f"=={version}")})
    return None

"""``index-confusion``: the flavour that an index was named for is not the one that was installed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut, Seen
from envsolve.diagnose.remedies.torch import installer, replacements
from envsolve.diagnose.scene import Scene, shown

_MERGED = re.compile(r"--extra-index-url[= ]+\S{0,80}/whl/(?P<flavour>cu\d{2,3})\b")

_EXPLANATION = (
    "--extra-index-url adds an index to the default one, and pip takes the highest version of both; uv takes the "
    "first index that has the name. So the default index's torch{version}, which is a build for {got}, was taken, "
    "and not one for {wanted}. The index must be the only one for torch, or the version must be named with its local "
    "part."
)

_CONSEQUENCES = frozenset({"driver-too-old", "cpu-build", "no-kernel-for-gpu"})


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Hold the index that commands name against the build that is there."""
    torch = scene.torch
    asked = next((found for seen in scene.report.commands if (found := _asked(seen))), None)
    if asked is None or torch is None or torch.variant is None or torch.variant == asked[1]:
        return
    seen, wanted = asked
    version = f" {torch.version}" if torch.version else ""
    text = _EXPLANATION.format(version=version, got=torch.variant, wanted=wanted)
    evidence = (shown(seen), *torch.evidence)
    remedies = [*replacements(scene, variants=(wanted,)), *replacements(scene)]
    if not remedies:
        address = f"https://download.pytorch.org/whl/{wanted}"
        command = f"{installer(scene)} install --force-reinstall torch --index-url {address}"
        remedies.append(Remedy(f"Let the index of {wanted} be the only one for torch.", command))
    yield Finding("index-confusion", Grounds.CONFIRMED, text, evidence, tuple(remedies), _CONSEQUENCES)


def _asked(seen: Seen[str]) -> tuple[Seen[str], str] | None:
    """The flavour of the index that a command adds, where it installs torch by no more than its name."""
    match = _MERGED.search(seen.value)
    if match is None or not re.search(r"\btorch\b", seen.value) or re.search(r"\btorch==\S+\+", seen.value):
        return None
    return seen, match["flavour"]

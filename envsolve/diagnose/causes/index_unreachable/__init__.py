"""``index-unreachable``: an index, a host that its pages link to, or a proxy cannot be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, pytorch_index
from envsolve.diagnose.model import Finding, Grounds
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)
#: Whose words these are: a program at run time says the same of other hosts.
_INSTALLERS = (
    *("pip", "uv ", "conda", "mamba", "pixi", "poetry"),
    *("/simple", "whl", "docker pull", "retry(", "distribution"),
)
_NOT_AN_INDEX = re.compile(r"huggingface|hf\.co|github\.com|wandb|s3\.amazonaws|gai error|c10d|NCCL", re.IGNORECASE)
_FIRST = {"network-tls": ("authority",), "network-proxy": ("proxy",)}


def from_report(scene: Scene) -> Iterator[Finding]:
    """The network's error; it explains whatever the resolver reports afterwards."""
    if match := CAUSE.first(scene, "damaged"):
        install = next((seen.value for seen in scene.report.commands if "pip install" in seen.value), None)
        again = install or f"pip install {match.groups['package']}"
        whole = (CAUSE.fix("again", again=again.replace(" --no-cache-dir", "")), CAUSE.fix("mirror"))
        yield CAUSE.finding("damaged", Grounds.STATED, lines(match), whole, ("lock-incomplete",))
    if not scene.mentions(*_INSTALLERS):
        return
    matches = scene.found(*(s.id for s in CAUSE.file.signatures if s.role == "error"))
    # A report may show a download that failed before, from a host that is no index.
    match = next((m for m in matches if not _NOT_AN_INDEX.search(m.quote)), None)
    if match is not None:
        kind = match.signature.id
        names = (*_FIRST.get(kind, ()), "probe", "mirror", "offline")
        fixes = (CAUSE.fix(name, index=pytorch_index(scene, "torch")) for name in names)
        yield CAUSE.finding("unreachable", Grounds.STATED, lines(match), fixes, why=CAUSE.words(kind))

"""``index-unreachable``: an index, a host that its pages link to, or a proxy cannot be reached."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene

_ERRORS = ("network-dns", "network-proxy", "network-tls", "network-refused")

#: Whose words these are: a program at run time says the same of other hosts.
_INSTALLERS = (
    "pip",
    "uv ",
    "conda",
    "mamba",
    "pixi",
    "poetry",
    "/simple",
    "whl",
    "docker pull",
    "retry(",
    "distribution",
)
_NOT_AN_INDEX = re.compile(r"huggingface|hf\.co|github\.com|wandb|s3\.amazonaws|gai error|c10d|NCCL", re.IGNORECASE)

_EXPLANATION = (
    "The installer could not fetch from an index: {why}. What it then says of missing versions only means that it "
    "saw no list of them. An index's pages may also link to further hosts, which a proxy must let through as well "
    "(download.pytorch.org links to download-r2.pytorch.org)."
)
_WHY = {
    "network-dns": "the host's name could not be resolved",
    "network-proxy": "the proxy refused the connection",
    "network-tls": "the server's certificate was not accepted",
    "network-refused": "the connection was refused, broken off, or answered with an error",
}


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """The network's own words; they explain whatever the resolver says after them."""
    if not scene.mentions(*_INSTALLERS):
        return
    match = next((m for m in scene.found(*_ERRORS) if not _NOT_AN_INDEX.search(m.quote)), None)
    if match is None:
        return
    text = _EXPLANATION.format(why=_WHY[match.signature.id])
    found = frozenset({"no-such-build", "index-confusion", "python-caps-build", "lock-incomplete"})
    yield Finding("index-unreachable", Grounds.STATED, text, lines(match), tuple(_remedies(match.signature.id)), found)


def _remedies(kind: str) -> Iterator[Remedy]:
    if kind == "network-tls":
        yield Remedy(
            "Name your company's certificate authority to the installer; do not switch checking off.",
            "export SSL_CERT_FILE=/path/to/ca.pem PIP_CERT=/path/to/ca.pem REQUESTS_CA_BUNDLE=/path/to/ca.pem",
        )
    elif kind == "network-proxy":
        yield Remedy(
            "Name a proxy that lets the index's hosts through, download.pytorch.org and download-r2.pytorch.org "
            "among them.",
            "export HTTPS_PROXY=http://proxy:3128 NO_PROXY=localhost",
        )
    yield Remedy("See whether the host answers from here.", "curl -sSI https://download.pytorch.org/whl/torch/")
    yield Remedy("Use a mirror that can be reached from here.", "pip install --index-url https://MIRROR/simple torch")
    yield Remedy(
        "On a node without network, plan and download on one that has it.",
        "pip download -d wheels torch && pip install --no-index --find-links wheels torch",
    )

"""Kubernetes: a Job for each plan whose pods verify its environment, one on each of its nodes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from envsolve.fleet.kubernetes import container, documents, indexed_job, on_nodes
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.fleet.verify import report_of

_HEADING = """\
# kubectl apply -f FILE
# kubectl wait --for=condition=Complete --timeout=40m job -l app=envsolve-verify
# kubectl delete -f FILE
# envsolve fleet verify --reports --fleet {fleet}
#
# All nodes must mount the fleet's directory at the same path. The image must have the Python of the environments where
# the nodes have it, and a C compiler for the checks that need one.
"""
_IMAGE = "ubuntu:24.04"
_LABEL, _LONGEST = "envsolve-verify", 63
_SECONDS = 1800
_KEPT_SECONDS = 86_400


def render(fleet: Path, made: FleetPlan, python: str) -> str:
    """Return Jobs as JSON, which is YAML, below a comment."""
    jobs = (_job(fleet, group, python) for group in made.groups)
    return _HEADING.format(fleet=shlex.quote(str(fleet))) + documents(*jobs)


def _job(fleet: Path, group: Group, python: str) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9]+", "-", f"{_LABEL}-{group.name}".lower())[:_LONGEST].strip("-")
    labels = {"app": _LABEL, "plan": name}
    mount = {"name": "fleet", "mountPath": str(fleet)}
    pod = {
        "tolerations": [{"operator": "Exists"}],
        "affinity": on_nodes([*group.nodes]),
        "containers": [container("verify", _IMAGE, _script(fleet, group, python), "compute,utility", mount)],
        "volumes": [{"name": "fleet", "hostPath": {"path": str(fleet), "type": "Directory"}}],
    }
    count = len(group.nodes)
    return indexed_job(name, labels, pod, pods=count, retries=0, seconds=_SECONDS, kept_seconds=_KEPT_SECONDS)


def _script(fleet: Path, group: Group, python: str) -> str:
    """Verify, and put the report in place as a whole: a pod may be ended at any moment."""
    words = [python, "-m", "envsolve", "verify", "--prefix", str(group.environment(fleet)), "--format", "json"]
    folder = shlex.quote(str(report_of(fleet, group, "").parent))
    return (
        f'mkdir -p {folder} && cd {folder} && {shlex.join(words)} > ".$ENVSOLVE_NODE.part"; code=$?; '
        'mv ".$ENVSOLVE_NODE.part" "$ENVSOLVE_NODE.json"; exit $code'
    )

"""Kubernetes: a Job for each plan whose pods verify its environment, one on each of its nodes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

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


def render(fleet: Path, made: FleetPlan, python: str) -> str:
    """Return Jobs as JSON, which is YAML, below a comment."""
    jobs = (json.dumps(_job(fleet, group, python), indent=2) for group in made.groups)
    return _HEADING.format(fleet=shlex.quote(str(fleet))) + "\n---\n".join(jobs) + "\n"


def _job(fleet: Path, group: Group, python: str) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9]+", "-", f"{_LABEL}-{group.name}".lower())[:_LONGEST].strip("-")
    labels = {"app": _LABEL, "plan": name}
    count = len(group.nodes)
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(group.nodes)}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = {
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}},
            "podAntiAffinity": {required: [apart]},
        },
        "containers": [
            {
                "name": "verify",
                "image": _IMAGE,
                "command": ["sh", "-c", _script(fleet, group, python)],
                "env": [
                    {"name": "ENVSOLVE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    # All GPUs of the node, also while other pods hold them.
                    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                    {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
                ],
                "volumeMounts": [{"name": "fleet", "mountPath": str(fleet)}],
            }
        ],
        "volumes": [{"name": "fleet", "hostPath": {"path": str(fleet), "type": "Directory"}}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": count,
            # A node that fails is not tried again, and does not stop the others.
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": count,
            "activeDeadlineSeconds": _SECONDS,
            "ttlSecondsAfterFinished": 86_400,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _script(fleet: Path, group: Group, python: str) -> str:
    """Verify, and put the report in place as a whole: a pod may be ended at any moment."""
    words = [python, "-m", "envsolve", "verify", "--prefix", str(group.environment(fleet)), "--format", "json"]
    folder = shlex.quote(str(report_of(fleet, group, "").parent))
    return (
        f'mkdir -p {folder} && cd {folder} && {shlex.join(words)} > ".$ENVSOLVE_NODE.part"; code=$?; '
        'mv ".$ENVSOLVE_NODE.part" "$ENVSOLVE_NODE.json"; exit $code'
    )

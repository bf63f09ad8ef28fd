"""Kubernetes objects as values, and the manifest whose pods print the profile of their node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envsolve.fleet.probe import SCRIPT

_HOST_NAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PROBE = "envsolve-probe"
_HEADING = """\
# kubectl apply -f FILE
# mkdir logs
# for pod in $(kubectl get pods -l app=envsolve-probe -o name); do kubectl logs "$pod" > "logs/${pod#pod/}.log"; done
# kubectl delete -f FILE
# envsolve fleet probe --from logs
#
# If the runtime of the GPUs is not the default one, as with the GPU operator, add "runtimeClassName": "nvidia" to the
# spec of the pods.
"""


def documents(*objects: Mapping[str, Any]) -> str:
    """Objects as JSON, which is YAML, one document each."""
    return "\n---\n".join(json.dumps(one, indent=2) for one in objects) + "\n"


def indexed_job(
    name: str,
    labels: Mapping[str, str],
    pod: Mapping[str, Any],
    *,
    pods: int,
    retries: int,
    seconds: int,
    kept_seconds: int,
) -> dict[str, Any]:
    """A Job of as many pods as there are nodes; a pod that fails does not stop the others.

    Args:
        name: The Job's name.
        labels: Of the Job and of its pods, which by these keep apart: one on each node.
        pod: The spec of a pod, without its restart policy.
        pods: Their number.
        retries: How often a pod that failed is started again.
        seconds: The time limit of the whole Job; pods for which no node is left are pending until then.
        kept_seconds: After these, a Job that has ended is deleted.
    """
    apart = {"topologyKey": _HOST_NAME, "labelSelector": {"matchLabels": labels}}
    affinity = {**pod.get("affinity", {}), "podAntiAffinity": {_REQUIRED: [apart]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimitPerIndex": retries,
            "maxFailedIndexes": pods,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": kept_seconds,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", **pod, "affinity": affinity},
            },
        },
    }


def on_nodes(names: list[str]) -> dict[str, Any]:
    """The affinity of pods that run on nodes of these names only."""
    hosts = {"key": _HOST_NAME, "operator": "In", "values": names}
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}}}


def container(name: str, image: str, command: str, capabilities: str, mount: Mapping[str, str]) -> dict[str, Any]:
    """A container that runs a shell command and sees the name and all GPUs of its node.

    Args:
        name: Of the container.
        image: That it is made from.
        command: For ``sh -c``.
        capabilities: What the NVIDIA runtime mounts: ``utility`` is enough for NVML.
        mount: Its one volume.
    """
    return {
        "name": name,
        "image": image,
        "command": ["sh", "-c", command],
        "env": [
            {"name": "ENVSOLVE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            # All GPUs of the node, also while other pods hold them.
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": capabilities},
        ],
        "volumeMounts": [mount],
    }


def probe_manifest(image: str = "python:3.12-slim", nodes: int | None = None) -> str:
    """A manifest whose pods print the profile of their node; `kubectl logs` of all pods are the profiles.

    Args:
        image: An image with a Python. Its libc is the one in the profiles, as it is in containers made from it.
        nodes: For a Job of as many pods, each on a node of its own; None for a DaemonSet.
    """
    labels = {"app": _PROBE}
    # The pods of a DaemonSet may not end, or they would be started again.
    command = "python3 /probe/probe.py; exec sleep infinity" if nodes is None else "exec python3 /probe/probe.py"
    pod = {
        "tolerations": [{"operator": "Exists"}],
        "containers": [container("probe", image, command, "utility", {"name": "probe", "mountPath": "/probe"})],
        "volumes": [{"name": "probe", "configMap": {"name": _PROBE}}],
    }
    if nodes is None:
        # It reaches every node without their number being known.
        template = {"metadata": {"labels": labels}, "spec": pod}
        pods: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": _PROBE, "labels": labels},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
    else:
        # It ends, is cleaned up by itself, and may be created where DaemonSets may not.
        pods = indexed_job(_PROBE, labels, pod, pods=nodes, retries=1, seconds=600, kept_seconds=3600)
    # As text, so that a person who is asked to run it can read it first.
    script = "".join(f"    {line}".rstrip() + "\n" for line in SCRIPT.read_text(encoding="utf-8").splitlines())
    config = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {_PROBE}\ndata:\n  probe.py: |\n{script}"
    return f"{_HEADING}{config}---\n{documents(pods)}"

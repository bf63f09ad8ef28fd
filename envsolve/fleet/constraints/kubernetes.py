"""Kubernetes: node affinity by the labels of GPU feature discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.model import Inventory
from envsolve.planning.lock import Assumptions
from envsolve.values import ComputeCapability

NAME = "kubernetes"


def requirements(assumes: Assumptions, _: Sequence[str], __: Inventory, catalogue: Catalogue) -> Mapping[str, Any]:
    """Return a part of a pod's ``spec``."""
    return _spec(assumes, {one.fact: one.name for one in catalogue.job_labels if one.engine == NAME})


def _spec(assumes: Assumptions, names: Mapping[str, str]) -> Mapping[str, Any]:
    if not {"driver-major", "driver-minor", "capability-major", "capability-minor", "gpus", "arch"} <= names.keys():
        return {}
    shared = []
    if arch := names.get(f"arch-{assumes.arch}"):
        shared.append(_expression(names["arch"], "In", arch))
    capabilities = [
        [
            _expression(names["capability-major"], "In", str(capability.major)),
            _expression(names["capability-minor"], "In", str(capability.minor)),
        ]
        for capability in map(ComputeCapability.parse, assumes.gpus)
    ]
    # Expressions of a term all hold; of the terms one does.
    terms = [
        {"matchExpressions": [*shared, *of_gpu, *of_driver]}
        for of_gpu in capabilities or [[]]
        for of_driver in _drivers(assumes, names)
        if shared or of_gpu or of_driver
    ]
    found: dict[str, Any] = {}
    if terms:
        required = {"nodeSelectorTerms": terms}
        found["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if assumes.gpus:
        found["containers"] = [{"name": "main", "resources": {"limits": {names["gpus"]: 1}}}]
    return found


def _drivers(assumes: Assumptions, names: Mapping[str, str]) -> list[list[Mapping[str, Any]]]:
    """Node selector terms for a driver: a newer branch, or its branch with at least its second number."""
    if not assumes.gpus or not assumes.driver_required:
        return [[]]
    major, *rest = map(int, assumes.driver_required.split("."))
    newer = _expression(names["driver-major"], "Gt", str(major))
    if not rest or not rest[0]:
        return [[_expression(names["driver-major"], "Gt", str(major - 1))]]
    same = _expression(names["driver-major"], "In", str(major))
    return [[newer], [same, _expression(names["driver-minor"], "Gt", str(rest[0] - 1))]]


def _expression(key: str, operator: str, value: str) -> Mapping[str, Any]:
    return {"key": key, "operator": operator, "values": [value]}

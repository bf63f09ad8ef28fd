"""Profiles as nodes print them."""

from __future__ import annotations

import json
from typing import Any

GPUS = {
    "V100": ("Tesla V100-SXM2-16GB", "7.0"),
    "A100": ("NVIDIA A100-SXM4-80GB", "8.0"),
    "H100": ("NVIDIA H100 80GB HBM3", "9.0"),
    "L40S": ("NVIDIA L40S", "8.9"),
    "5090": ("NVIDIA GeForce RTX 5090", "12.0"),
}
PLATFORM = {"os": "linux", "arch": "x86_64", "libc": "glibc 2.36", "distro": "debian 12", "wsl": False}


def profile(node: str, gpu: str | None, driver: str | None = "580.95.05", count: int = 1, **more: Any) -> bytes:
    """What the probe prints on a node."""
    name, capability = GPUS[gpu] if gpu else ("", "")
    gpus = [
        {"name": name, "compute_capability": capability, "memory_mib": 81559, "mig": False, "uuid": f"GPU-{node}-{n}"}
        for n in range(count if gpu else 0)
    ]
    found = {
        "schema": "envsolve.machine/2",
        "node": node,
        "faults": [],
        "platform": PLATFORM,
        "driver": {"version": driver, "cuda": None} if driver and gpu else None,
        "gpus": gpus,
        "pythons": [{"version": "3.12.1", "path": "/usr/bin/python3"}],
    }
    return json.dumps({**found, **more}).encode()

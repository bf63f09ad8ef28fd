"""A Jetson's own builds: those for servers of the same architecture have no code for it."""

from __future__ import annotations

from envsolve.catalogue.model import Architecture
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene


def jetson_remedies(scene: Scene) -> tuple[Remedy, ...]:
    """Where NVIDIA's wheels for a Jetson are; empty where there is none."""
    islands = [gpu for gpu in scene.gpus if _is_island(scene.facts.architectures.get(gpu.compute_capability or ""))]
    if not islands and not scene.is_jetson:
        return ()
    code = islands[0].cc.sm if islands and islands[0].cc else "its own sm"
    text = (
        f"Use a wheel from NVIDIA's Jetson index or a Jetson container: a Jetson runs only code made for it ({code}), "
        "which wheels for servers do not carry. Such wheels exist for each JetPack's own Python alone: make the "
        "environment with the system's python3."
    )
    return (Remedy(text),)


def _is_island(known: Architecture | None) -> bool:
    return known is not None and known.island

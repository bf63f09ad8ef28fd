"""SkyPilot: a task for each plan, which requests GPUs of the plan and makes its environment on the machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.plan import FleetPlan, Group
from envsolve.fleet.probe import read_inventory
from envsolve.machine.model import Machine

NAME = "skypilot"

_HEADING = """\
# sky launch FILE --env COMMAND='python train.py'
# `sky show-gpus` lists SkyPilot's names of GPUs. Several documents are several tasks: choose one with --plan NAME.
"""


def render(fleet: Path, made: FleetPlan, _: str) -> str:
    """Return YAML documents."""
    names = {one.fact: one.name for one in Catalogue().job_labels if one.engine == NAME}
    classes = {one.name: one.machine for one in read_inventory(fleet).classes}
    documents = [json.dumps(_task(fleet, group, _gpus(group, classes, names)), indent=2) for group in made.groups]
    return _HEADING + "\n---\n".join(documents) + "\n"


def _gpus(group: Group, classes: Mapping[str, Machine], names: Mapping[str, str]) -> Iterator[str]:
    """SkyPilot's names of the GPUs of a plan's classes; a task may get any of them."""
    for name in group.classes if group.assumes.gpus else ():
        short = name.partition("-")[0]  # classes are named after their GPUs: h100-580.95.05
        gpus = classes[name].gpus if name in classes else None
        memory = max((gpu.memory_mib / 1024 for gpu in gpus or () if gpu.memory_mib), default=0.0)
        sized = {name: float(fact.rpartition("-")[2]) for fact, name in names.items() if fact.startswith(f"{short}-")}
        # What a driver reports is up to a fortieth less than what the GPU is called after.
        fitting = (name for name, size in sized.items() if abs(memory - size) < size / 20)
        yield next(fitting, None) or names.get(short) or short.upper()


def _task(fleet: Path, group: Group, gpus: Iterable[str]) -> dict[str, Any]:
    lock, place = f"~/pylock.{group.name}.toml", f"~/envs/{group.name}-{group.digest}"
    task: dict[str, Any] = {
        "name": group.name,
        "file_mounts": {lock: str(group.lock(fleet))},
        "envs": {"COMMAND": "python -V"},
        "setup": f"python3 -m pip install envsolve && python3 -m envsolve install {lock} --prefix {place}",
        "run": f'. {place}/bin/activate && eval "$COMMAND"',
    }
    if wanted := dict.fromkeys(sorted(gpus), 1):
        task["resources"] = {"accelerators": wanted}
    return task

"""SkyPilot: a task for each plan, which asks for GPUs that the plan serves and makes its environment on the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envsolve.fleet.plan import FleetPlan, Group

_HEADING = """\
# sky launch FILE --env COMMAND='python train.py'
# `sky show-gpus` lists SkyPilot's names of GPUs. Several documents are several tasks: choose one with --plan NAME.
"""


def render(fleet: Path, made: FleetPlan, _: str) -> str:
    """Return YAML documents."""
    documents = [json.dumps(_task(fleet, group), indent=2) for group in made.groups]
    return _HEADING + "\n---\n".join(documents) + "\n"


def _task(fleet: Path, group: Group) -> dict[str, Any]:
    lock, place = f"~/pylock.{group.name}.toml", f"~/envs/{group.name}-{group.digest}"
    task: dict[str, Any] = {
        "name": group.name,
        "file_mounts": {lock: str(group.lock(fleet))},
        "envs": {"COMMAND": "python -V"},
        "setup": f"python3 -m pip install envsolve && python3 -m envsolve install {lock} --prefix {place}",
        "run": f'. {place}/bin/activate && eval "$COMMAND"',
    }
    # Classes are named after their GPUs: h100-580.95.05.
    gpus = sorted({name.split("-")[0].upper() for name in group.classes}) if group.assumes.gpus else []
    if gpus:
        task["resources"] = {"accelerators": dict.fromkeys(gpus, 1)}
    return task

"""Ray: a ``runtime_env`` whose workers run in the environment that fits their node."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from envsolve.fleet.plan import FleetPlan

_TEXT = """\
# ray job submit --runtime-env FILE -- python train.py
# In Python: ray.init(runtime_env=yaml.safe_load(open("FILE")))
# Workers import Ray from the environment: plan the fleet with the Ray and the Python of the cluster (Python {minor}).
py_executable: {command}
"""


def render(fleet: Path, made: FleetPlan, python: str) -> str:
    """Return YAML; Ray puts ``py_executable`` in place of its own Python, before the name of the worker's program."""
    words = [python, "-m", "envsolve", "run", "--fleet", str(fleet), "--", "python"]
    return _TEXT.format(minor=made.python or "as planned", command=json.dumps(shlex.join(words)))

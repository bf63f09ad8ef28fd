"""The tasks of SkyPilot."""

from __future__ import annotations

import json
from pathlib import Path

from envsolve.fleet.emit.skypilot import render
from envsolve.fleet.plan import read_plan


def test_each_plan_is_a_task_with_its_gpus(fleet: Path) -> None:
    text = render(fleet, read_plan(fleet), "")
    documents = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")).split("---\n")
    old, new = map(json.loads, documents)
    assert old["resources"] == {"accelerators": {"V100": 1}}
    assert new["resources"] == {"accelerators": {"H100": 1}}
    assert old["file_mounts"] == {"~/pylock.cu126-sm70.toml": str(fleet / "locks/pylock.cu126-sm70.toml")}
    assert "envsolve install ~/pylock.cu126-sm70.toml --prefix ~/envs/cu126-sm70-0123456789ab" in old["setup"]

"""The tasks of SkyPilot."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from envsolve.fleet.emit.skypilot import render
from envsolve.fleet.plan import read_plan
from envsolve.fleet.probe import probe_files
from tests.fleet.profiles import profile


def test_each_plan_is_a_task_with_its_gpus(fleet: Path) -> None:
    text = render(fleet, read_plan(fleet), "")
    documents = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")).split("---\n")
    old, new = map(json.loads, documents)
    assert old["resources"] == {"accelerators": {"V100": 1}}
    assert new["resources"] == {"accelerators": {"H100": 1}}
    assert old["file_mounts"] == {"~/pylock.cu126-sm70.toml": str(fleet / "locks/pylock.cu126-sm70.toml")}
    assert "envsolve install ~/pylock.cu126-sm70.toml --prefix ~/envs/cu126-sm70-0123456789ab" in old["setup"]


@pytest.mark.parametrize(
    ("gpu", "memory", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", 81920, "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", 81251, "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100"),
        ("Tesla V100-SXM2-32GB", 32768, "V100-32GB"),
        ("Tesla V100-SXM2-16GB", 16384, "V100"),
        ("NVIDIA RTX A6000", 49140, "A6000"),
        ("NVIDIA L40S", 46068, "L40S"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX4090"),
        ("NVIDIA H100 80GB HBM3", None, "H100"),
    ],
)
def test_gpus_have_the_names_of_skypilot(fleet: Path, gpu: str, memory: int | None, name: str) -> None:
    (fleet.parent / "one").mkdir()
    gpus = [{"name": gpu, "compute_capability": "8.0", "memory_mib": memory}]
    (fleet.parent / "one/n1.json").write_bytes(profile("n1", "A100", gpus=gpus))
    (found,) = probe_files(fleet, [fleet.parent / "one"]).classes
    made = read_plan(fleet)
    group = msgspec.structs.replace(made.groups[0], classes=(found.name,))
    text = render(fleet, msgspec.structs.replace(made, groups=(group,)), "")
    task = json.loads("".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")))
    assert task["resources"] == {"accelerators": {name: 1}}

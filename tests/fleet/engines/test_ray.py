"""A task on each node of Ray: a simulated Ray, and the real one if it is installed (``pytest -m cluster``)."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli import main
from envsolve.fleet.engines import Options, engine_named
from envsolve.fleet.probe import probe_nodes
from tests.fleet.profiles import profile


class FakeRay(types.ModuleType):
    """Runs tasks at once, in this process."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.results: dict[str, Any] = {}
        self.ended = False
        self.never: set[str] = set()
        self.cancelled: list[str] = []

    def is_initialized(self) -> bool:
        return False

    def init(self, **options: Any) -> None:
        if options["address"] == "nowhere":
            raise ConnectionError("Could not find any running Ray instance")

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": f"{name}0000000", "Alive": name != "dead", "NodeName": name} for name in ("a", "b", "c", "dead")
        ]

    def remote(self, function: Callable[..., Any]) -> Any:
        def run(text: str, stdin: bytes, node: str, most: int, tail: int) -> str:
            self.results[node] = function(text, stdin, node, most, tail)
            return node

        return types.SimpleNamespace(options=lambda **_: types.SimpleNamespace(remote=run))

    def wait(self, left: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        return [one for one in left if one not in self.never][:num_returns], []

    def get(self, one: str) -> Any:
        return self.results[one]

    def cancel(self, one: str, force: bool) -> None:
        self.cancelled.append(one)

    def shutdown(self) -> None:
        self.ended = True


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake, strategies = FakeRay(), types.ModuleType("ray.util.scheduling_strategies")
    vars(strategies)["NodeAffinitySchedulingStrategy"] = lambda node, soft: node
    for name, module in (("ray", fake), ("ray.util", types.ModuleType("ray.util")), (strategies.__name__, strategies)):
        monkeypatch.setitem(sys.modules, name, module)
    return fake


def python(directory: Path, does: str) -> str:
    (directory / "profile").write_bytes(profile("x", "H100"))
    (directory / "python").write_text(f"#!/bin/sh\ncd {directory}\n{does}\n")
    (directory / "python").chmod(0o755)
    return str(directory / "python")


def test_every_node_is_a_class_or_a_reason(ray: FakeRay, tmp_path: Path) -> None:
    does = "[ $ENVSOLVE_NODE = b ] && { echo it burns >&2; exit 5; }; grep -q sort_keys && cat profile"
    ray.never = {"c"}
    engine = engine_named("ray", Options(wait=1))
    inventory = probe_nodes(tmp_path / "fleet", engine, python=python(tmp_path, does))
    assert [one.nodes for one in inventory.classes] == [("a",)]
    assert inventory.unreachable == {
        "b": "exit code 5: it burns",
        "c": "no result after 1 s: its task is waiting or running",
        "dead": "Ray reports that it is dead",
    }
    assert ray.cancelled == ["c"] and ray.ended


def probe(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.run(["fleet", "probe", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_without_ray_or_a_cluster_the_command_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ray: FakeRay
) -> None:
    assert probe("--ray", "nowhere", "--fleet", str(tmp_path)) == 1
    assert "Ray at nowhere: Could not find any running Ray instance" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert probe("--ray", "auto", "--fleet", str(tmp_path)) == 2
    assert "Ray is not installed" in capsys.readouterr().err


@pytest.mark.cluster
def test_the_nodes_of_a_real_ray_are_probed(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster  # type: ignore[import-not-found, unused-ignore]

    os.environ["RAY_AUTH_MODE"] = "disabled"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "node_name": "n1"})
    try:
        for name in ("n2", "n3"):
            made.add_node(num_cpus=1, node_name=name)
        made.wait_for_nodes()
        engine = engine_named("ray", Options(nodes=made.address, time_limit=120, wait=240))
        does = "cat > /dev/null; cat profile"
        inventory = probe_nodes(tmp_path / "fleet", engine, python=python(tmp_path, does))
        assert [one.nodes for one in inventory.classes] == [("n1", "n2", "n3")]
    finally:
        made.shutdown()

"""A fleet's directory is shared: files of others in it choose no paths, no commands and no results."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envsolve.errors import UsageError
from envsolve.fleet.engines import Known, Outcome, Watcher, Work
from envsolve.fleet.install import install_fleet
from envsolve.fleet.jobs import only_one, run_on
from envsolve.fleet.model import Reader
from envsolve.fleet.plan import FleetPlan, read_plan
from envsolve.fleet.probe import probe_files, probe_nodes, read_inventory
from envsolve.system import progress
from tests.fleet.profiles import profile

GROUP: dict[str, Any] = {
    "name": "cu126-sm90",
    "classes": ["h100"],
    "nodes": ["n1"],
    "digest": "0123456789ab",
    "status": "ok",
    "assumes": {"schema": "envsolve.lock/1"},
    "constraints": {},
}


class Echo:
    """An engine whose nodes answer with their names."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def nodes(self) -> Mapping[str, Known]:
        return {}

    def run(self, work: Work, watcher: Watcher) -> None:
        for node in work.commands:
            self.ran.append(node)
            watcher.ended(node, Outcome(text=node.encode()))


def run(directory: Path, *nodes: str) -> tuple[list[str], Mapping[str, Outcome]]:
    engine = Echo()
    work = Work(dict.fromkeys(nodes, "true"), b"", directory, "work")
    outcomes = run_on(engine, work, "testing", fresh=3600)
    return engine.ran, outcomes


def test_a_name_that_is_another_path_or_an_option_is_not_run(tmp_path: Path) -> None:
    ran, outcomes = run(tmp_path / "fleet" / "work", "n1", "../../n2", "-oProxyCommand=x", "n\n3", "9" * 5000)
    assert ran == ["n1"]
    assert {one.failure for node, one in outcomes.items() if node != "n1"} == {"this is not a valid node name"}
    assert sorted(path.name for path in tmp_path.rglob("*.json")) == ["n1.json"]


def test_a_directory_of_results_that_is_a_link_or_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "work").symlink_to("victim")
    with pytest.raises(UsageError, match="is not a directory"):
        run(tmp_path / "work", "n1")
    assert not any((tmp_path / "victim").iterdir())
    if os.geteuid() == 0:
        (tmp_path / "theirs").mkdir()
        os.chown(tmp_path / "theirs", 65534, 65534)
        with pytest.raises(UsageError, match="another user's"):
            run(tmp_path / "theirs", "n1")


def test_a_result_that_another_user_or_a_link_left_is_not_taken(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    (tmp_path / "passed").write_text("passed")
    (work / "n1.json").symlink_to(tmp_path / "passed")
    (work / "n2.json").write_text("passed")
    (work / "n3.json").write_text("mine")
    if os.geteuid() == 0:
        os.chown(work / "n2.json", 65534, 65534)
    ran, outcomes = run(work, "n1", "n2", "n3")
    assert ran == (["n1", "n2"] if os.geteuid() == 0 else ["n1"])
    assert outcomes["n3"].text == b"mine"
    assert work.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "passed").read_text() == "passed"


def test_the_lock_of_a_directory_is_not_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError), only_one(tmp_path):
        raise AssertionError
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "../../victim"},
        {"name": ".."},
        {"digest": "x/../../victim"},
        {"nodes": ["../n1"]},
        {"assumes": {"schema": "envsolve.lock/1", "driver_required": "new"}},
        {"assumes": {"schema": "envsolve.lock/1", "environment": {"LD_PRELOAD": "/x.so"}}},
    ],
)
def test_a_plan_of_a_fleet_that_names_other_places_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"groups": [GROUP]}))
    assert read_plan(tmp_path).groups[0].environment(tmp_path).parent == tmp_path / "envs"
    path.write_text(json.dumps({"groups": [GROUP | changed]}))
    with pytest.raises(UsageError):
        read_plan(tmp_path)


def test_a_node_that_names_itself_oddly_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    for number, name in enumerate(("../../n", "9" * 4000, "-x", "a\nb")):
        (tmp_path / "from" / f"f{number}.json").write_bytes(profile(name, "H100"))
        assert Reader().read(profile(name, "H100"), "x").node is None
    made = probe_files(tmp_path / "fleet", [tmp_path / "from"])
    assert list(made.class_of) == ["f0", "f1", "f2", "f3"]
    assert read_inventory(tmp_path / "fleet") == made


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"classes": [{"name": "x", "nodes": ["../n"], "machine": {}}]}', "\0"]
)
def test_a_damaged_inventory_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(text)
    with pytest.raises(UsageError, match="is not the inventory of a fleet"):
        read_inventory(tmp_path)


# Progress, and what is kept of an interrupted run.


class Scripted:
    """An engine on which two nodes start, one of them fails, and one is never heard of."""

    def __init__(self, done: Callable[[], object] = lambda: True) -> None:
        self.asked: list[str] = []
        self.done = done

    def nodes(self) -> Mapping[str, Known]:
        return {}

    def run(self, work: Work, watcher: Watcher) -> None:
        self.asked = sorted(work.commands)
        watcher.started("a")
        watcher.started("b")
        watcher.ended("a", Outcome(failure="it burns"))
        deadline = time.monotonic() + 60
        while not self.done() and time.monotonic() < deadline:
            time.sleep(0.01)
        watcher.ended("b", Outcome(text=b"{}"))


def work(directory: Path) -> Work:
    return Work(dict.fromkeys("abc", "true"), b"", directory, "test")


def test_nodes_done_failed_and_running_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long enough for what comes before the first line, which tells no seconds that a busy computer would take.
    monkeypatch.setattr(progress, "_PERIODS", (0.5, 1000.0))
    line = progress._line
    monkeypatch.setattr(progress, "_line", lambda status: line(replace(status, began=time.monotonic())))
    shown = io.StringIO()
    with progress.shown(shown):
        outcomes = run_on(Scripted(shown.getvalue), work(tmp_path), "probing", fresh=60)
    assert shown.getvalue() == "probing 3 nodes: 1 of 3, 0 s, 1 failed, 1 running\n"
    assert outcomes["a"].failure == "it burns" and outcomes["b"].text == b"{}"
    assert outcomes["c"].failure == "there is no result for this node"


def test_what_an_interrupted_run_has_finished_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("[]")
    engine, shown = Scripted(), io.StringIO()
    with progress.shown(shown):
        run_on(engine, work(tmp_path), "probing", fresh=60)
    assert engine.asked == ["a", "c"]
    assert shown.getvalue() == "1 of 3 nodes have a result from an interrupted run\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be two users")
@pytest.mark.parametrize("name", ["locks", "envs", "modules", "reports"])
def test_a_link_of_another_user_is_refused_and_an_own_one_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (fleet / name).symlink_to("../elsewhere")
    with only_one(fleet):
        pass
    os.chown(fleet / name, 65534, 65534, follow_symlinks=False)
    with pytest.raises(UsageError, match="another user's link"), only_one(fleet):
        raise AssertionError
    with pytest.raises(UsageError, match="another user's link"):
        install_fleet(fleet, FleetPlan(), manager=None, progress=lambda _: None)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_lies_where_the_profiles_go_is_replaced(tmp_path: Path, kind: str) -> None:
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/kept").touch()
    if kind == "link":
        (fleet / "machines").symlink_to("../victim")
    else:
        os.mkfifo(fleet / "machines")
    engine = Profiles()
    probe_nodes(fleet, engine)
    assert (fleet / "machines/n1.json").read_bytes() == profile("n1", "H100").strip()
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["kept"]


class Profiles(Echo):
    """An engine with one node, which prints its profile."""

    def nodes(self) -> Mapping[str, Known]:
        return {"n1": Known()}

    def run(self, work: Work, watcher: Watcher) -> None:
        watcher.ended("n1", Outcome(text=profile("n1", "H100")))

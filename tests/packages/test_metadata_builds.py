"""Metadata that only the build of a source archive knows: built by pip if allowed, otherwise guessed with a warning."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlanWarning
from tests.distributions import make_sdist
from tests.planning.worlds import chosen
from tests.smallworld import World, small_world

BROKEN = b"""
def get_requires_for_build_wheel(config_settings=None):
    raise RuntimeError("no compiler is here")

prepare_metadata_for_build_wheel = build_wheel = get_requires_for_build_wheel
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with small_world(tmp_path) as made:
        made.default.wheel("dep", "1.0")
        made.default.sdist("odd", "1.0", requires=["dep"], metadata_version="1.2")
        yield made


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    return {**kept, "ENVSOLVE_CACHE_DIR": str(tmp_path / "own"), "PIP_CONFIG_FILE": os.devnull}


def guesses(plan: Plan) -> list[PlanWarning]:
    return [warning for warning in plan.warnings if warning.code == "dependencies-guessed"]


def test_nothing_is_built_unless_it_is_allowed(world: World) -> None:
    plan = world.plan("odd")
    assert (plan.status, chosen(plan)) == ("ok", {"odd": "1.0"})
    (warning,) = guesses(plan)
    assert warning.message.startswith("odd 1.0 determines its dependencies")
    assert "--build-metadata" in (warning.remedy or "")


def test_what_the_build_computes_is_planned_and_kept(world: World, environ: Mapping[str, str]) -> None:
    def planned(requirement: str) -> Plan:
        return world.plan(requirement, build_metadata=True, environ=environ)

    plan = planned("odd")
    assert chosen(plan) == {"odd": "1.0", "dep": "1.0"} and not guesses(plan)
    asked = len(world.server.requests)
    assert chosen(planned("odd")) == chosen(plan)
    archives = [request for request in world.server.requests[asked:] if request.path.endswith(".tar.gz")]
    assert not archives
    # An archive that is asked for by URL is built as well.
    url = world.default.projects["odd"][0].url
    direct = planned(f"odd @ {world.server.url}{url}")
    assert chosen(direct) == chosen(plan) and not guesses(direct)


def test_a_build_that_fails_leaves_the_guess(world: World, environ: Mapping[str, str]) -> None:
    archive = make_sdist("bad", "1.0", metadata_version="1.2", backend=BROKEN)
    world.default.add("bad", "bad-1.0.tar.gz", archive)
    plan = world.plan("bad", build_metadata=True, environ=environ)
    assert (plan.status, chosen(plan)) == ("ok", {"bad": "1.0"})
    (warning,) = guesses(plan)
    assert "because the build failed: RuntimeError: no compiler is here" in warning.message
    assert warning.remedy == "add its dependencies to the requirements yourself"

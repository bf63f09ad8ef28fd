"""A loopback channel with conda-forge's records, and plans made from it; nothing here reaches another host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import envsolve
from envsolve import Request
from envsolve.planning.plan import Plan
from tests.condachannel import CondaChannel, world

Planner = Callable[..., Plan]


@pytest.fixture(scope="package")
def rattler_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rattler")


@pytest.fixture(autouse=True)
def own_cache(rattler_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(rattler_cache))
    # Whatever the host is made to look like, it plays no part.
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")


@pytest.fixture(scope="package")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CondaChannel]:
    with CondaChannel(tmp_path_factory.mktemp("channels")) as served:
        served.add(*world()).fill()
        yield served


@pytest.fixture
def plan(channel: CondaChannel) -> Planner:
    def made(target: str, *requirements: str, **options: object) -> Plan:
        given = {"channels": [channel.url], **options}
        return envsolve.plan(Request(requirements, manager="conda", **given), [envsolve.describe_target(target)])  # type: ignore[arg-type]

    return made

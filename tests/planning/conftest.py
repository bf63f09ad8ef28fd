"""Small worlds for planning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.planning.questions import Questions, questions
from tests.smallworld import NEW, OLD, World, small_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with small_world(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Questions]:
    with questions(tmp_path_factory.mktemp("questions")) as made:
        yield made


@pytest.fixture
def torch_world(world: World) -> World:
    """torch 2.9 to 2.14 in miniature: the default index carries cu128, then cu130; cu126 is on an index of its own."""
    for name in ("filelock", "numpy"):
        world.default.wheel(name, "1.0", upload_time="2024-01-01T00:00:00Z")
    for version, default, triton in (
        ("2.9.1", "cu128", "3.5.1"),
        ("2.11.0", "cu130", "3.6.0"),
        ("2.14.1", "cu130", "3.8.0"),
    ):
        pins = ["filelock", f"triton=={triton}; platform_system == 'Linux'"]
        world.build("torch", version, default, requires=pins, code=NEW)
        world.build("torch", version, "cu126", index="pytorch", requires=pins, code=OLD)
        world.build("triton", triton, "any")
        minor = version.split(".")[1]
        vision = f"0.{int(minor) + 15}.0"
        for variant, index in ((default, "default"), ("cu126", "pytorch")):
            pin = f"=={version}"
            world.build("torchvision", vision, variant, index=index, requires=["numpy", f"torch{pin}"], torch=pin)
    world.build("torch", "2.11.0", "cu128", index="pytorch", requires=["filelock", "triton==3.6.0"], code=NEW)
    world.build("torch", "2.11.0", "cpu", index="pytorch", requires=["filelock"])
    return world

"""What stands is kept where it still fits, and the same inputs give the same bytes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.version import Version

from envsolve.formats import formats, render
from envsolve.install.lock_classes import installed, is_own_lock, locked
from envsolve.packages.requirement_files import read_requirements
from envsolve.solve.preferences import in_front, preferences_of, variants_in_front
from tests.planning.worlds import chosen
from tests.smallworld import NEW, World

ROOT = Path(__file__).parents[2]


def kept(**versions: str) -> tuple[tuple[str, str], ...]:
    return tuple(versions.items())


def test_versions_in_front() -> None:
    items = [Version(text) for text in ("3", "2", "1")]
    assert in_front(items, (Version("1"), Version("2")), lambda version: version) == items[::-1][:2] + items[:1]
    assert in_front(items, (), lambda version: version) == items
    assert in_front(items, (Version("9"),), lambda version: version) == items


@pytest.mark.parametrize(
    ("stays", "first"),
    [
        ("2.9.1", ("2.9.1", "cu128")),
        ("2.9.1+cu128", ("2.9.1", "cu128")),
        ("2.9.1+cu126", ("2.9.1+cu126", "cu126")),
        ("2.9.1+cu999", ("2.9.1", "cu128")),
        ("2.8.0", ("2.10.0", "cu130")),
    ],
)
def test_builds_in_front(stays: str, first: tuple[str, str]) -> None:
    builds = [("2.10.0", "cu130"), ("2.9.1", "cu128"), ("2.9.1+cu126", "cu126")]
    ordered = variants_in_front(builds, (Version(stays),), lambda build: Version(build[0]), lambda build: build[1])
    assert ordered[0] == first


def test_what_is_no_version_is_passed_over() -> None:
    pairs = [("Foo_Bar", "1.0"), ("foo-bar", "2.0"), ("foo-bar", "1.0"), ("x", "git+https")]
    assert preferences_of(pairs) == {"foo-bar": (Version("1.0"), Version("2.0"))}


def test_what_still_fits_stays_and_what_does_not_moves(torch_world: World) -> None:
    for version in ("1.1", "2.0"):
        torch_world.default.wheel("numpy", version, upload_time="2024-01-01T00:00:00Z")
    stands = kept(torch="2.11.0+cu126", torchvision="0.26.0+cu126", triton="3.6.0", numpy="1.1", filelock="0.9")
    plan = torch_world.plan("torch", "torchvision", keep=stands)
    assert chosen(plan) == {
        "torch": "2.11.0+cu126 cu126",
        "torchvision": "0.26.0+cu126 cu126",
        "triton": "3.6.0",
        "numpy": "1.1",
        "filelock": "1.0",
    }
    moved = torch_world.plan("torch>=2.12", "torchvision", "numpy>1.1", keep=stands)
    assert chosen(moved)["torch"] == "2.14.1 cu130"
    assert chosen(moved)["numpy"] == "2.0"


@pytest.mark.parametrize(
    ("stands", "target", "torch"),
    [
        ("2.9.1", "H100, driver 580.95.05", "2.9.1 cu128"),
        ("2.9.1", "GTX 1080 Ti, driver 580.95.05", "2.9.1+cu126 cu126"),  # has no code for the card: likewise
        ("2.10.0", "GTX 1080 Ti, driver 580.95.05", "2.14.1+cu126 cu126"),  # nor in any other variant
        ("2.14.1", "H100, driver 550.54.15", "2.14.1+cu126 cu126"),  # needs a newer driver: the version stays
        ("2.11.0", "RTX 5090, driver 570.86.10", "2.11.0+cu128 cu128"),
    ],
)
def test_what_does_not_run_on_the_machine_does_not_stay(
    torch_world: World, stands: str, target: str, torch: str
) -> None:
    torch_world.build("torch", "2.10.0", "cu128", requires=["filelock", "triton==3.5.1"], code=NEW)
    plan = torch_world.plan("torch", target=target, keep=kept(torch=stands))
    assert chosen(plan)["torch"] == torch


def test_a_withdrawn_version_moves(world: World) -> None:
    world.default.wheel("demo", "1.0", yanked="broken")
    world.default.wheel("demo", "2.0")
    assert chosen(world.plan("demo", target="no gpu", keep=kept(demo="1.0"))) == {"demo": "2.0"}


def test_yanked_releases_are_refused_unless_pinned(world: World) -> None:
    world.default.wheel("lib", "1.2", yanked="broken")
    assert world.plan("lib", target="no gpu").status == "impossible"
    assert world.plan("lib>=1", target="no gpu").status == "impossible"
    assert chosen(world.plan("lib==1.2", target="no gpu")) == {"lib": "1.2"}


def test_what_to_stay_with_is_read_out_of_a_lock(torch_world: World, tmp_path: Path) -> None:
    lock = tmp_path / "pylock.toml"
    lock.write_text(render(torch_world.plan("torch<2.12"), "pylock"))
    assert is_own_lock(lock)
    assert ("torch", "2.11.0") in locked(lock)
    again = torch_world.plan("torch", keep=locked(lock))
    assert render(again, "pylock") == lock.read_text()
    lock.write_text(lock.read_text().replace('created-by = "envsolve"', 'created-by = "another"'))
    assert not is_own_lock(lock)
    assert not is_own_lock(tmp_path / "nothing.toml")


def test_what_to_stay_with_is_read_out_of_an_environment() -> None:
    assert ("resolvelib", "") not in installed(Path(sys.prefix))
    assert "resolvelib" in dict(installed(Path(sys.prefix)))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_files_and_lines_is_none_of_the_answer(torch_world: World, tmp_path: Path, seed: int) -> None:
    asked = {"a.txt": ["torch", "numpy<2"], "b.txt": ["torchvision", "filelock"], "c.txt": ["numpy>=1", "torch>=2.9"]}
    texts = [_locked_text(torch_world, tmp_path, asked, random.Random(number)) for number in (seed, seed + 10)]
    assert texts[0] == texts[1]


def _locked_text(world: World, folder: Path, asked: dict[str, list[str]], chance: random.Random) -> str:
    files = []
    for name in chance.sample(sorted(asked), len(asked)):
        files.append(folder / name)
        files[-1].write_text("".join(f"{line}\n" for line in chance.sample(asked[name], len(asked[name]))))
    plan = world.plan(asked=read_requirements([], files))
    return "".join(render(plan, form) for form in ("pylock", "pip", "uv"))


def test_the_same_inputs_give_the_same_bytes_in_every_format(torch_world: World) -> None:
    """In processes whose sets and dictionaries are ordered otherwise, with empty caches."""
    torch_world.catalogue()
    of_wheels = [form for form in formats() if form not in ("conda-lock", "environment-yml", "pixi")]
    written = [_in_a_process(torch_world, str(seed), of_wheels) for seed in (1, 2)]
    assert written[0] == written[1]
    assert all(f"== {form}\n" in written[0] for form in of_wheels)


_SCRIPT = """
import sys
from pathlib import Path
from envsolve import describe_target
from envsolve.facts.catalogue import Catalogue
from envsolve.packages.client import IndexClient
from envsolve.packages.settings import IndexSettings
from envsolve.planning.make import make_plan
from envsolve.planning.request import Request
from envsolve.formats import render
from envsolve.packages.requirement_files import read_requirements
folder, cache, url, *forms = sys.argv[1:]
with IndexClient(IndexSettings(url, (), retries=0), cache_dir=Path(cache)) as client:
    machine = describe_target("H100 + A100, driver 580.95.05, linux-x86_64, glibc 2.35, python 3.12")
    asked = read_requirements(["torch", "torchvision", "numpy"])
    plan = make_plan(asked, [machine], Request(), Catalogue(Path(folder)), client)
for form in forms:
    print(f"== {form}")
    print(render(plan, form))
"""


def _in_a_process(world: World, seed: str, forms: Sequence[str]) -> str:
    cache = world.cache / seed
    command = [sys.executable, "-c", _SCRIPT, str(world.complete()), str(cache), world.default.url, *forms]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

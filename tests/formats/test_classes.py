"""One lock for several classes of machines, read as any installer reads it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from packaging.markers import Marker
from packaging.pylock import Pylock, PylockSelectError
from packaging.tags import compatible_tags, cpython_tags

from envsolve.errors import ImpossibleError
from envsolve.formats import render_plans
from envsolve.formats.pylock import render_classes
from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.planning.groups import Plans
from envsolve.planning.plan import DriverNeed, Plan, Support
from tests.formats.plans import CU126, FILELOCK, GOOD, IMPOSSIBLE, MIRROR, package

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CU132 = "https://download.pytorch.org/whl/cu132"


def plan(torch: str, index: str, driver: str, card: str, arch: str = "x86_64", python: str = "3.12") -> Plan:
    tag = f"cp{python.replace('.', '')}-cp{python.replace('.', '')}-manylinux_2_28_{arch}"
    packages = (
        FILELOCK,
        package("torch", torch, index=index, variant=index[-5:], tag=tag, requires=("filelock", "triton")),
        package("triton", "3.8.0", index=index, tag=tag),
    )
    return replace(
        GOOD,
        machines=(Machine(platform=Platform("linux", arch), driver=Driver(driver), gpus=(Gpu("a card", card),)),),
        python=python,
        cuda=index[-5:],
        packages=packages,
        support=(Support("torch", "a card", card, "native", None, None),),
        driver=DriverNeed(driver, "full", driver),
        environment={},
    )


OLD = plan("2.14.1+cu126", CU126, "525.60.13", "7.0")
NEW = plan("2.15.0", CU132, "580.65.06", "12.0")
ARM = plan("2.15.0", CU132, "580.65.06", "10.0", arch="aarch64")
FLEET = {"old": OLD, "new": NEW, "arm": ARM}


def lock(plans: Mapping[str, Plan]) -> Pylock:
    return Pylock.from_dict(tomllib.loads(render_classes(plans)))


def selected(made: Pylock, *groups: str, arch: str = "x86_64", python: str = "3.12") -> list[str]:
    """The files that an installer takes; without groups, what it takes where none is named."""
    environment = {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": arch,
        "python_version": python,
        "python_full_version": f"{python}.1",
    }
    numbers = tuple(map(int, python.split(".")))
    platforms = [f"manylinux_2_28_{arch}"]
    tags = [*cpython_tags(numbers, platforms=platforms), *compatible_tags(numbers, platforms=platforms)]
    found = made.select(environment=environment, tags=tags, dependency_groups=groups or None)  # type: ignore[arg-type]
    return [source.filename for _, source in found if hasattr(source, "filename")]


@pytest.mark.parametrize(
    ("group", "arch", "torch"),
    [
        ("old", "x86_64", "torch-2.14.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"),
        ("new", "x86_64", "torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl"),
        (None, "aarch64", "torch-2.15.0-cp312-cp312-manylinux_2_28_aarch64.whl"),
    ],
)
def test_each_class_gets_its_own_files(group: str | None, arch: str, torch: str) -> None:
    files = selected(lock(FLEET), *filter(None, [group]), arch=arch)
    assert files[:2] == [FILELOCK.filename, torch]
    assert len(files) == 3


def test_without_a_group_an_installer_refuses_where_cards_decide() -> None:
    with pytest.raises(PylockSelectError, match="Multiple packages with the name 'torch'"):
        selected(lock(FLEET))


def test_groups_only_where_no_marker_tells() -> None:
    made = lock(FLEET)
    assert made.dependency_groups == made.default_groups == ["old", "new"]
    assert lock({"new": NEW, "arm": ARM}).dependency_groups is None
    assert [p.marker for p in made.packages if p.name == "filelock"] == [None]
    x86 = "platform_system == 'Linux' and platform_machine == 'x86_64'"
    arm = "platform_system == 'Linux' and platform_machine == 'aarch64'"
    assert {str(p.version): p.marker for p in made.packages if p.name == "torch"} == {
        "2.15.0": Marker(f"{x86} and 'new' in dependency_groups or {arm}"),
        "2.14.1+cu126": Marker(f"{x86} and 'old' in dependency_groups"),
    }


def test_pythons_are_told_apart_by_markers() -> None:
    made = lock({"old": replace(OLD, python="3.11"), "new": NEW})
    assert made.requires_python is None and made.dependency_groups is None
    assert [str(one) for one in made.environments or ()] == [
        f'platform_system == "Linux" and platform_machine == "x86_64" and python_version == "{python}"'
        for python in ("3.11", "3.12")
    ]
    same = plan("2.15.0", CU132, "580.65.06", "12.0", python="3.11")
    both = lock({"new": NEW, "same": same})
    assert selected(both, python="3.11")[1] == "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert [p.marker for p in both.packages] == [None, None, None]


def test_an_unknown_platform_leaves_all_to_groups() -> None:
    made = lock({"old": replace(OLD, machines=(Machine(),)), "arm": ARM})
    assert made.environments is None
    assert made.dependency_groups == ["old", "arm"]


def test_dependencies_name_as_much_as_tells_entries_apart() -> None:
    torch = next(p for p in lock(FLEET).packages if str(p.version) == "2.15.0")
    assert torch.dependencies == [
        {"name": "filelock"},
        {"name": "triton", "version": "3.8.0", "index": CU132},
    ]
    own = package("own", "1.0", requires=("torch",))
    plans = {name: replace(one, packages=(*one.packages, own)) for name, one in FLEET.items()}
    shared = next(p for p in lock(plans).packages if p.name == "own")
    assert shared.marker is None and shared.index == MIRROR
    assert shared.dependencies == [
        {"name": "torch", "version": "2.15.0"},
        {"name": "torch", "version": "2.14.1+cu126"},
    ]


def test_each_class_says_what_it_assumes() -> None:
    table = (lock(FLEET).tool or {})["envsolve"]
    assert [*table["classes"]] == ["old", "new", "arm"]
    assert table["classes"]["old"]["driver_required"] == "525.60.13"
    assert table["classes"]["arm"]["gpus"] == ["10.0"]


def test_the_same_plans_give_the_same_bytes() -> None:
    assert render_classes(FLEET) == render_classes(dict(FLEET))


def test_a_single_plan_gives_the_ordinary_lock_and_none_says_why() -> None:
    text = render_plans(Plans(plans=(GOOD,), unserved=(IMPOSSIBLE,)), "pylock")
    assert tomllib.loads(text)["tool"]["envsolve"]["schema"] == "envsolve.lock/1"
    with pytest.raises(ImpossibleError):
        render_plans(Plans(unserved=(IMPOSSIBLE,)), "pylock")

"""Which part of a lock for several classes of machines a machine gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from packaging.pylock import Pylock
from packaging.version import Version

from envsolve.errors import ImpossibleError, UsageError
from envsolve.formats.pylock import render_classes
from envsolve.install.files import Lock, read_lock
from envsolve.install.lock_classes import for_machine
from envsolve.machine.model import Driver, Gpu, Interpreter, Machine, Platform
from envsolve.planning.lock import Assumptions, classes_from_table, classes_to_table
from tests.formats.test_classes import FLEET

X86 = Platform("linux", "x86_64", "glibc 2.35")
LINUX = Assumptions(python="3.12", os="linux", arch="x86_64")
CLASSES = {
    "old": replace(LINUX, driver_required="525.60.13", gpus=("7.0", "9.0")),
    "new": replace(LINUX, driver_required="580.65.06", gpus=("9.0", "12.0")),
    "arm": replace(LINUX, arch="aarch64", driver_required="580.65.06", gpus=("10.0",)),
}


def lock(classes: dict[str, Assumptions] = CLASSES, groups: tuple[str, ...] = ("old", "new")) -> Lock:
    pylock = Pylock(lock_version=Version("1.0"), created_by="test", packages=[], dependency_groups=groups)
    return Lock(pylock, Path("pylock.toml"), None, classes=classes)


def on(card: str | None, driver: str | None = "580.95", arch: str = "x86_64", python: str | None = None) -> Machine:
    gpus = (Gpu("a card", card),) if card else ()
    return Machine(platform=structs.replace(X86, arch=arch), driver=Driver(driver), gpus=gpus, python=python)


@pytest.mark.parametrize(
    ("machine", "name", "groups"),
    [
        (on("7.0", "535.104"), "old", ("old",)),
        (on("12.0"), "new", ("new",)),
        (on("9.0", "535.104"), "old", ("old",)),
        # Both fit: the one that asks the most of the driver.
        (on("9.0"), "new", ("new",)),
        (on("10.0", arch="aarch64"), "arm", ()),
        # An image is built without a GPU; one class is of that system.
        (on(None, None, arch="aarch64"), "arm", ()),
        (on("12.0", None), "new", ("new",)),
    ],
)
def test_the_class_that_a_machine_is_of(machine: Machine, name: str, groups: tuple[str, ...]) -> None:
    taken = for_machine(lock(), machine, None, ())
    assert taken.assumptions == CLASSES[name]
    assert taken.groups == groups
    assert taken.notes == (f"installing the packages of the lock for the class of machines {name}",)


def test_a_machine_of_no_class_is_told_what_each_lacks() -> None:
    with pytest.raises(ImpossibleError) as refused:
        for_machine(lock(), on("12.0", "570.86"), None, ())
    assert refused.value.message.splitlines()[1:] == [
        "  old: the lock was made for compute capability 7.0, 9.0; this machine has a card (cc 12.0)",
        "  new: the lock requires driver 580.65.06 or newer; this machine has 570.86",
        "  arm: the lock requires architecture aarch64; this machine has x86_64; "
        "the lock requires driver 580.65.06 or newer; this machine has 570.86; "
        "the lock was made for compute capability 10.0; this machine has a card (cc 12.0)",
    ]


@pytest.mark.parametrize("machine", [None, on(None, None), on("9.0", None)])
def test_what_cannot_be_told_is_asked_for(machine: Machine | None) -> None:
    with pytest.raises(UsageError) as refused:
        for_machine(lock(), machine, None, ())
    assert "--group old or --group new" in (refused.value.hint or "")


def test_a_class_that_is_named() -> None:
    assert for_machine(lock(), on(None, None), None, ["old"]).groups == ("old",)
    assert for_machine(lock(), None, None, ["arm"]).groups == ()
    for wrong in (["other"], ["old", "new"]):
        with pytest.raises(UsageError):
            for_machine(lock(), None, None, wrong)


def test_a_machine_without_a_gpu_gets_the_class_made_for_none() -> None:
    with_cpu = {**CLASSES, "cpu": replace(LINUX, cuda="cpu")}
    assert for_machine(lock(with_cpu), on(None, None), None, ()).assumptions == with_cpu["cpu"]
    assert for_machine(lock(with_cpu), on("12.0"), None, ()).assumptions == CLASSES["new"]


def test_the_python_that_is_asked_for_or_present_decides_between_what_fits() -> None:
    pythons = {"a": replace(CLASSES["new"], python="3.11"), "b": CLASSES["new"]}
    eleven = structs.replace(on("12.0"), pythons=(Interpreter("3.11.9", "p"),))
    assert for_machine(lock(pythons), eleven, None, ()).python == "3.11"
    assert for_machine(lock(pythons), eleven, "3.12", ()).python == "3.12"
    assert for_machine(lock(pythons), on("12.0", python="3.12"), None, ()).python == "3.12"
    with pytest.raises(UsageError, match=r"Python 3\.13"):
        for_machine(lock(pythons), eleven, "3.13", ())


def test_groups_of_another_tools_lock() -> None:
    other = lock({})
    assert for_machine(other, None, None, ()) is other
    assert for_machine(other, None, None, ["New"]).groups == ("New",)
    with pytest.raises(UsageError, match="no dependency group dev"):
        for_machine(other, None, None, ["dev"])


def test_the_table_is_read_back() -> None:
    assert classes_from_table(classes_to_table(CLASSES)) == CLASSES
    assert classes_from_table(LINUX.to_table()) == classes_from_table(None) == {}
    broken: tuple[dict[str, object], ...] = ({}, {"classes": {}}, {"classes": {"a": 1}})
    for wrong in broken:
        with pytest.raises(UsageError, match="has no classes"):
            classes_from_table({"schema": "envsolve.lock-classes/1", **wrong})


def test_what_plan_writes_is_what_install_reads(tmp_path: Path) -> None:
    path = tmp_path / "pylock.toml"
    path.write_text(render_classes(FLEET))
    assert [*read_lock(path).classes] == ["old", "new", "arm"]
    assert for_machine(read_lock(path), on("12.0"), None, ()).groups == ("new",)

from __future__ import annotations

import time

import pytest

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.model import Inventory, Reader, describe, folded, names_expanded, names_folded, stragglers
from envsolve.machine.model import Machine
from tests.fleet.profiles import profile


def machines(**printed: bytes) -> dict[str, Machine]:
    reader = Reader()
    return {name: reader.read(text, name).machine for name, text in printed.items()}


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu1"], "gpu1"),
        (["gpu01", "gpu02", "gpu03", "gpu17", "login"], "gpu[01-03,17],login"),
        (["gpu9", "gpu10", "gpu11"], "gpu[9-11]"),
        (["gpu09", "gpu10", "gpu9"], "gpu[09-10],gpu9"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["a1-ib", "a2-ib"], "a[1-2]-ib"),
        ([], ""),
    ],
)
def test_names_fold_and_unfold(names: list[str], text: str) -> None:
    assert names_folded(names) == text
    assert sorted(names_expanded(text)) == sorted(names)


@pytest.mark.parametrize("text", ["gpu[1-", "gpu[a-b]", "gpu[5-1]", "gpu]", "gpu[1-999999999]"])
def test_what_names_no_nodes_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        names_expanded(text)


def test_nodes_that_planning_cannot_tell_apart_are_one_class() -> None:
    found = folded(
        machines(
            gpu1=profile("gpu1", "H100", count=8),
            gpu2=profile("gpu2", "H100", count=4),
            gpu3=profile("gpu3", "H100", "550.54.15"),
            gpu10=profile("gpu10", "V100", "535.104.05"),
            login=profile("login", None),
        ),
        Catalogue(),
    )
    assert {one.name: one.nodes for one in found} == {
        "h100-580.95.05": ("gpu1", "gpu2"),
        "v100-535.104.05": ("gpu10",),
        "h100-550.54.15": ("gpu3",),
        "cpu": ("login",),
    }
    driver = found[0].machine.driver
    assert driver is not None and driver.cuda == "13.0"  # the catalogue knows it by the branch


def test_only_pythons_that_all_nodes_of_a_class_have_are_kept() -> None:
    older = [{"version": "3.12.9", "path": "/opt/python"}, {"version": "3.9.1", "path": "/usr/bin/python3"}]
    (one,) = folded(machines(a=profile("a", "H100"), b=profile("b", "H100", pythons=older)), Catalogue())
    assert [python.version for python in one.machine.pythons or ()] == ["3.12.1"]


def test_gpus_of_another_vendor_are_another_class() -> None:
    amd = [{"vendor": "amd", "name": "AMD Instinct MI300X OAM", "arch": "gfx942"}]
    found = folded(machines(a=profile("a", None), b=profile("b", None, accelerators=amd)), Catalogue())
    assert {one.name for one in found} == {"cpu", "mi300x"}


def test_a_log_with_other_lines_holds_a_profile() -> None:
    text = b"Welcome to gpu1\n[pod/x/probe] " + profile("gpu1", "H100") + b"\nbye\n"
    assert Reader().read(text, "x").node == "gpu1"
    assert Reader().read(b"Welcome " + profile("gpu2", "H100"), "x").node == "gpu2"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"null", b"[]", b"no", b"\xff\xfe", b'{"node": 5}', b'{"schema": "x/1"}', b'{"gpus": [5]}']
)
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError):
        Reader().read(text, "gpu1")


def test_a_driver_unlike_that_of_the_peers_is_named() -> None:
    printed = {f"gpu{n}": profile(f"gpu{n}", "H100") for n in range(1, 9)}
    printed["gpu9"] = profile("gpu9", "H100", "535.54.03")
    printed["old1"] = profile("old1", "V100", "535.54.03")
    inventory = Inventory(
        classes=folded(machines(**printed), Catalogue()),
        unreachable={"gpu10": "exit code 127", "gpu11": "exit code 127"},
        faults={"gpu3": ("GPU 0 is lost",)},
    )
    assert stragglers(inventory) == {"gpu9": "driver 535.54.03, and 8 of 9 nodes with its GPUs have 580.95.05"}
    text = describe(inventory)
    assert text.startswith("10 of 12 nodes answered; 3 classes\n")
    assert "  gpu[10-11]: exit code 127" in text and "gpu3: GPU 0 is lost" in text and "gpu9: driver 535" in text


def test_ten_thousand_profiles_fold_in_seconds() -> None:
    kinds = [(gpu, driver) for gpu in ("V100", "A100", "H100", "L40S") for driver in ("535.104.05", "580.95.05")]
    printed = [(f"n{n}", profile(f"n{n}", *kinds[n % 8], count=8)) for n in range(10_000)]
    started = time.process_time()
    reader = Reader()
    found = folded({name: reader.read(text, name).machine for name, text in printed}, Catalogue())
    assert time.process_time() - started < 5
    assert len(found) == 8 and sum(len(one.nodes) for one in found) == 10_000

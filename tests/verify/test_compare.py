"""An earlier report against a later one, case by case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envsolve.errors import UsageError
from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.system.files import dump
from envsolve.verify.report import Change, Check, Report, Status, changes, compared, describe, read_report, with_machine

H100, A100 = "NVIDIA H100 (cc 9.0)", "NVIDIA A100 (cc 8.0)"
VERSIONS = {"torch": "2.10.0", "numpy": "2.4.0"}


def check(
    name: str, place: str | None, status: Status = "pass", seconds: float = 1.0, cause: str | None = None
) -> Check:
    gpu = f"{place}: {H100}" if place and place.isdigit() else place
    return Check(name, gpu, status, seconds, "", cause)


def report(*checks: Check, gpus: tuple[str, ...] = ("9.0",), **versions: str) -> Report:
    machine = Machine(gpus=tuple(Gpu("GPU", capability) for capability in gpus))
    return Report(checks=checks, machine=machine, versions={**VERSIONS, **versions})


CASES: dict[str, tuple[Report, Report, list[dict[str, Any]]]] = {
    "nothing": (report(check("a", "0")), report(check("a", "0")), []),
    "a version": (
        report(),
        report(torch="2.11.0"),
        [{"kind": "version", "name": "torch", "before": "2.10.0", "now": "2.11.0"}],
    ),
    "a package that is new": (report(), report(xformers="1"), [{"kind": "version", "before": None, "now": "1"}]),
    "a package that is gone": (report(xformers="1"), report(), [{"kind": "version", "before": "1", "now": None}]),
    "a report without versions": (Report(), report(), []),
    "what passed fails": (
        report(check("a", "0")),
        report(check("a", "0", "fail", cause="out-of-memory")),
        [{"kind": "check", "before": "pass", "now": "fail (out-of-memory)", "worse": True}],
    ),
    "what passed can no longer be tried": (
        report(check("a", None)),
        report(check("a", None, "skip")),
        [{"before": "pass", "now": "skip", "worse": True}],
    ),
    "what failed passes": (
        report(check("a", "0", "fail")),
        report(check("a", "0")),
        [{"before": "fail", "now": "pass", "worse": False}],
    ),
    "another cause": (
        report(check("a", "0", "fail", cause="no-driver")),
        report(check("a", "0", "fail", cause="driver-too-old")),
        [{"before": "fail (no-driver)", "now": "fail (driver-too-old)", "worse": False}],
    ),
    "another choice of checks": (report(check("a", "0"), check("b", "0")), report(check("a", "0")), []),
    "run on a card, then compiled for one": (report(check("nvrtc", "0")), report(check("nvrtc", "9.0")), []),
    "a card that is gone": (
        report(check("a", "0"), check("a", "1"), gpus=("9.0", "9.0")),
        report(check("a", "0")),
        [{"kind": "check", "before": "pass", "now": None, "worse": True}, {"kind": "gpu"}],
    ),
    "all cards gone": (
        report(check("a", "0"), check("a", "1"), gpus=("9.0", "9.0")),
        report(check("a", None, "skip"), gpus=()),
        [{"now": "skip", "worse": True}, {"now": "skip", "worse": True}, {"kind": "gpu", "now": "none"}],
    ),
    "cards where there were none": (
        report(check("a", None, "skip"), gpus=()),
        report(check("a", "0")),
        [{"kind": "gpu"}, {"before": "skip", "now": "pass", "worse": False}],
    ),
    "another card in its place": (
        report(check("a", "0")),
        report(Check("a", f"0: {A100}", "pass", 1.0, ""), gpus=("8.0",)),
        [{"kind": "gpu", "before": "GPU (cc 9.0)", "now": "GPU (cc 8.0)"}],
    ),
    "a card more to compile for": (
        report(check("a", "9.0")),
        report(check("a", "9.0"), check("a", "12.1", "fail")),
        [{"kind": "check", "before": None, "now": "fail", "worse": False}],
    ),
    "slower": (
        report(check("a", "0", seconds=4.0)),
        report(check("a", "0", seconds=6.1)),
        [{"kind": "time", "before": "4.0 s", "now": "6.1 s", "worse": False}],
    ),
    "slower by little": (report(check("a", "0", seconds=0.1)), report(check("a", "0", seconds=0.9)), []),
    "slower by a small part": (report(check("a", "0", seconds=10.0)), report(check("a", "0", seconds=12.0)), []),
    "the time of what failed": (
        report(check("a", "0", "fail", seconds=120.0)),
        report(check("a", "0", "fail", seconds=1.0)),
        [],
    ),
}


@pytest.mark.parametrize(("before", "now", "expected"), CASES.values(), ids=CASES)
def test_what_is_not_as_it_was(before: Report, now: Report, expected: list[dict[str, Any]]) -> None:
    found = changes(before, now)
    assert len(found) == len(expected), found
    for change, fields in zip(found, expected, strict=True):
        assert {name: getattr(change, name) for name in fields} == fields
    assert compared(now, before).worse == any(fields.get("worse") for fields in expected)


def test_it_is_told_in_words() -> None:
    was, now = report(check("a", "0"), torch="2.10.0"), report(check("a", "0", "fail"), torch="2.11.0")
    assert describe(compared(now, was)).splitlines()[-3:] == [
        "not as in the earlier report:",
        f"      check a [0: {H100}]: pass -> fail; it passed before, and no longer does",
        "      version torch: 2.10.0 -> 2.11.0",
    ]
    assert describe(compared(now, now)).splitlines()[-1] == "the checks in both reports have the same results"


def test_a_saved_report_is_read_back(tmp_path: Path) -> None:
    machine = Machine(driver=Driver("580.95"), gpus=(Gpu("H100", "9.0", uuid="GPU-1"),), python="3.12")
    made = with_machine(report(check("a", "0")), machine)
    saved = compared(made, report())
    path = tmp_path / "report.json"
    path.write_text(dump(saved))
    assert read_report(path) == saved
    assert made.versions["driver"] == "580.95"
    assert "GPU-1" not in path.read_text()


def test_a_report_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(
        '{"schema": "envsolve.checks/1", "checks": [{"name": "a", "gpu": null, "status": "pass",'
        ' "seconds": 1, "detail": "", "cause": null, "command": null}]}'
    )
    assert read_report(path).checks == (Check("a", None, "pass", 1, ""),)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"checks": 5}', '{"schema": "envsolve.plan/1"}'])
def test_what_is_no_report(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a report of envsolve verify"):
        read_report(path)


def test_changes_with_worse_ones_first() -> None:
    before = report(check("a", "0"), check("b", "0"))
    now = report(check("a", "0"), check("b", "0", "fail"), torch="2.11.0")
    assert changes(before, now) == (
        Change("check", "b", f"0: {H100}", "pass", "fail", worse=True),
        Change("version", "torch", None, "2.10.0", "2.11.0"),
    )


def test_checks_that_are_skipped_for_one_reason_share_a_line() -> None:
    skipped = tuple(Check(f"check-{n}", None, "skip", 0.0, "the driver lists no GPU to run on") for n in range(4))
    text = describe(Report(checks=skipped))
    first = "skip  4 checks: the driver lists no GPU to run on: check-0, check-1, check-2, check-3"
    assert text.splitlines()[0] == first
    assert describe(Report(checks=skipped[:2])).count("skip  check-") == 2

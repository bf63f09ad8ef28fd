"""What a plan expected against what was seen: a surprise fails, also where the numbers agree."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from envsolve.errors import UsageError
from envsolve.files import read_regular
from envsolve.plan import DriverNeed, Support
from envsolve.verify.report import Check, Report

_CAPABILITY = re.compile(r"\(cc (\d+\.\d+)\)")
_FLAVOUR = re.compile(r"cu(\d+)(\d)")
_WORDS = {"sass": "machine code", "ptx": "PTX that the driver compiles"}
_CODE_OF = {"native": "sass", "family": "sass", "ptx": "ptx"}


@dataclass(frozen=True, slots=True)
class Expected:
    """The part of a plan's JSON that a run can be held against.

    Attributes:
        cuda: The flavour, ``cu126``.
        support: As :class:`envsolve.plan.Plan` has it, and ``driver``.
    """

    cuda: str | None = None
    support: tuple[Support, ...] = ()
    driver: DriverNeed | None = None


def read_expected(path: Path) -> Expected:
    """Read what the JSON of a plan (``envsolve plan --format json``) expects.

    Raises:
        UsageError: There is no such file, or it is no plan.
    """
    try:
        return msgspec.json.decode(read_regular(path), type=Expected)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} is no plan: {error}", hint="envsolve plan ... --format json -o FILE makes one"
        ) from error


def held_against(report: Report, expected: Expected) -> Report:
    """Hold what checks saw against a plan: a check that passed and saw something else fails.

    What no check saw, or the plan does not say, is as it was.
    """
    return replace(report, checks=tuple(_held(check, expected) for check in report.checks))


def _held(check: Check, expected: Expected) -> Check:
    if check.status != "pass":
        return check
    found = (
        _code(check, expected) if "code" in check.seen else _driver(check, expected) if "cuda" in check.seen else None
    )
    if found is None:
        return check
    agrees, words = found
    ending = f"as the plan expects: {words}" if agrees else f"and the plan expects otherwise: {words}"
    return replace(check, status="pass" if agrees else "fail", detail=f"{check.detail}; {ending}")


def _code(check: Check, expected: Expected) -> tuple[bool, str] | None:
    """Whether torch's code is of the expected kind, and that kind in words; None where none is expected."""
    match = _CAPABILITY.search(check.gpu or "")
    for support in expected.support:
        wanted = _CODE_OF.get(support.level)
        if support.package == "torch" and wanted and match and support.compute_capability == match[1]:
            return check.seen["code"] == wanted, f"{_WORDS[wanted]} ({support.code})"
    return None


def _driver(check: Check, expected: Expected) -> tuple[bool, str] | None:
    """Whether the driver knows the plan's CUDA in full; None where the plan does not count on it."""
    match = _FLAVOUR.fullmatch(expected.cuda or "")
    if not match or expected.driver is None or expected.driver.mode != "full":
        return None
    needed = int(match[1]), int(match[2])
    return tuple(
        map(int, check.seen["cuda"].split("."))
    ) >= needed, f"one that knows CUDA {match[1]}.{match[2]} in full"

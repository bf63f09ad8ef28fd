"""A report with what it is of, and a report read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
from msgspec import structs

from envsolve import __version__
from envsolve.errors import UsageError
from envsolve.files import read_regular
from envsolve.machine.model import Gpu, Machine
from envsolve.verify.compare import changes
from envsolve.verify.report import Report


def with_machine(report: Report, machine: Machine) -> Report:
    """The report, with the machine that it was made on: what decides of it, and the versions of driver and envsolve."""
    decides = structs.replace(
        machine, python=None, pythons=None, installers=None, sources={}, gpus=_without_ids(machine)
    )
    driver = machine.driver.version if machine.driver else None
    versions: Mapping[str, str] = {
        **report.versions,
        "envsolve": __version__,
        **({"driver": driver} if driver else {}),
    }
    return replace(report, machine=decides, versions=versions)


def _without_ids(machine: Machine) -> tuple[Gpu, ...] | None:
    """The GPUs without what tells one such card from another: a report is made to be shown to others."""
    return None if machine.gpus is None else tuple(structs.replace(gpu, uuid=None) for gpu in machine.gpus)


def compared(report: Report, before: Report) -> Report:
    """The report, with what is not as in an earlier one."""
    return replace(report, changes=changes(before, report))


class _Named(msgspec.Struct):
    """What says of itself what it is; a report without any check would be as good as any other JSON object."""

    schema: str


def read_report(path: Path) -> Report:
    """Read a report that ``envsolve verify --format json`` wrote.

    Raises:
        UsageError: There is no such file, or it is no report.
    """
    hint = "envsolve verify ... --format json -o FILE makes one"
    try:
        # Not msgspec's decoder: it refuses the escapes that stand for the bytes of a path that is no UTF-8.
        value = json.loads(read_regular(path))
        msgspec.convert(value, _Named)
        return msgspec.convert(value, Report)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=hint) from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no report of envsolve verify: {error}", hint=hint) from error

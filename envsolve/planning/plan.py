"""The Plan: the one value that rendering, installing and verifying consume.

The structs mirror the ``envsolve.plan/1`` JSON field by field.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from envsolve.errors import UsageError
from envsolve.machine.model import Machine
from envsolve.rules.verdict import FastPath
from envsolve.solve.outcome import ConflictFact, Fix, PlannedPackage, PlanWarning
from envsolve.system.files import from_json
from envsolve.system.limits import single_line
from envsolve.toolchain.model import Toolchain

SCHEMA: Literal["envsolve.plan/1"] = "envsolve.plan/1"


class Support(msgspec.Struct, frozen=True):
    """How one package's code runs on one GPU of the plan's machines."""

    package: str
    gpu: str
    compute_capability: str | None
    level: Literal["native", "family", "ptx", "none", "unknown"]
    code: str | None
    evidence: str | None


class DriverNeed(msgspec.Struct, frozen=True):
    """The driver that the plan needs and how it is met.

    Attributes:
        required: Oldest driver version that runs the plan.
        mode: ``full`` (the driver knows this CUDA), ``minor-version`` (same family, older), ``forward-compat``; None
            where the driver is unknown or not needed.
        have: The machine's driver version.
    """

    required: str | None
    mode: Literal["full", "minor-version", "forward-compat"] | None
    have: str | None


class CondaPin(msgspec.Struct, frozen=True):
    """A package that a plan pins: its version and, of a CUDA or CPU variant, the pattern of its build strings."""

    name: str
    version: str
    build: str | None = None


class CondaTerms(msgspec.Struct, frozen=True):
    """The input of a solve of conda packages, and the pins that give it again.

    Attributes:
        channels: Names or URLs, the preferred first.
        subdir: ``linux-64``.
        virtual: The virtual packages of the machines: ``{"__cuda": "12.4", "__archspec": "1=x86_64"}``.
        pins: What gives the plan again, also when newer packages are there, and never a CPU variant of what has a CUDA
            variant in it.
        pip: Exact requirements that pip installs on top, those of what conda installed among them, so that pip keeps
            it; empty if there is nothing for pip.
    """

    channels: tuple[str, ...]
    subdir: str
    virtual: Mapping[str, str]
    pins: tuple[CondaPin, ...]
    pip: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """The resolved answer, or the reason why it does not exist.

    Attributes:
        status: ``ok``, ``impossible``, or ``unknown`` (resolved, but something that decides could not be known).
        python: The environment's Python, ``3.12``.
        cuda: The variant, ``cu126`` or ``cpu``; None if no package of the plan has one.
        requirements: The requirements as asked.
        packages: Sorted by name.
        environment: Variables that must be set where the environment runs; a value may begin with
            :data:`envsolve.toolchain.model.SITE_PACKAGES`.
        catalogue_date: ISO date of the newest fact of the catalogue.
        own_catalogue_date: Likewise of the user's own catalogue directory; None if nothing of it was used.
        conda: Only in a plan of conda packages.
    """

    schema: Literal["envsolve.plan/1"] = SCHEMA
    status: Literal["ok", "impossible", "unknown"] = "ok"
    machines: tuple[Machine, ...] = ()
    python: str | None = None
    cuda: str | None = None
    requirements: tuple[str, ...] = ()
    packages: tuple[PlannedPackage, ...] = ()
    support: tuple[Support, ...] = ()
    fast_paths: tuple[FastPath, ...] = ()
    driver: DriverNeed | None = None
    environment: Mapping[str, str] = {}
    toolchain: Toolchain | None = None
    warnings: tuple[PlanWarning, ...] = ()
    conflict: tuple[ConflictFact, ...] = ()
    remedies: tuple[Fix, ...] = ()
    catalogue_date: str | None = None
    own_catalogue_date: str | None = None
    conda: CondaTerms | None = None

    def render(self, format: str) -> str:
        """Write the plan in one of the formats of ``envsolve plan --format``.

        Raises:
            UsageError: The format is unknown.
            ImpossibleError: The plan is impossible, and the format cannot say so.
            IndexUnavailableError: The format requires hashes that the plan lacks.
        """
        # The formats are built on plans, so they are above this package, and only the public API knows both.
        rendered: str = importlib.import_module("envsolve").render(self, format)
        return rendered

    def to_pylock(self) -> str:
        """Write the plan as a ``pylock.toml``; errors are those of :meth:`render`."""
        return self.render("pylock")

    def to_json(self) -> str:
        """Write the plan as ``envsolve.plan/1`` JSON, without the passwords and tokens of its URLs."""
        return self.render("json")

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """Read what :meth:`to_json` or ``envsolve plan --format json`` wrote.

        Raises:
            UsageError: The text is not the JSON of a plan.
        """
        hint = "make one with: envsolve plan ... --format json -o FILE"
        try:
            raw: Any = from_json(text, Any)
            # The schema has a default, so that conversion alone would take any object for a plan.
            if not (isinstance(raw, dict) and raw.get("schema") == SCHEMA):
                raise UsageError(f"not the JSON of a plan: its schema is not {SCHEMA}", hint=hint)
            if isinstance(fixes := raw.get("remedies"), list):
                # Diagnoses and plans share one value, whose text a plan/1 calls the action.
                raw["remedies"] = [
                    {"text": fix.get("action"), "unlocks": fix.get("unlocks")} if isinstance(fix, dict) else fix
                    for fix in fixes
                ]
            plan = msgspec.convert(_in_lines(raw), type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"not the JSON of a plan: {error}", hint=hint) from None
        # What locks and plans may hold is known above: locks are made of plans.
        for fault in importlib.import_module("envsolve.planning.saved").faults(plan):
            raise UsageError(f"not the JSON of a plan: {fault}", hint=hint)
        return plan


def _in_lines(value: Any) -> Any:
    """JSON whose texts are single lines, so that none becomes lines of a Dockerfile or a requirements file."""
    if isinstance(value, dict):
        return {single_line(key): _in_lines(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_lines(item) for item in value]
    return single_line(value) if isinstance(value, str) else value

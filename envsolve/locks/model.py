"""A lock of any tool as it is checked, and what the check found: as text, SARIF and annotations of a workflow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import msgspec

from envsolve import __version__
from envsolve.system.limits import is_sane, single_line

if TYPE_CHECKING:
    from envsolve.planning.lock import Assumptions
    from envsolve.rules.platform import Environment

Status = Literal["runs", "does not run", "incomplete", "unknown"]
#: Worst first; a machine has the status of its worst finding.
STATUSES: tuple[Status, ...] = ("does not run", "incomplete", "unknown", "runs")


def plain(text: Any) -> str | None:
    """A text of a lock that is printed or compared as a version; None if there is none.

    Raises:
        ValueError: It is no text, has line breaks or other control characters, or is too long to compare.
    """
    if text is not None and not (isinstance(text, str) and text.isprintable() and is_sane(text)):
        raise ValueError(f"{text!r:.60} is not the text of a field")
    return text


class Locked(msgspec.Struct, frozen=True, gc=False):
    """One package of a lock.

    Attributes:
        name: Normalised name; for conda packages the name on the channel.
        version: With its local part; None if the lock does not say.
        line: Where the lock has it, from 1.
        files: Names of its wheels; empty if the lock does not name files.
        hashes: The sha256 digests of all its files.
        source: Whether it can be built from source, or is not a file of an index at all.
        index: URL of the index that it comes from, if the lock says.
        conda: URL of the conda package.
    """

    name: str
    version: str | None
    line: int
    files: tuple[str, ...] = ()
    hashes: frozenset[str] = frozenset()
    source: bool = False
    index: str | None = None
    conda: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no tool writes: its texts become lines for people and commands of a workflow."""
        for text in (self.name, self.version, self.index, self.conda, *self.files):
            plain(text)


class LockFile:
    """A lock, whichever tool wrote it.

    Attributes:
        kind: The tool's name for it: ``uv.lock``.
        requires_python: What the lock requires of Python, if it says.
        python: The Python that its packages include or that it was made for, ``3.12``; None if any serves.
        choices: Its extras and groups that are not installed by default, as the tool's options: ``--extra cu126``.
        assumptions: What it assumes of a machine, if envsolve made it: several if it is for several classes of them.
    """

    kind: str
    requires_python: str | None = None
    python: str | None = None
    choices: Sequence[str] = ()
    assumptions: Mapping[str, Assumptions] = {}

    def select(self, environment: Environment, chosen: Sequence[str]) -> list[Locked] | None:
        """The packages that the tool installs on a system; None if the lock is not for such a system.

        Args:
            environment: The system and the Python.
            chosen: Some of ``choices``.
        """
        raise NotImplementedError


class Finding(msgspec.Struct, frozen=True):
    """One reason why a lock does not run on a machine, or one unknown fact.

    Attributes:
        code: Stable name: ``build-does-not-run``.
        status: What it makes of the machine.
        line: Line of the lock, from 1.
        text: What is wrong, and why.
        fixes: What to change, the smallest change first.
        source: Title of the source of the fact behind it.
    """

    code: str
    status: Status
    line: int
    text: str
    fixes: tuple[str, ...] = ()
    source: str | None = None


class MachineAnswer(msgspec.Struct, frozen=True):
    """The result of a lock on one machine.

    Attributes:
        machine: The machine in words.
        python: The Python that the lock was read for, ``3.12``.
        status: Of the worst finding.
        options: The extras and groups that were chosen, as options.
        builds: The builds that would be installed, ``torch 2.9.0 [cu126]``.
        findings: Worst first.
    """

    machine: str
    python: str
    status: Status
    options: tuple[str, ...]
    builds: tuple[str, ...]
    findings: tuple[Finding, ...]


class LockAnswer(msgspec.Struct, frozen=True):
    """The result of one lock on each machine."""

    file: str
    kind: str
    machines: tuple[MachineAnswer, ...]


class LockReport(msgspec.Struct, frozen=True):
    """The answer of ``envsolve check-lock``."""

    locks: tuple[LockAnswer, ...]
    schema: Literal["envsolve.lockcheck/1"] = "envsolve.lockcheck/1"

    @property
    def failed(self) -> bool:
        """Whether a lock does not run, or is incomplete, on a machine."""
        return any(one.status in STATUSES[:2] for lock in self.locks for one in lock.machines)


_VERDICTS: Mapping[Status, str] = {
    "runs": "runs",
    "does not run": "does not run, because",
    "incomplete": "incomplete",
    "unknown": "not known whether it runs",
}


def describe(report: LockReport) -> str:
    """The report as text: a line for each machine, and below it what was found.

    Nothing in it has a line of its own that a lock or its path could make a command of a workflow.
    """
    return "\n\n".join("\n".join(map(single_line, _lines(lock))) for lock in report.locks)


def _lines(lock: LockAnswer) -> Iterator[str]:
    for one in lock.machines:
        options = f", with {' '.join(one.options)}" if one.options else ""
        builds = f": {', '.join(one.builds)}" if one.builds and one.status == "runs" else ""
        yield f"{lock.file}: {one.machine}, Python {one.python}{options}: {_VERDICTS[one.status]}{builds}"
        for finding in one.findings:
            yield f"  {lock.file}:{finding.line}: {finding.text} [{finding.code}]"
            yield from (f"    {'->' if number == 0 else 'or'} {fix}" for number, fix in enumerate(finding.fixes))


# The same for other programs: SARIF, and annotations of a GitHub workflow.

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"does not run": "error", "incomplete": "error", "unknown": "warning", "runs": "note"}
#: What each code means, in a sentence of its own.
RULES = {
    "assumption": "The lock was made for another machine.",
    "build-does-not-run": "A locked build does not run on the machine.",
    "cpu-build": "A CPU build is locked for a machine with a GPU.",
    "gpu-unused": "A locked package does not use the GPU of the machine.",
    "platform": "The lock is not for the system of the machine.",
    "platform-wheel": "The lock has no wheel for the machine's system or Python.",
    "python": "The machine has no Python that the lock allows.",
    "requirement-missing": "The lock lacks packages that a locked build requires.",
    "source-build": "A package with compiled code is built from source on the machine.",
    "triton-does-not-run": "Kernels of the locked Triton do not run on the machine.",
    "unknown": "It is not known whether a locked build runs.",
    "unknown-build": "The catalogue has no facts about a locked build.",
    "variant-mix": "Locked builds are for different variants.",
    "version-mismatch": "Locked builds are not compatible with each other.",
}


def _all(report: LockReport) -> Iterator[tuple[LockAnswer, MachineAnswer, Finding]]:
    for lock in report.locks:
        for machine in lock.machines:
            yield from ((lock, machine, finding) for finding in machine.findings)


def _text(machine: MachineAnswer, finding: Finding) -> str:
    return f"{machine.machine}, Python {machine.python}: {finding.text}"


def sarif(report: LockReport) -> str:
    """The findings as SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/)."""
    results: list[dict[str, Any]] = [
        {
            "ruleId": finding.code,
            "level": _LEVELS[finding.status],
            "message": {"text": "\n".join((_text(machine, finding), *finding.fixes))},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": quote(lock.file.replace("\\", "/"))},
                        "region": {"startLine": finding.line},
                    }
                }
            ],
        }
        for lock, machine, finding in _all(report)
    ]
    rules = [{"id": code, "shortDescription": {"text": text}} for code, text in RULES.items()]
    driver = {"name": "envsolve", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def github(report: LockReport) -> str:
    """The findings as workflow commands, a line for each; a notice for each machine on which a lock runs."""
    lines = [
        _command(_LEVELS[finding.status], lock.file, finding.line, finding.code, _text(machine, finding))
        for lock, machine, finding in _all(report)
    ]
    for lock in report.locks:
        for one in lock.machines:
            if one.status == "runs":
                text = f"runs on {one.machine}, Python {one.python}"
                lines.append(_command("notice", lock.file, 1, "runs", text))
    return "\n".join(lines)


def _command(level: str, file: str, line: int, title: str, text: str) -> str:
    return f"::{level} file={_escaped(file, ':,')},line={line},title={title}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    # GitHub's documentation of workflow commands names these; a property must not hold a colon or comma either.
    for character in "%\r\n" + more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text

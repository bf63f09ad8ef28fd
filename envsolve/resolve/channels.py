"""Torch on conda-forge, whose builds carry code for cards that the package index has dropped or not yet got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packaging.version import Version

from envsolve.catalogue.model import Build, CondaBuild
from envsolve.compat.judge import Judge
from envsolve.compat.platform import assumed
from envsolve.machine.model import Machine
from envsolve.resolve.cutoff import too_late
from envsolve.resolve.family import Family
from envsolve.resolve.limits import Limits
from envsolve.resolve.outcome import Remedy

_CHANNEL, _PACKAGE = "conda-forge", "pytorch"
_SYSTEMS = {
    ("linux", "x86_64"): ("linux-64", "linux_x86_64"),
    ("linux", "aarch64"): ("linux-aarch64", "linux_aarch64"),
    ("windows", "x86_64"): ("win-64", "win_amd64"),
}


def conda_forge(family: Family, limits: Limits) -> Iterator[Remedy]:
    """The newest torch of conda-forge that is asked for and runs on all machines; none where more than torch is asked.

    Its Triton is not judged: conda-forge's has no ptxas of its own.
    """
    if [*limits.asked] != ["torch"] or not any(machine.gpus for machine in family.machines):
        return
    releases: dict[tuple[str, str], list[CondaBuild]] = {}
    for record in family.catalogue.conda:
        of_the_channel = (record.channel, record.package) == (_CHANNEL, _PACKAGE)
        if of_the_channel and record.cuda and not too_late(record.released, family.cutoff):
            releases.setdefault((record.version, record.cuda), []).append(record)
    newest_first = sorted(releases, key=lambda release: tuple(map(Version, release)), reverse=True)
    for version, cuda in newest_first:
        variant = f"cu{cuda.replace('.', '')}"
        wanted = limits.asked["torch"].contains(version, prereleases=True) and limits.flavour in (None, variant)
        records = [r for r in releases[version, cuda] if family.python is None or family.python in r.pythons]
        if wanted and all(_serves(records, machine, family) for machine in family.machines):
            yield Remedy("take it from conda-forge (--manager conda)", f"{_PACKAGE} {version} [{variant}]")
            return


def _serves(records: Sequence[CondaBuild], machine: Machine, family: Family) -> bool:
    """Whether one of a release's builds is for a machine's system and runs on all of its GPUs."""
    platform = assumed(machine.platform)
    subdir, tag = _SYSTEMS.get((platform.os or "", platform.arch or ""), ("", ""))
    judge, known = Judge(machine, family.facts), family.facts.architectures
    # Jetson parts are islands, and have builds of their own.
    island = any(gpu.compute_capability and known[gpu.compute_capability].island for gpu in machine.gpus or ())
    fitting = (r for r in records if r.subdir == subdir and (r.arm == "tegra") is island)
    return any(_runs(record, tag, judge) for record in fitting)


def _runs(record: CondaBuild, tag: str, judge: Judge) -> bool:
    build = Build(
        package="torch",
        version=record.version,
        variant=f"cu{(record.cuda or '').replace('.', '')}",
        platform=tag,
        pythons=(),
        index=_CHANNEL,
        evidence=record.evidence,
        source=record.source,
        code=record.code,
        cuda=record.cuda,
        libc=record.libc,
    )
    return all(verdict.level.usable for verdict in judge.verdicts(build, None))

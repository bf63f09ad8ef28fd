"""An environment of conda packages, made by rattler beside the prefix and named for it from the start."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from envsolve.conda import fill
from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.install import record, settings, strays, variables
from envsolve.install.conda_lock import CondaLock
from envsolve.install.errors import explained
from envsolve.install.files import File, Wanted
from envsolve.install.process import run
from envsolve.install.progress import Progress, Step
from envsolve.install.staging import Staging
from envsolve.lock import assumptions_of
from envsolve.plan import Plan, PlannedPackage

MANAGER = "conda"


@dataclass(frozen=True, slots=True)
class CondaWork:
    """What installing conda packages takes.

    Attributes:
        aim: All that the environment is to hold.
        subdir: The packages' subdir, ``linux-64``.
        python: The environment's Python, ``3.12``; None for one without.
    """

    aim: Wanted
    subdir: str
    python: str | None

    def holds(self, environment: Path) -> bool:
        """Whether an environment was made for exactly this plan, and is whole."""
        return record.holds(environment, self.aim, self.python)

    def make(self, stage: Staging, progress: Progress) -> tuple[str, ...]:
        """Make the whole environment in the working folder; returns warnings.

        Raises:
            EnvsolveError: What rattler's words mean.
        """
        title = fill.title()
        count = len(self.aim.files)
        progress(Step("packages", f"installing {count} conda package{'' if count == 1 else 's'} with {title}"))
        carry_out(self._order(stage), stage, progress)
        if self.aim.environment:
            variables.write(record.site_packages(stage.environment), self.aim.environment)
        record.write(stage.environment, python=self.python or "", manager=title, wanted=self.aim, pip=False)
        return ()

    def _order(self, stage: Staging) -> fill.Order:
        packages = tuple(fill.Package(f"{one.name} =={one.version}", one.url, one.hashes) for one in self.aim.files)
        # An address is CHANNEL/SUBDIR/FILE.
        channels = tuple(dict.fromkeys(one.url.rsplit("/", 2)[0] for one in self.aim.files))
        return fill.Order(packages, channels, self.subdir, str(stage.environment), str(stage.prefix))


def carry_out(order: fill.Order, stage: Staging, progress: Progress) -> None:
    """Have conda packages installed, in a process of its own.

    Raises:
        EnvsolveError: What rattler's words mean.
    """
    path = stage.folder / "order.json"
    path.write_bytes(msgspec.json.encode(order))
    ended = run(
        [sys.executable, "-m", fill.__name__, str(path)],
        environment={
            "TMPDIR": str(stage.temporary),
            **settings.kept_variables(os.environ),
            strays.MARK: str(stage.folder),
        },
        on_line=lambda line: progress(Step("output", line)),
    )
    if ended.code != 0:
        raise explained("rattler", ended.code, ended.output)


def conda_work(origin: Plan | CondaLock) -> CondaWork:
    """What installing a plan of conda packages or an explicit lock takes.

    Raises:
        IndexUnavailableError: A channel gives no hash of a package.
        UsageError: pip has to install a part of it.
    """
    if isinstance(origin, CondaLock):
        aim = Wanted(origin.files, dict(origin.assumptions.environment), origin.assumptions, None)
        return CondaWork(aim, origin.subdir, origin.python)
    terms = origin.conda
    assert terms is not None  # the caller has looked
    if terms.pip:
        hint = "write it with --format environment-yml, and make it with: conda env create --file"
        raise UsageError(f"what pip adds to conda packages is not installed: {', '.join(terms.pip)}", hint=hint)
    sizes = [package.size for package in origin.packages if package.size is not None]
    size = sum(sizes) if len(sizes) == len(origin.packages) else None
    files = tuple(map(_file, origin.packages))
    aim = Wanted(files, dict(origin.environment), assumptions_of(origin), size)
    return CondaWork(aim, terms.subdir, origin.python)


def _file(package: PlannedPackage) -> File:
    if package.url is None or package.filename is None or not package.hashes:
        hint = "ask whoever runs the channel for its hashes"
        raise IndexUnavailableError(f"{package.index} gives no hash of {package.filename}", hint=hint)
    # The one that an explicit lock names, so that an environment of the plan is one of its lock.
    best = "sha256" if "sha256" in package.hashes else "md5"
    hashes = {best: package.hashes[best]}
    return File(package.name, package.version, "conda", package.filename, package.url, hashes)

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
from envsolve.install.errors import explained
from envsolve.install.files import File, Wanted
from envsolve.install.process import run
from envsolve.install.progress import Progress, Step
from envsolve.install.staging import Staging
from envsolve.lock import assumptions_of
from envsolve.plan import CondaTerms, Plan, PlannedPackage

MANAGER = "conda"


@dataclass(frozen=True, slots=True)
class CondaWork:
    """What installing a plan of conda packages takes.

    Attributes:
        aim: All that the environment is to hold.
    """

    plan: Plan
    terms: CondaTerms
    aim: Wanted

    @classmethod
    def of(cls, plan: Plan, terms: CondaTerms) -> CondaWork:
        """Read a plan.

        Raises:
            IndexUnavailableError: A channel gives no hash of a package.
            UsageError: pip has to install a part of it.
        """
        if terms.pip:
            hint = "write it with --format environment-yml, and make it with: conda env create --file"
            raise UsageError(f"what pip adds to conda packages is not installed: {', '.join(terms.pip)}", hint=hint)
        sizes = [package.size for package in plan.packages if package.size is not None]
        size = sum(sizes) if len(sizes) == len(plan.packages) else None
        files = tuple(map(_file, plan.packages))
        return cls(plan, terms, Wanted(files, dict(plan.environment), assumptions_of(plan), size))

    def holds(self, environment: Path) -> bool:
        """Whether an environment was made for exactly this plan, and is whole."""
        return record.holds(environment, self.aim, self.plan.python)

    def make(self, stage: Staging, progress: Progress) -> tuple[str, ...]:
        """Make the whole environment in the working folder; returns warnings.

        Raises:
            EnvsolveError: What rattler's words mean.
        """
        title = fill.title()
        count = len(self.aim.files)
        progress(Step("packages", f"installing {count} conda package{'' if count == 1 else 's'} with {title}"))
        order = stage.folder / "order.json"
        order.write_bytes(msgspec.json.encode(self._order(stage)))
        ended = run(
            [sys.executable, "-m", fill.__name__, str(order)],
            environment={
                "TMPDIR": str(stage.temporary),
                **settings.kept_variables(os.environ),
                strays.MARK: str(stage.folder),
            },
            on_line=lambda line: progress(Step("output", line)),
        )
        if ended.code != 0:
            raise explained("rattler", ended.code, ended.output)
        if self.aim.environment:
            variables.write(record.site_packages(stage.environment), self.aim.environment)
        record.write(stage.environment, python=self.plan.python or "", manager=title, wanted=self.aim, pip=False)
        return ()

    def _order(self, stage: Staging) -> fill.Order:
        packages = tuple(
            fill.Package(f"{one.name} =={one.version} {_build(one)}", one.url or "", one.hashes)
            for one in self.plan.packages
        )
        channels = tuple(dict.fromkeys(one.index for one in self.plan.packages if one.index))
        return fill.Order(packages, channels, self.terms.subdir, str(stage.environment), str(stage.prefix))


def _file(package: PlannedPackage) -> File:
    if package.url is None or package.filename is None or not package.hashes:
        hint = "ask whoever runs the channel for its hashes"
        raise IndexUnavailableError(f"{package.index} gives no hash of {package.filename}", hint=hint)
    return File(package.name, package.version, "conda", package.filename, package.url, package.hashes)


def _build(package: PlannedPackage) -> str:
    """The build string, which the file name ends in."""
    stem = (package.filename or "").removesuffix(".conda").removesuffix(".tar.bz2")
    return stem.rpartition("-")[2]

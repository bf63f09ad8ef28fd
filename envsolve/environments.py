"""Stages that make, verify and list environments on this computer; and what any stage returns, as text or JSON.

Every function on an environment takes the same ``prefix``, its root directory. Imports are local to the functions, so
that each command loads only what it runs.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envsolve.errors import UsageError
from envsolve.machine.known import detect
from envsolve.planning.request import check_python_text
from envsolve.system.files import StrPath, items, path_of, paths

if TYPE_CHECKING:
    from envsolve.diagnose.environment import Survey
    from envsolve.install.environment import Installed
    from envsolve.install.errors import Progress
    from envsolve.machine.model import Machine
    from envsolve.planning.plan import Plan
    from envsolve.verify.expectations import Context
    from envsolve.verify.report import Probe, Report


def install(
    source: Plan | StrPath,
    prefix: StrPath,
    *,
    manager: str | None = None,
    python: str | None = None,
    groups: Sequence[str] = (),
    machine: Machine | None = None,
    check: bool = True,
    progress: Progress | None = None,
) -> Installed:
    """Make the environment of a plan or a lock, and verify it before it replaces anything.

    If :func:`envsolve.guard` protects the torch of the environment that is replaced, it protects the new one, too.

    Args:
        source: A plan, or the path of a lock file.
        prefix: A directory that does not exist yet, or an older environment to replace.
        manager: ``uv`` or ``pip``; if None, uv if it is installed, otherwise pip.
        python: ``3.12``, for a lock that supports several Pythons; the one that it was made for if None.
        groups: Dependency groups of a lock. Of a lock for several classes of machines, the class to install instead of
            the machine's own.
        machine: The machine that the lock's assumptions are compared with; this host if None.
        check: Whether to verify the environment on this computer's GPUs before it replaces the one at ``prefix``.
        progress: Called with every step.

    Raises:
        ImpossibleError: The plan is impossible, or the lock does not fit the machine.
        VerificationError: A check failed; the old environment is untouched.
        EnvsolveError: See :func:`envsolve.install.environment.install`.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.diagnosis import guard
    from envsolve.install.environment import install as make_environment
    from envsolve.install.errors import silent
    from envsolve.install.record import is_guarded
    from envsolve.verify.static import prove

    place = path_of(prefix, "prefix")
    guarded = is_guarded(place)
    made = make_environment(
        Path(source) if isinstance(source, (str, os.PathLike)) else source,
        place,
        manager=manager,
        python=check_python_text(python),
        groups=items(groups, str, "groups"),
        machine=machine or detect(),
        verify=partial(prove, explain=explain) if check else None,
        progress=progress or silent,
    )
    if guarded:
        with contextlib.suppress(UsageError):  # the new environment may have no torch to protect
            guard(place)
    return made


def verify(
    prefix: StrPath,
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    quick: bool = False,
    plan: StrPath | None = None,
    before: StrPath | None = None,
) -> Report:
    """Check an environment on this computer's GPUs.

    Args:
        prefix: The environment, or its interpreter if the root directory does not lead to it.
        time_limit: Seconds for each check.
        only: Names of the checks to run; all if empty.
        quick: Whether to run only the fastest, most telling checks.
        plan: The JSON of a plan, or a lock, to compare the results with.
        before: The JSON of an earlier report to compare this one with.

    Raises:
        UsageError: There is no environment, plan or report, the time limit is not positive, or ``only`` names an
            unknown check.
        ImpossibleError: The lock has no part for this machine.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.verify.runner import run_checks

    python, names, context = _interpreter(prefix), items(only, str, "only"), _context(plan, before)
    return context.around(run_checks(python, time_limit=time_limit, only=names, quick=quick, explain=explain))


def verify_compiles(
    prefix: StrPath,
    gpus: Sequence[str],
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    plan: StrPath | None = None,
    before: StrPath | None = None,
) -> Report:
    """Check, without a GPU, that an environment compiles kernels for GPUs and contains code for them.

    Args:
        prefix: As for :func:`verify`.
        gpus: Compute capabilities (``9.0``, ``sm_90``) or GPU names.
        time_limit: Seconds for each check.
        only: Names of the checks to run; all if empty.
        plan: As for :func:`verify`.
        before: As for :func:`verify`.

    Raises:
        UsageError: A GPU is unknown, or none is given; otherwise as :func:`verify`.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.gpu_names import find_gpu
    from envsolve.values import ComputeCapability
    from envsolve.verify.static import check_without_gpu

    python, catalogue = _interpreter(prefix), Catalogue()
    names = items(gpus, str, "gpus")
    chips = [ComputeCapability.parse(find_gpu(name, catalogue).compute_capability) for name in names]
    chosen, context = items(only, str, "only"), _context(plan, before)
    return context.around(check_without_gpu(python, chips, time_limit=time_limit, only=chosen, explain=explain))


def saved_report(report: StrPath, *, before: StrPath | None = None) -> Report:
    """Read a report saved as JSON (``envsolve verify --format json -o FILE``).

    Args:
        report: The file.
        before: The JSON of an earlier report to compare it with.

    Raises:
        UsageError: A file does not exist, or is not a report.
    """
    from envsolve.verify.report import compared, read_report

    read = read_report(path_of(report, "report"))
    return compared(read, read_report(path_of(before, "before"))) if before is not None else read


def _interpreter(prefix: StrPath) -> Path:
    from envsolve.environment.layout import interpreter_of
    from envsolve.system.files import is_file

    place = path_of(prefix, "prefix")
    return place.absolute() if is_file(place) else interpreter_of(place)


def _context(plan: StrPath | None, before: StrPath | None) -> Context:
    from envsolve.verify.expectations import read_context

    files = [path_of(file, name) if file is not None else None for name, file in (("plan", plan), ("before", before))]
    return read_context(detect(), *files)


def probe(prefix: StrPath, *, time_limit: float = 60.0, environ: Mapping[str, str] = os.environ) -> tuple[Probe, ...]:
    """Try torch, the GPU and Triton in an environment on this computer, in child processes of its interpreter.

    Args:
        prefix: The environment.
        time_limit: Seconds for each step.
        environ: Variables to set for the child processes, in addition to those already set.

    Raises:
        UsageError: The time limit is not positive.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.verify.runner import probe as try_out

    return try_out(path_of(prefix, "prefix"), environ, time_limit=time_limit)


def envs(
    directories: Sequence[StrPath] = (), machine: Machine | None = None, environ: Mapping[str, str] = os.environ
) -> Survey:
    """List the environments of this computer and whether the torch in each works on a machine; nothing is run.

    Args:
        directories: Where to look besides the places of venv, conda, pixi, uv, pipx and poetry.
        machine: The machine to judge them on; this host if None.
        environ: Environment variables, which say where the tools keep their environments.
    """
    from envsolve.diagnose.environment import survey
    from envsolve.environment.read import find_environments, find_installations
    from envsolve.facts.catalogue import Catalogue

    prefixes = [*find_environments(paths(directories, "directories"), environ), *find_installations(environ)]
    return survey(prefixes, machine or detect(), Catalogue(), environ)


def describe(value: object) -> str:
    """Describe a machine, a plan or the result of any other stage as text for a person.

    Raises:
        UsageError: The value is something else.
    """
    # Each value has its text beside it, except a machine and a plan.
    home = type(value).__module__
    module = {
        "envsolve.machine.model": "envsolve.machine.model",
        "envsolve.planning.plan": "envsolve.formats.summary",
    }
    found = importlib.import_module(module.get(home, home)) if home.startswith("envsolve.") else None
    text = getattr(found, "describe", None) or getattr(found, "render", None)
    if text is None:
        raise UsageError(f"a {type(value).__name__} has no description", hint="pass what a stage returned")
    return str(text(value))


def to_json(value: object) -> str:
    """Write a machine, a plan or the result of any other stage as the JSON that its command prints."""
    from envsolve.planning.plan import Plan
    from envsolve.system.files import dump

    return value.to_json() if isinstance(value, Plan) else dump(value)

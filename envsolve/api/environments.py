"""Environments on this computer: made, verified, tried, diagnosed, listed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from envsolve.api.guards import guard
from envsolve.api.machines import detect, machines_given
from envsolve.errors import UsageError
from envsolve.planning.request import StrPath, items, path_of, paths, program_of, python_version

if TYPE_CHECKING:
    from envsolve.diagnose.model import Diagnoses
    from envsolve.diagnose.survey import Survey
    from envsolve.install.environment import Installed
    from envsolve.install.errors import Progress
    from envsolve.machine.model import Machine
    from envsolve.planning.plan import Plan
    from envsolve.verify.context import Context
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
    """Make the environment of a plan, or of a ``pylock.toml``, at ``prefix``, and prove it before it is put in place.

    Where :func:`guard` holds the torch of the environment that is replaced, it holds that of the new one.

    Args:
        source: A plan, or the path of a lock file.
        prefix: Where the environment is to stand: nothing yet, or an older environment to replace.
        manager: ``uv`` or ``pip``; uv where it is present, else pip, where None.
        python: ``3.12``, for a lock that serves several Pythons; the one that it was made for where None.
        groups: Dependency groups of a lock; of one for several classes of machines, the class that is to be installed
            in place of the machine's own.
        machine: What a lock's assumptions are held against; this host where None.
        check: Whether to verify the environment on the GPUs at hand before it replaces what stands at ``prefix``.
        progress: Told of every step.

    Raises:
        ImpossibleError: The plan is impossible, or the lock does not fit the machine.
        VerificationError: A check failed; what stood at ``prefix`` still stands.
        EnvsolveError: Others, see :func:`envsolve.install.environment.install`.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.install.environment import install as make_environment
    from envsolve.install.errors import silent
    from envsolve.install.record import is_guarded
    from envsolve.verify.static import prove

    place = path_of(prefix, "prefix")
    held = is_guarded(place)
    made = make_environment(
        Path(source) if isinstance(source, (str, os.PathLike)) else source,
        place,
        manager=manager,
        python=python_version(python),
        groups=items(groups, str, "groups"),
        machine=machine or detect(),
        verify=partial(prove, explain=explain) if check else None,
        progress=progress or silent,
    )
    if held:
        with contextlib.suppress(UsageError):  # the new one may have no torch to be held
            guard(place)
    return made


def verify(
    python: StrPath,
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    quick: bool = False,
    plan: StrPath | None = None,
    before: StrPath | None = None,
) -> Report:
    """Check the environment of an interpreter on the GPUs at hand.

    Args:
        python: The interpreter, by its path or a name along PATH; that of a prefix is found by
            :func:`envsolve.environment.layout.interpreter_of`.
        time_limit: Seconds for each check.
        only: Names of the checks to run; all where empty.
        quick: Whether to run only those that show the most in the least time.
        plan: The JSON of a plan, or a lock, which what is seen is held against.
        before: The JSON of an earlier report, which this one is compared with.

    Raises:
        UsageError: That is no Python, no plan or no report, the time limit is not positive, or ``only`` names no check.
        ImpossibleError: The lock has no part for this machine.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.verify.runner import run_checks

    names, context = items(only, str, "only"), _context(plan, before)
    program = program_of(python, "python")
    return context.around(run_checks(program, time_limit=time_limit, only=names, quick=quick, explain=explain))


def verify_compiles(
    python: StrPath,
    gpus: Sequence[str],
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    plan: StrPath | None = None,
    before: StrPath | None = None,
) -> Report:
    """Check, without any GPU, that an environment compiles kernels for cards and carries code for them.

    Args:
        python: The interpreter.
        gpus: Compute capabilities (``9.0``, ``sm_90``) or GPU names.
        time_limit: Seconds for each check.
        only: Names of the checks to run; all where empty.
        plan: As for :func:`verify`.
        before: As for :func:`verify`.

    Raises:
        UsageError: A GPU is not understood, or none is given; else as :func:`verify`.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.gpu_names import find_gpu
    from envsolve.values import ComputeCapability
    from envsolve.verify.static import check_without_gpu

    catalogue = Catalogue()
    names = items(gpus, str, "gpus")
    cards = [ComputeCapability.parse(find_gpu(name, catalogue).compute_capability) for name in names]
    chosen, context = items(only, str, "only"), _context(plan, before)
    program = program_of(python, "python")
    return context.around(check_without_gpu(program, cards, time_limit=time_limit, only=chosen, explain=explain))


def saved_report(report: StrPath, *, before: StrPath | None = None) -> Report:
    """A report that was saved as JSON (``envsolve verify --format json -o FILE``).

    Args:
        report: The file.
        before: The JSON of an earlier one, which this one is compared with.

    Raises:
        UsageError: A file is not there, or is no report.
    """
    from envsolve.verify.report import compared, read_report

    read = read_report(path_of(report, "report"))
    return compared(read, read_report(path_of(before, "before"))) if before is not None else read


def _context(plan: StrPath | None, before: StrPath | None) -> Context:
    from envsolve.verify.context import read_context

    files = [path_of(file, name) if file is not None else None for name, file in (("plan", plan), ("before", before))]
    return read_context(detect(), *files)


def probe(prefix: StrPath, *, time_limit: float = 60.0, environ: Mapping[str, str] = os.environ) -> tuple[Probe, ...]:
    """Try what torch, CUDA and Triton of an environment do on this computer, in child processes of its own interpreter.

    Args:
        prefix: The environment.
        time_limit: Seconds for each step.
        environ: Variables to set for the children, over those already set.

    Raises:
        UsageError: The time limit is not positive.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.verify.quick import probe as try_out

    return try_out(path_of(prefix, "prefix"), environ, time_limit=time_limit)


def diagnose(
    log: str | bytes = "",
    machines: Sequence[Machine] | None = None,
    *,
    installed: str | Mapping[str, str] | None = None,
    prefix: StrPath | None = None,
    probes: Sequence[Probe] = (),
    environ: Mapping[str, str] = os.environ,
) -> Diagnoses:
    """The root causes that an error text, a whole report or an environment tells of, with the least change first.

    Args:
        log: The text, or the bytes of a file that holds it.
        machines: Where it happened; the first is filled in from the text, and the remedies serve all of them. Where
            None, this host if there is a ``prefix``, else what the text tells.
        installed: Version by package, or the text of ``pip freeze``, ``pip list`` or ``conda list``; what ``log`` tells
            where None.
        prefix: An environment on this computer, read without running anything of it; its files win over the texts.
        probes: What :func:`probe` tried in it on this computer.
        environ: Environment variables that decide in an environment beside its files.

    Raises:
        UsageError: ``installed`` holds no package with a version, there is no environment at ``prefix``, or an argument
            is of another type.
    """
    from envsolve.diagnose.environment import answer
    from envsolve.facts.catalogue import Catalogue
    from envsolve.system.files import dump
    from envsolve.verify.report import Probe

    known = machines_given(machines) or ((detect(),) if prefix is not None else ())
    listed = dump(installed) if isinstance(installed, Mapping) else installed
    folder = path_of(prefix, "prefix") if prefix is not None else None
    return answer(log, known, listed, folder, Catalogue(), environ, items(probes, Probe, "probes"))


def envs(
    folders: Sequence[StrPath] = (), machine: Machine | None = None, environ: Mapping[str, str] = os.environ
) -> Survey:
    """The environments of this computer, and whether the torch in each works on a machine; nothing of them is run.

    Args:
        folders: Where to look besides the places of venv, conda, pixi, uv, pipx and poetry.
        machine: What they are judged on; this host where None.
        environ: Environment variables, which say where the tools keep their environments.
    """
    from envsolve.diagnose.survey import survey
    from envsolve.environment.read import find_environments, find_installations
    from envsolve.facts.catalogue import Catalogue

    prefixes = [*find_environments(paths(folders, "folders"), environ), *find_installations(environ)]
    return survey(prefixes, machine or detect(), Catalogue(), environ)

"""Public API on environments: install, verify, try out, list, protect, fix and restore them.

Every function on an environment takes the same ``prefix``, its root directory. Imports are local to the functions, so
that each command loads only what it runs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from envsolve.errors import UsageError
from envsolve.machine.known import detect, machines_given, machines_or_host
from envsolve.planning.request import check_python_text
from envsolve.system.files import StrPath, items, path_of, paths

if TYPE_CHECKING:
    from envsolve.diagnose.environment import Survey
    from envsolve.install.environment import Installed
    from envsolve.install.errors import Progress
    from envsolve.machine.model import Machine
    from envsolve.planning.plan import Plan
    from envsolve.protect.fix import Fix, Fixed
    from envsolve.protect.keep import Preferences
    from envsolve.protect.preview import Preview
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
    hashes: bool = False,
    plan: StrPath | None = None,
    before: StrPath | None = None,
) -> Report:
    """Check an environment on this computer's GPUs.

    Args:
        prefix: The environment, or its interpreter if the root directory does not lead to it.
        time_limit: Seconds for each check.
        only: Names of the checks to run; all if empty.
        quick: Whether to run only the fastest and most useful checks.
        hashes: Whether to hash all installed files, however long it takes; otherwise within 20 s, with ``quick`` none.
        plan: The JSON of a plan, or a lock, to compare the results with.
        before: The JSON of an earlier report to compare this one with.

    Raises:
        UsageError: The environment, plan or report is missing, the time limit is not positive, or ``only`` names an
            unknown check.
        ImpossibleError: The lock has no part for this machine.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.verify.installed import check_here

    python, names, context = _interpreter(prefix), items(only, str, "only"), _context(plan, before)
    found = check_here(python, time_limit=time_limit, only=names, quick=quick, hashes=hashes, explain=explain)
    return context.around(found)


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


def measure_gpus(
    prefix: StrPath,
    kind: Literal["fast-paths", "bench", "soak"] = "fast-paths",
    *,
    minutes: float = 1.0,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    before: StrPath | None = None,
) -> Report:
    """Measure the performance of an environment on this computer's GPUs.

    Args:
        prefix: As for :func:`verify`.
        kind: ``fast-paths`` tries each fast path of the GPU and the stack; a skip is one that is not offered, with the
            reason. ``bench`` compares rates with the documented ones. ``soak`` repeats computations and looks for a
            result that changes.
        minutes: How long ``soak`` runs.
        time_limit: Seconds for each check.
        only: Names of the fast paths to try; all if empty.
        before: The JSON of an earlier report to compare this one with.

    Raises:
        UsageError: As for :func:`verify`, or ``minutes`` is not positive.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.diagnose.signatures import explain
    from envsolve.verify.measure import measure as measure_here

    python, names, context = _interpreter(prefix), items(only, str, "only"), _context(None, before)
    found = measure_here(python, kind, minutes=minutes, time_limit=time_limit, only=names, explain=explain)
    return context.around(found)


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
    from envsolve.environment.layout import find_environments, find_installations
    from envsolve.facts.catalogue import Catalogue

    prefixes = [*find_environments(paths(directories, "directories"), environ), *find_installations(environ)]
    return survey(prefixes, machine or detect(), Catalogue(), environ)


def preview_install(
    command: Sequence[str],
    machines: Sequence[Machine] | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    may_build: bool = True,
    allow_unknown_names: bool = False,
) -> Preview | None:
    """Preview what a command of pip, uv or conda would do to the torch of its environment, by a dry run.

    Args:
        command: Its words, ``["pip", "install", "X"]``.
        machines: The machine to judge the new torch on; this host if None.
        environ: Environment variables of the command.
        may_build: Whether pip or uv may build source archives to learn what they require, which runs their code. It
            is done only if wheels alone do not give the answer, and a warning is logged first.
        allow_unknown_names: Whether to preview names that look like a mistake, such as ``pytorch`` or ``trch``.

    Returns:
        The preview; None if the command does not change an environment.

    Raises:
        UsageError: It is not such a command, it has no dry run, its environment is not found, or a name in it
            looks like a mistake.
        EnvsolveError: The installer itself refuses.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.preview import preview

    words = items(command, str, "command")
    given = machines_given(machines)
    if not words or len(given) > 1:
        raise UsageError(
            "preview_install takes one command and at most one machine",
            hint="preview one command for one machine at a time",
        )
    may = {"may_build": may_build, "allow_unknown_names": allow_unknown_names}
    return preview(words, given[0] if given else detect(), Catalogue(), environ, **may)


def guard(prefix: StrPath, environ: Mapping[str, str] = os.environ) -> Preferences:
    """Write constraints into an environment that make plain pip and conda keep its torch.

    Raises:
        UsageError: ``prefix`` has no torch, or its pip configuration has a constraint of its own.
        EnvsolveError: A file cannot be written.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.keep import write

    return write(path_of(prefix, "prefix"), Catalogue(), environ)


def unguard(prefix: StrPath) -> Preferences:
    """Remove what :func:`guard` wrote, and nothing else.

    Raises:
        UsageError: ``prefix`` is not a directory.
        EnvsolveError: A file cannot be changed.
    """
    from envsolve.protect.keep import remove

    return remove(path_of(prefix, "prefix"))


def find_fix(
    prefix: StrPath, machines: Sequence[Machine] | None = None, environ: Mapping[str, str] = os.environ
) -> Fix | None:
    """Find the smallest fix of an environment; None if nothing is known to be wrong with it.

    Args:
        prefix: The environment.
        machines: The machines that it should work on; this host if None.
        environ: Environment variables that matter besides its files, and those of the installer.

    Raises:
        UsageError: ``prefix`` is not an environment.
        ImpossibleError: pip and uv cannot apply the smallest fix; the hint says what to do.
        EnvsolveError: The installer refuses.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.fix import find_fix

    return find_fix(path_of(prefix, "prefix"), machines_or_host(machines), Catalogue(), environ)


def apply_fix(
    fix: Fix,
    machines: Sequence[Machine] | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> Fixed:
    """Save the state of an environment, apply the fix that :func:`find_fix` found, and diagnose it again.

    Args:
        fix: What to do.
        machines: As for :func:`find_fix`.
        progress: Called with each line that the installer prints.
        environ: Environment variables.

    Raises:
        VerificationError: It did not help; the environment is as before, or the hint says what to run.
        EnvsolveError: The installer failed; otherwise the same.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.fix import apply_fix

    return apply_fix(fix, machines_or_host(machines), Catalogue(), environ, progress)


def restore(
    prefix: StrPath,
    *,
    confirm: Callable[[tuple[str, ...]], object] = bool,
    progress: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[str, ...]:
    """Put back the packages that an environment had before its last fix, and delete the saved state.

    Args:
        prefix: The environment; no other one is changed.
        confirm: Called with the commands before the first one runs; it raises to stop.
        progress: Called with each line that the installer prints.
        environ: Variables of the installer.

    Returns:
        The names of the packages that were put back or removed.

    Raises:
        UsageError: No state is saved.
        VerificationError: It could not be put back; the hint says exactly what to run.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.protect.restore import last, put_back

    place = path_of(prefix, "prefix")
    path, state = last(place)
    names = put_back(place, state, Catalogue(), environ, progress, confirm)
    path.unlink()
    return names

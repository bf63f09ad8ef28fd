"""The stages as functions of plain values: ``detect``, ``plan``, ``builds``, ``install``, ``verify``.

The command line adds nothing to them but parsing and printing. Each imports what it needs when it is called, so that
importing this module costs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envsolve.arguments import StrPath, items, path_of, paths, python_version
from envsolve.errors import UsageError

if TYPE_CHECKING:
    from envsolve.builds import BuildList
    from envsolve.catalogue.check import Checked
    from envsolve.catalogue.facts import Facts
    from envsolve.catalogue.load import Catalogue
    from envsolve.catalogue.measure import Measurement
    from envsolve.catalogue.summary import Summary
    from envsolve.diagnose.environment.survey import Survey
    from envsolve.diagnose.model import Diagnoses
    from envsolve.install.environment import Installed
    from envsolve.install.progress import Progress
    from envsolve.machine.model import Machine
    from envsolve.plan import Plan
    from envsolve.verify.report import Report


def detect() -> Machine:
    """Read this host: driver, GPUs, platform, toolkits, compilers, Pythons, installers.

    No GPU, or no driver, is an ordinary answer.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.catalogue.targets import complete
    from envsolve.machine.detect import detect as read_host

    return complete(read_host(), Catalogue())


def describe_target(target: str, catalogue: Catalogue | None = None) -> Machine:
    """The machine that a target string stands for, ``"RTX 4090, driver 550.54, python 3.12, linux-x86_64"``.

    Raises:
        UsageError: The string, or a GPU name in it, is not understood.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.catalogue.targets import machine_from_target
    from envsolve.machine.target import parse_target

    return machine_from_target(parse_target(target), catalogue or Catalogue())


def load_machines(path: StrPath) -> tuple[Machine, ...]:
    """The machine of a profile file that ``envsolve detect -o FILE`` or another tool wrote, or all those of a folder.

    Raises:
        UsageError: A file is not an ``envsolve.machine/1`` value.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.catalogue.targets import complete
    from envsolve.machine import profile

    catalogue = Catalogue()
    return tuple(complete(machine, catalogue) for machine in profile.load_machines([path_of(path, "path")]))


def plan(
    requirements: Sequence[str],
    machines: Sequence[Machine] | None = None,
    *,
    files: Sequence[StrPath] = (),
    constraints: Sequence[StrPath] = (),
    projects: Sequence[StrPath] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    python: str | None = None,
    cuda: str | None = None,
    exclude_newer: str | None = None,
    prereleases: bool = False,
    index_url: str | None = None,
    extra_index_urls: Sequence[str] = (),
    offline: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """Resolve requirements for machines.

    Args:
        requirements: PEP 508 requirements, projects or addresses.
        machines: One plan that is good on all of them; this host where None.
        files: Requirement files (``-r``).
        constraints: Constraint files (``-c``).
        projects: Projects with a ``pyproject.toml``, with the ``extras`` and dependency ``groups`` wanted of them.
        python: ``3.12``; the machine's own where None.
        cuda: A flavour (``cu126``, ``cpu``); the best where None.
        exclude_newer: ISO 8601 date or time; nothing published later is considered.
        prereleases: Consider pre-releases where no specifier names one.
        index_url: Default package index; the pip or uv configuration decides where None.
        extra_index_urls: Further indexes, asked only for names that the default one lacks.
        offline: Answer from the cache and the catalogue alone.

    Returns:
        A plan; its ``status`` says whether there is an answer.

    Raises:
        UsageError: A requirement or a file cannot be read, an argument is of another type, or nothing is asked for.
        IndexUnavailableError: An index that only it can answer for failed.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.index.client import IndexClient
    from envsolve.index.settings import read_settings
    from envsolve.planner.make import Choices, make_plan
    from envsolve.resolve.requirements import read_requirements

    asked = read_requirements(
        items(requirements, str, "requirements"),
        paths(files, "files"),
        paths(constraints, "constraints"),
        projects=paths(projects, "projects"),
        extras=items(extras, str, "extras"),
        groups=items(groups, str, "groups"),
    )
    if not (requirements or files or projects):
        raise UsageError("nothing to plan", hint="name packages, requirement files or projects")
    python = python_version(python)
    chosen = _machines(machines)
    settings = read_settings(
        environ,
        index_url=index_url or next(iter(asked.index_urls), None),
        extra_index_urls=(*items(extra_index_urls, str, "extra_index_urls"), *asked.extra_index_urls),
    )
    choices = Choices(python, cuda, exclude_newer, prereleases or asked.prereleases)
    with IndexClient(settings, offline=offline) as client:
        return make_plan(asked, chosen or (detect(),), choices, Catalogue(), client)


def builds(package: str, machines: Sequence[Machine] | None = None, *, python: str | None = None) -> BuildList:
    """Every published build of a torch-family package, with its verdict on each of the machines' GPUs."""
    from envsolve.builds import list_builds
    from envsolve.catalogue.load import Catalogue

    return list_builds(package, _machines(machines) or (detect(),), python_version(python), Catalogue())


def _machines(machines: Sequence[Machine] | None) -> tuple[Machine, ...]:
    from envsolve.machine.model import Machine

    return items(machines, Machine, "machines")


def install(
    source: Plan | StrPath,
    prefix: StrPath,
    *,
    manager: str | None = None,
    python: str | None = None,
    machine: Machine | None = None,
    check: bool = True,
    progress: Progress | None = None,
) -> Installed:
    """Make the environment of a plan, or of a ``pylock.toml``, at ``prefix``, and prove it before it is put in place.

    Args:
        source: A plan, or the path of a lock file.
        prefix: Where the environment is to stand: nothing yet, or an older environment to replace.
        manager: ``uv`` or ``pip``; uv where it is present, else pip, where None.
        python: ``3.12``, for a lock that serves several Pythons; the one that it was made for where None.
        machine: What a lock's assumptions are held against; this host where None.
        check: Whether to verify the environment on the GPUs at hand before it replaces what stands at ``prefix``.
        progress: Told of every step.

    Raises:
        ImpossibleError: The plan is impossible, or the lock does not fit the machine.
        VerificationError: A check failed; what stood at ``prefix`` still stands.
        EnvsolveError: Others, see :func:`envsolve.install.environment.install`.
    """
    from envsolve.install.environment import install as make_environment
    from envsolve.install.progress import silent
    from envsolve.verify.proof import prove

    return make_environment(
        Path(source) if isinstance(source, (str, os.PathLike)) else source,
        path_of(prefix, "prefix"),
        manager=manager,
        python=python_version(python),
        machine=machine or detect(),
        verify=prove if check else None,
        progress=progress or silent,
    )


def verify(python: StrPath, *, time_limit: float = 120.0) -> Report:
    """Check the environment of an interpreter on the GPUs at hand.

    Args:
        python: The interpreter; :func:`envsolve.verify.interpreter.interpreter_of` finds that of a prefix.
        time_limit: Seconds for each check.

    Raises:
        UsageError: That is no Python, or the time limit is not positive.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    from envsolve.verify.runner import run_checks

    return run_checks(path_of(python, "python"), time_limit=time_limit)


def verify_compiles(python: StrPath, gpus: Sequence[str], *, time_limit: float = 120.0) -> Report:
    """Check, without any GPU, that an environment compiles kernels for cards.

    Args:
        python: The interpreter.
        gpus: Compute capabilities (``9.0``, ``sm_90``) or GPU names.
        time_limit: Seconds for each check.

    Raises:
        UsageError: A GPU is not understood, or none is given; else as :func:`verify`.
    """
    from envsolve.catalogue.gpu_names import find_gpu
    from envsolve.catalogue.load import Catalogue
    from envsolve.machine.cc import ComputeCapability
    from envsolve.verify.runner import run_compile_checks

    catalogue = Catalogue()
    names = items(gpus, str, "gpus")
    cards = [ComputeCapability.parse(find_gpu(name, catalogue).compute_capability) for name in names]
    return run_compile_checks(path_of(python, "python"), cards, time_limit=time_limit)


def diagnose(
    log: str | bytes = "",
    machines: Sequence[Machine] | None = None,
    *,
    installed: str | Mapping[str, str] | None = None,
    prefix: StrPath | None = None,
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
        environ: Environment variables that decide in an environment beside its files.

    Raises:
        UsageError: ``installed`` holds no package with a version, there is no environment at ``prefix``, or an argument
            is of another type.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.diagnose.answer import answer
    from envsolve.jsontext import dump

    known = _machines(machines) or ((detect(),) if prefix is not None else ())
    listed = dump(installed) if isinstance(installed, Mapping) else installed
    folder = path_of(prefix, "prefix") if prefix is not None else None
    return answer(log, known, listed, folder, Catalogue(), environ)


def measure(what: StrPath, *, every: bool = False, environ: Mapping[str, str] = os.environ) -> Measurement:
    """Read what a wheel, library, ``ptxas`` or environment really carries; a file on a server is read in ranges.

    Args:
        what: A path, or an http(s) address.
        every: Read the libraries of packages that tell without (torch, triton), too: most of the file.
        environ: Environment variables, for credentials, proxies and certificates.

    Raises:
        UsageError: There is nothing there that can be measured, or nothing that has to do with CUDA.
        IndexUnavailableError: The server cannot be reached, or has no such file.
    """
    from envsolve.catalogue.measure import measure_path

    if isinstance(what, str) and what.startswith(("http://", "https://")):
        from envsolve.index.served import measure_served

        found = measure_served(what, every, environ)
    else:
        found = measure_path(path_of(what, "what"), every=every)
    if not found.carries_cuda:
        raise UsageError(f"{found.name} carries no CUDA code, and needs no library of NVIDIA's")
    return found


def facts(what: str, *which: str) -> Facts:
    """What the catalogue knows of a package's builds, or of anything else that it describes, with the sources.

    Args:
        what: A package (``torch``), or a kind of fact (``driver``, ``gpu``, ``toolkit``).
        which: What narrows it: ``2.9.1``, ``cu128``; ``580``; ``RTX 4090``.

    Raises:
        UsageError: It knows nothing that matches.
    """
    from envsolve.catalogue.facts import find_facts
    from envsolve.catalogue.load import Catalogue

    return find_facts(Catalogue(), what, items(which, str, "which"))


def facts_summary() -> Summary:
    """How much the catalogue knows of what, how it is known, and how old it is."""
    from envsolve.catalogue.load import Catalogue
    from envsolve.catalogue.summary import summarize

    return summarize(Catalogue())


def check_facts(
    packages: Sequence[str] = (),
    *,
    sample: int = 20,
    seed: int | None = None,
    folder: StrPath | None = None,
    progress: Callable[[str], None] = lambda _: None,
    environ: Mapping[str, str] = os.environ,
) -> Checked:
    """Measure a sample of the catalogue's facts again, and compare them with the catalogue field by field.

    Args:
        packages: Names of packages, and ``toolkit``; any where empty.
        sample: Releases to measure.
        seed: Of the draw; a new one where None.
        folder: A catalogue in place of the one in use.
        progress: Told which file is looked at.
        environ: Environment variables, for the index configuration.

    Raises:
        UsageError: Nothing of a package can be measured, or a wheel cannot be read.
        IndexUnavailableError: The index fails.
    """
    import random

    from envsolve.catalogue.check import check
    from envsolve.catalogue.load import Catalogue
    from envsolve.index.client import IndexClient
    from envsolve.index.settings import read_settings

    if sample < 1:
        raise UsageError(f"a sample of {sample}: there is nothing to check", hint="give a number from 1 on")
    catalogue = Catalogue(None if folder is None else path_of(folder, "folder"))
    drawn = random.randrange(10**6) if seed is None else seed
    with IndexClient(read_settings(environ)) as client:
        return check(client, catalogue, items(packages, str, "packages"), sample, drawn, progress)


def update_facts(folder: StrPath | None = None, environ: Mapping[str, str] = os.environ) -> dict[Path, tuple[str, ...]]:
    """Measure the torch, triton and CUDA toolkit releases that the catalogue lacks, and write them into a folder.

    Args:
        folder: ``index_data/`` of a checkout, which is then the catalogue; the user's own folder, which is laid over
            the bundled one, where None.
        environ: Environment variables, for the index configuration and the place of the user's own folder.

    Returns:
        The files written, with what was added to each.

    Raises:
        UsageError: A wheel cannot be read, or the folder is no catalogue.
        IndexUnavailableError: The index fails.
        EnvsolveError: A file cannot be written; every file is whole, the old one or the new one.
    """
    import datetime

    from envsolve.catalogue.file import data_folder
    from envsolve.catalogue.overlay import overlay_folder
    from envsolve.catalogue.update import update, update_overlay
    from envsolve.index.client import IndexClient
    from envsolve.index.settings import read_settings

    today = datetime.date.today().isoformat()
    with IndexClient(read_settings(environ)) as client:
        if folder is None:
            return update_overlay(client, overlay_folder(environ), data_folder(), today)
        return update(client, path_of(folder, "folder"), today)


def envs(
    folders: Sequence[StrPath] = (), machine: Machine | None = None, environ: Mapping[str, str] = os.environ
) -> Survey:
    """The environments of this computer, and whether the torch in each works on a machine; nothing of them is run.

    Args:
        folders: Where to look besides the places of venv, conda, pixi, uv, pipx and poetry.
        machine: What they are judged on; this host where None.
        environ: Environment variables, which say where the tools keep their environments.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.diagnose.environment.discover import find_environments, find_installations
    from envsolve.diagnose.environment.survey import survey

    prefixes = [*find_environments(paths(folders, "folders"), environ), *find_installations(environ)]
    return survey(prefixes, machine or detect(), Catalogue(), environ)

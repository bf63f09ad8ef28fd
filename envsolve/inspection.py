"""Public API: the catalogue, binaries, errors, Dockerfiles, locks and bundles; and any result as text or JSON.

Imports are local to the functions, so that each command loads only what it runs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envsolve.errors import UsageError
from envsolve.system.files import StrPath, items, path_of, paths

if TYPE_CHECKING:
    from envsolve.binaries.model import Measurement
    from envsolve.diagnose.model import Diagnoses
    from envsolve.dockerfile.model import Report as DockerfileReport
    from envsolve.facts.maintain.check import Checked
    from envsolve.facts.maintain.lookup import Facts
    from envsolve.facts.maintain.summary import Summary
    from envsolve.install.bundle import Bundle
    from envsolve.locks.model import LockReport
    from envsolve.machine.model import Machine
    from envsolve.planning.plan import Plan
    from envsolve.verify.report import Probe


def facts(what: str, *which: str) -> Facts:
    """Print the catalogue's records of a package's builds, or of anything else that it describes, with the sources.

    Args:
        what: A package (``torch``), or a kind of fact (``driver``, ``gpu``, ``toolkit``).
        which: What narrows it: ``2.9.1``, ``cu128``; ``580``; ``RTX 4090``.

    Raises:
        UsageError: It knows nothing that matches.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.files import Kind
    from envsolve.facts.maintain.lookup import find_facts, find_records

    narrowed = items(which, str, "which")
    if what.casefold() in ("signature", "signatures"):
        from envsolve.diagnose.cause_files import Signature, causes

        found = causes()
        return find_records(Kind("signatures", Signature, ("id",)), found.signatures, found.sources, narrowed)
    return find_facts(Catalogue(), what, narrowed)


def facts_summary() -> Summary:
    """Return statistics of the catalogue: the number of facts of each kind, their evidence and their age."""
    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.maintain.summary import summarize

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
        directory: A catalogue in place of the one in use.
        progress: Called with the name of the file that is checked.
        environ: Environment variables, for the index configuration.

    Raises:
        UsageError: Nothing of a package can be measured, a wheel cannot be read, or the directory is not a catalogue.
        IndexUnavailableError: The index fails.
    """
    import random

    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.files import named_folder
    from envsolve.facts.maintain.check import check
    from envsolve.packages.client import IndexClient
    from envsolve.packages.settings import read_settings

    if sample < 1:
        raise UsageError(f"a sample of {sample} checks nothing", hint="give a number of 1 or more")
    catalogue = Catalogue() if folder is None else Catalogue(named_folder(path_of(folder, "folder")))
    drawn = random.randrange(10**6) if seed is None else seed
    with IndexClient(read_settings(environ)) as client:
        return check(client, catalogue, items(packages, str, "packages"), sample, drawn, progress)


def update_facts(folder: StrPath | None = None, environ: Mapping[str, str] = os.environ) -> dict[Path, tuple[str, ...]]:
    """Measure the torch, triton and CUDA toolkit releases that the catalogue lacks, and write them into a directory.

    Args:
        directory: ``index_data/`` of a checkout, which is then the catalogue; None for the user's own directory on top
            of the bundled one.
        environ: Environment variables, for the index configuration and the place of the user's own directory.

    Returns:
        The files written, with what was added to each.

    Raises:
        UsageError: A wheel cannot be read, or the directory is not a catalogue.
        IndexUnavailableError: The index fails.
        EnvsolveError: A file cannot be written; every file is whole, the old one or the new one.
    """
    import datetime

    from envsolve.facts.catalogue import overlay_folder
    from envsolve.facts.files import data_folder
    from envsolve.facts.maintain.update import update, update_overlay
    from envsolve.packages.client import IndexClient
    from envsolve.packages.settings import read_settings

    today = datetime.date.today().isoformat()
    with IndexClient(read_settings(environ)) as client:
        if folder is None:
            return update_overlay(client, overlay_folder(environ), data_folder(), today)
        return update(client, path_of(folder, "folder"), today)


def measure(what: StrPath, *, every: bool = False, environ: Mapping[str, str] = os.environ) -> Measurement:
    """Read the GPU code in a wheel, library, ``ptxas`` or environment; a file on a server is read in ranges.

    Args:
        what: A path, or an http(s) URL.
        every: Also read the libraries of packages that do not need it (torch, triton): most of the file.
        environ: Environment variables, for credentials, proxies and certificates.

    Raises:
        UsageError: There is nothing there that can be measured, or nothing that has to do with CUDA.
        IndexUnavailableError: The server cannot be reached, or has no such file.
    """
    from envsolve.binaries.measure import measure_path

    if isinstance(what, str) and what.startswith(("http://", "https://")):
        found = _measure_url(what, every, environ)
    elif isinstance(what, str) and "://" in what:
        raise UsageError(f"{what} is not an http or https URL", hint="download it, and name the file")
    else:
        found = measure_path(path_of(what, "what"), every=every)
    if not found.carries_cuda:
        raise UsageError(f"{found.name} contains no CUDA code and requires no NVIDIA library")
    return found


def _measure_url(url: str, every: bool, environ: Mapping[str, str]) -> Measurement:
    """Measure a file on a server, of which only the parts that hold the answer are fetched."""
    from urllib.parse import unquote, urldefrag, urlsplit

    from envsolve.binaries.measure import measure as measure_file
    from envsolve.packages.client import IndexClient
    from envsolve.packages.model import IndexFile, MissingFileError
    from envsolve.packages.settings import read_settings
    from envsolve.packages.urls import redact, split_login

    form = "write it as https://host/path/file.whl"
    try:
        split_login(url)
    except UsageError:
        raise UsageError("the URL to measure cannot be read", hint=form) from None
    url = urldefrag(url).url
    name = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    if not name:
        raise UsageError(f"{redact(url)} names no file", hint=form)
    try:
        with IndexClient(read_settings(environ)) as client, client.open(IndexFile(name, url, "")) as file:
            return measure_file(file, name, every=every)
    except MissingFileError:
        raise MissingFileError(f"there is no {redact(url)}") from None


def diagnose(
    log: str | bytes = "",
    machines: Sequence[Machine] | None = None,
    *,
    installed: str | Mapping[str, str] | None = None,
    prefix: StrPath | None = None,
    probes: Sequence[Probe] = (),
    environ: Mapping[str, str] = os.environ,
) -> Diagnoses:
    """Find the root causes behind an error text, a report or an environment, with the smallest fix first.

    Args:
        log: The text, or the bytes of a file that holds it.
        machines: Where it happened: the first is completed from the text, and the fixes work on all of them. If None,
            this host if there is a ``prefix``, otherwise what the text says.
        installed: Version by package, or the text of ``pip freeze``, ``pip list`` or ``conda list``; what ``log`` says
            if None.
        prefix: An environment on this computer, read without running any of it. Its files override the texts.
        probes: The result of :func:`probe` for it.
        environ: Environment variables that matter in an environment besides its files.

    Raises:
        UsageError: ``installed`` holds no package with a version, ``prefix`` is not an environment, or an argument
            has the wrong type.
    """
    from envsolve.diagnose.environment import answer
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.known import detect, machines_given
    from envsolve.system.files import dump
    from envsolve.verify.report import Probe

    known = machines_given(machines) or ((detect(),) if prefix is not None else ())
    listed = dump(installed) if isinstance(installed, Mapping) else installed
    root = path_of(prefix, "prefix") if prefix is not None else None
    return answer(log, known, listed, root, Catalogue(), environ, items(probes, Probe, "probes"))


def check_dockerfile(
    path: StrPath, machines: Sequence[Machine] | None = None, context: StrPath | None = None
) -> DockerfileReport:
    """Check a Dockerfile for machines: what does not work, and what to write instead.

    Args:
        path: The Dockerfile.
        machines: The machines that its image is for; this host if None.
        context: The directory that it is built from, whose requirement files are read; that of the file if None.

    Raises:
        UsageError: The file cannot be read, or is not a Dockerfile.
    """
    from envsolve import dockerfile
    from envsolve.dockerfile.read import read_file
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.known import machines_or_host
    from envsolve.system.files import is_folder

    file = path_of(path, "path")
    directory = file.parent if context is None else path_of(context, "context")
    if not is_folder(directory):
        raise UsageError(
            f"{directory} is not a directory",
            hint="give the directory that the image is built from (the build context)",
        )
    return dockerfile.check_dockerfile(read_file(file), machines_or_host(machines), Catalogue(), directory)


def bundle(source: Plan | StrPath, place: StrPath, *, offline: bool = False) -> Bundle:
    """Download every file of a plan, with an installer that needs no network.

    Args:
        source: A plan, or the path of its JSON or of a ``pylock.toml``.
        place: A directory, or an archive, ``NAME.tar``. An interrupted bundle goes on where it ended.
        offline: Whether only files of this machine may be used.

    Raises:
        ImpossibleError: The plan is impossible.
        IndexUnavailableError: A file cannot be downloaded, or has another hash than the plan says.
        UsageError: The source is no plan, or something in it has no file with a hash.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.install.bundle import make_bundle, read_plan
    from envsolve.packages.settings import read_settings

    plan = read_plan(Path(source)) if isinstance(source, (str, os.PathLike)) else source
    return make_bundle(plan, path_of(place, "place"), Catalogue(), read_settings(), offline=offline)


def check_lock(
    locks: Sequence[StrPath],
    machines: Sequence[Machine] | None = None,
    *,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    environments: Sequence[str] = (),
    python: str | None = None,
) -> LockReport:
    """Check what lock files do on machines: whether they run, do not run, or lack something.

    Args:
        locks: The files: ``uv.lock``, ``poetry.lock``, ``pdm.lock``, ``pixi.lock``, ``conda-lock.yml``,
            ``pylock.toml``, requirements with hashes.
        machines: The machines that they are for; this host if None.
        extras: Extras that are installed.
        groups: Groups that are installed.
        environments: Environments of a ``pixi.lock``, categories of a ``conda-lock.yml``.
        python: The Python, ``3.12``; that of each machine if None.

    Raises:
        UsageError: A lock cannot be read, or has no such extra, group or environment.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.locks.judge import check_locks
    from envsolve.machine.known import machines_or_host

    files = paths(locks, "locks")
    named = (("extra", extras), ("group", groups), ("environment", environments))
    chosen = [f"--{kind} {name}" for kind, names in named for name in items(names, str, f"{kind}s")]
    return check_locks(files, machines_or_host(machines), Catalogue(), chosen, python)


def describe(value: object) -> str:
    """Describe a machine, a plan or the result of any other stage as text for a person.

    Raises:
        UsageError: The value is something else.
    """
    # Each value has its text beside it, except a machine and a plan.
    home = type(value).__module__
    module = {"envsolve.machine.model": "envsolve.machine.model", "envsolve.planning.plan": "envsolve.formats.summary"}
    found = importlib.import_module(module.get(home, home)) if home.startswith("envsolve.") else None
    text = getattr(found, "describe", None) or getattr(found, "render", None)
    if text is None:
        raise UsageError(
            f"describe() does not support a {type(value).__name__}",
            hint="pass a result of plan(), builds(), diagnose() or another function of envsolve",
        )
    return str(text(value))


def to_json(value: object) -> str:
    """Write a machine, a plan or the result of any other stage as the JSON that its command prints."""
    from envsolve.planning.plan import Plan
    from envsolve.system.files import dump

    return value.to_json() if isinstance(value, Plan) else dump(value)

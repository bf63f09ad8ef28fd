"""The catalogue: ``facts``, ``facts_summary``, ``check_facts``, ``update_facts``, ``measure``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from envsolve.errors import UsageError
from envsolve.system.files import StrPath, items, path_of

if TYPE_CHECKING:
    from envsolve.binaries.model import Measurement
    from envsolve.facts.maintain.check import Checked
    from envsolve.facts.maintain.lookup import Facts
    from envsolve.facts.maintain.summary import Summary


def facts(what: str, *which: str) -> Facts:
    """What the catalogue knows of a package's builds, or of anything else that it describes, with the sources.

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
    """How much the catalogue knows of what, how it is known, and how old it is."""
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
        folder: A catalogue in place of the one in use.
        progress: Told which file is looked at.
        environ: Environment variables, for the index configuration.

    Raises:
        UsageError: Nothing of a package can be measured, a wheel cannot be read, or the folder is no catalogue.
        IndexUnavailableError: The index fails.
    """
    import random

    from envsolve.facts.catalogue import Catalogue
    from envsolve.facts.files import named_folder
    from envsolve.facts.maintain.check import check
    from envsolve.packages.client import IndexClient
    from envsolve.packages.settings import read_settings

    if sample < 1:
        raise UsageError(f"a sample of {sample}: there is nothing to check", hint="give a number from 1 on")
    catalogue = Catalogue() if folder is None else Catalogue(named_folder(path_of(folder, "folder")))
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
    """Read what a wheel, library, ``ptxas`` or environment really carries; a file on a server is read in ranges.

    Args:
        what: A path, or an http(s) URL.
        every: Read the libraries of packages that tell without (torch, triton), too: most of the file.
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
        raise UsageError(f"{found.name} carries no CUDA code, and needs no library of NVIDIA's")
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

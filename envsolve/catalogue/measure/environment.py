"""Measuring what is installed: the distributions of a ``site-packages`` folder, without importing any."""

from __future__ import annotations

import csv
from pathlib import Path

from envsolve.catalogue.measure.artefact import FolderFiles
from envsolve.catalogue.measure.model import Measurement
from envsolve.catalogue.measure.package import measure_package
from envsolve.errors import UsageError
from envsolve.files import real_path

_SITE_PACKAGES = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "Lib/site-packages")


def measure_environment(folder: Path, *, every: bool = False) -> Measurement:
    """Every installed distribution that carries CUDA code, needs NVIDIA libraries, or is torch itself.

    Args:
        folder: A ``site-packages`` folder, or the prefix (environment) that holds one.
        every: As for :func:`package.measure_package`.

    Raises:
        UsageError: No distribution is installed there.
    """
    sites = [folder, *(path for pattern in _SITE_PACKAGES for path in sorted(folder.glob(pattern)))]
    infos = {real_path(path): path.parent for site in sites for path in sorted(site.glob("*.dist-info/METADATA"))}
    if not infos:
        raise UsageError(
            f"nothing is installed in {folder}", hint="name a site-packages folder, or an environment that has one"
        )
    parts = (_distribution(info, every) for info in infos.values())
    carrying = tuple(part for part in parts if part.carries_cuda)
    return Measurement(kind="environment", name=folder.name, parts=carrying)


def _distribution(info: Path, every: bool) -> Measurement:
    site = info.parent
    try:
        rows = list(csv.reader((info / "RECORD").read_text("utf-8").splitlines()))
        paths = [row[0] for row in rows if row]
    except (OSError, ValueError, csv.Error):
        paths = [path.relative_to(site).as_posix() for path in info.iterdir()]
    return measure_package(FolderFiles(site, info.name.removesuffix(".dist-info"), paths), "distribution", every=every)

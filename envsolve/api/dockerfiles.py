"""A given Dockerfile, held against the machines that its image is meant for: ``check_dockerfile``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envsolve.api.machines import detect, machines_given
from envsolve.arguments import StrPath, path_of

if TYPE_CHECKING:
    from envsolve.dockerfiles.model import Report
    from envsolve.machine.model import Machine


def check_dockerfile(path: StrPath, machines: Sequence[Machine] | None = None) -> Report:
    """Say what in a Dockerfile will not work on machines, and what to write in its place.

    Args:
        path: The Dockerfile.
        machines: That its image is meant for; this host where None.

    Raises:
        UsageError: The file cannot be read, or is no Dockerfile.
    """
    from envsolve.catalogue.load import Catalogue
    from envsolve.dockerfiles import check
    from envsolve.dockerfiles.read import read_file

    text = read_file(path_of(path, "path"))
    return check.check_dockerfile(text, machines_given(machines) or (detect(),), Catalogue())

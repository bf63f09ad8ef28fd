"""A given Dockerfile, held against the machines that its image is meant for: ``check_dockerfile``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from envsolve.api.machines import detect, machines_given
from envsolve.planning.request import StrPath, path_of

if TYPE_CHECKING:
    from envsolve.dockerfile.model import Report
    from envsolve.machine.model import Machine


def check_dockerfile(
    path: StrPath, machines: Sequence[Machine] | None = None, context: StrPath | None = None
) -> Report:
    """Say what in a Dockerfile will not work on machines, and what to write in its place.

    Args:
        path: The Dockerfile.
        machines: That its image is meant for; this host where None.
        context: The folder that it is built from, whose requirement files are read; that of the file where None.

    Raises:
        UsageError: The file cannot be read, or is no Dockerfile.
    """
    from envsolve.dockerfile import check
    from envsolve.dockerfile.read import read_file
    from envsolve.errors import UsageError
    from envsolve.facts.catalogue import Catalogue
    from envsolve.system.files import is_folder

    file = path_of(path, "path")
    folder = file.parent if context is None else path_of(context, "context")
    if not is_folder(folder):
        raise UsageError(f"{folder} is no folder", hint="name the folder that the image is built from")
    return check.check_dockerfile(read_file(file), machines_given(machines) or (detect(),), Catalogue(), folder)

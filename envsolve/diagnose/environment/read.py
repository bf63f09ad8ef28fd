"""Reading an environment: every source of it joined into one value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from envsolve.diagnose.environment.binaries import read_extensions, read_libraries, read_torch
from envsolve.diagnose.environment.distributions import leftovers, read_conda, read_distributions
from envsolve.diagnose.environment.layout import read_layout
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.environment.outside import read_loader, read_tools


def read_environment(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Read an environment, the code of its extensions included, which may be gigabytes.

    Nothing of the environment is imported or run, and damage in it is part of the answer.

    Args:
        prefix: Its root folder.
        environ: What decides beside its files: PYTHONPATH, LD_LIBRARY_PATH, CUDA_HOME, PATH, HOME.
        root: Folder that stands for ``/`` where the loader's configuration is read.

    Raises:
        UsageError: There is no environment at ``prefix``.
    """
    outline = read_outline(prefix, environ, root=root)
    return replace(outline, extensions=tuple(read_extensions(outline.distributions, outline.libraries)))


def read_outline(prefix: Path, environ: Mapping[str, str] = os.environ, *, root: Path = Path("/")) -> Environment:
    """Likewise, without the code of extensions: what metadata, headers and torch's own files tell.

    Raises:
        UsageError: There is no environment at ``prefix``.
    """
    layout = read_layout(prefix, environ)
    folders = [Path(site.path) for site in layout.sites]
    distributions = tuple(found for folder in folders for found in read_distributions(folder))
    conda, unreadable = read_conda(layout.prefix)
    torches = (read_torch(folder, layout.prefix) for folder in folders)
    return Environment(
        prefix=str(layout.prefix),
        kind=layout.kind,
        program=layout.program,
        python=layout.python,
        arch=layout.arch,
        base=str(layout.base),
        sites=layout.sites,
        distributions=distributions,
        conda=conda,
        torches=tuple(torch for torch in torches if torch),
        libraries=tuple(read_libraries(distributions, layout.prefix)),
        loader=tuple(read_loader(environ, root)),
        tools=read_tools(layout.prefix, layout.base, layout.python, environ),
        unreadable=(*unreadable, *(text for folder in folders for text in leftovers(folder))),
    )

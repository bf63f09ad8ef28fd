"""A plan or a lock made into an environment on disk.

:func:`install` is the whole of it; :func:`shown_on` shows its progress.
"""

from __future__ import annotations

from envsolve.install.environment import Installed, install
from envsolve.install.errors import InstallError, Progress, Step, shown_on

__all__ = ["InstallError", "Installed", "Progress", "Step", "install", "shown_on"]

"""A plan or a lock made into an environment on disk.

:func:`install` does all of it and reports each :class:`Step`.
"""

from __future__ import annotations

from envsolve.install.environment import Installed, install
from envsolve.install.errors import InstallError, Progress, Step

__all__ = ["InstallError", "Installed", "Progress", "Step", "install"]

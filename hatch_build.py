"""Build hook: copies the default package index address from pypi-simple's public constant.

The address is read at build time so that neither the sources name a registry host nor does start-up pay for an import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from pypi_simple import PYPI_SIMPLE_ENDPOINT


class DefaultIndexHook(BuildHookInterface[Any]):
    """Writes ``envsolve/_default_index.py`` before the wheel or the editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the generated module; hatchling calls this once per target."""
        target = Path(self.root, "envsolve", "_default_index.py")
        target.write_text(
            '"""Generated at build time from pypi_simple.PYPI_SIMPLE_ENDPOINT; not kept in the repository."""\n\n'
            f"DEFAULT_INDEX = {PYPI_SIMPLE_ENDPOINT!r}\n"
        )

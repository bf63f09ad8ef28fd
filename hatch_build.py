"""Build hook: generates what would cost start-up time if it were read or imported at run time."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from pypi_simple import PYPI_SIMPLE_ENDPOINT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class GeneratedFilesHook(BuildHookInterface[Any]):
    """Writes two files into the package before the wheel or the editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write them; hatchling calls this once per target."""
        self._write_default_index()
        self._write_causes()

    def _write_default_index(self) -> None:
        """Copy the default package index from pypi-simple's public constant: the sources name no registry host."""
        target = Path(self.root, "envsolve", "_default_index.py")
        target.write_text(
            '"""Generated at build time from pypi_simple.PYPI_SIMPLE_ENDPOINT; not kept in the repository."""\n\n'
            f"DEFAULT_INDEX = {PYPI_SIMPLE_ENDPOINT!r}\n"
        )

    def _write_causes(self) -> None:
        """Write all cause.toml as one JSON file: parsing them takes 50 to 100 ms, decoding it takes 2."""
        directory = Path(self.root, "envsolve", "diagnose", "causes")
        other = directory / "other_errors.toml"
        texts = {path: path.read_bytes() for path in (*sorted(directory.glob("*/cause.toml")), other)}
        parsed = {path: tomllib.loads(text.decode("utf-8")) for path, text in texts.items()}
        compiled = {
            "digest": hashlib.sha256(b"".join(texts.values())).hexdigest(),
            "other": parsed.pop(other),
            "causes": {path.parent.name: data for path, data in parsed.items()},
        }
        (directory / "_compiled.json").write_text(json.dumps(compiled), encoding="utf-8")

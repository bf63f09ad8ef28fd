"""What the documentation holds of the catalogue, generated from it: ``python -m envsolve.facts.maintain.pages docs``.

That is the tables of ``catalogue.md``, and ``catalogue.schema.json``, the JSON Schema of every file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import KINDS, CatalogueFile, data_folder
from envsolve.facts.maintain.lookup import markdown, summarize

BEGIN, END = "<!-- begin: make catalogue-docs -->", "<!-- end -->"
PAGE, SCHEMA = "catalogue.md", "catalogue.schema.json"


def with_tables(page: str) -> str:
    """The page with today's tables between its markers.

    Raises:
        ValueError: It has no markers.
    """
    before, rest = page.split(BEGIN)
    _, after = rest.split(END, 1)
    lines = markdown(summarize(Catalogue(data_folder())))
    return "\n".join([before + BEGIN, "", *lines, "", END]) + after


def schema_text() -> str:
    """A JSON Schema with a definition for each kind of file, under the file's name: ``#/$defs/gpus``.

    Made from the types that the files are decoded into; what they do not name is not allowed.
    """
    files = {name: CatalogueFile[kind.record] for name, kind in KINDS.items()}  # type: ignore[name-defined]
    references, components = msgspec.json.schema_components(files.values())
    definitions = dict(zip(files, references, strict=True))
    definitions |= {name: _closed(component) for name, component in components.items()}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": definitions}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _closed(component: dict[str, Any]) -> dict[str, Any]:
    shut = {**component, "description": component.get("description", "").partition("\n")[0]}
    return {**shut, "additionalProperties": False} if "properties" in component else shut


def main(folder: Path) -> None:
    """Write both into the documentation's folder."""
    page = folder / PAGE
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
    (folder / SCHEMA).write_text(schema_text(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The tables in ``docs/catalogue.md``, from the bundled catalogue: ``python -m envsolve.catalogue.table PAGE``."""

from __future__ import annotations

import sys
from pathlib import Path

from envsolve.catalogue.load import Catalogue, data_folder
from envsolve.catalogue.summary import markdown, summarize

BEGIN, END = "<!-- begin: make catalogue-table -->", "<!-- end -->"


def with_tables(page: str) -> str:
    """The page with today's tables between its markers.

    Raises:
        ValueError: It has no markers.
    """
    before, rest = page.split(BEGIN)
    after = rest.split(END, 1)[1]
    lines = markdown(summarize(Catalogue(data_folder())))
    return "\n".join([before + BEGIN, "", *lines, "", END]) + after


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_tables(path.read_text("utf-8")), "utf-8")

"""Reading the catalogue: each file once in the life of a process, and anew if it changes."""

from __future__ import annotations

import shutil
from pathlib import Path

from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import data_folder


def test_a_file_is_decoded_once_until_it_is_written_anew(tmp_path: Path) -> None:
    folder = tmp_path / "index_data"
    (folder / "builds").mkdir(parents=True)
    path = folder / "toolkits.json"
    shutil.copy(data_folder() / path.name, path)
    first = Catalogue(folder)
    second = Catalogue(folder)
    assert second.toolkits is first.toolkits
    source = second.toolkits[0].source
    assert second.source(source) == first.source(source) is not None
    path.write_text(path.read_text().replace('"version": "', '"version": "9', 1))
    assert Catalogue(folder).toolkits != first.toolkits

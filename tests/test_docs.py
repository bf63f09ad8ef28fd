"""The documentation: its examples run, its commands parse, its links lead to files, its generated pages are current."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envsolve.cli import main

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md", "SECURITY.md", "index_data/README.md")),
        *ROOT.glob("docs/**/*.md"),
    ]
)
# Only lines of code blocks that are commands: no synopses such as `envsolve plan REQ... [-r FILE]`.
COMMAND = re.compile(r"^(?: {4}|\t)\s*(?:\$ )?(?:[^#\n|]*\| )?(envsolve (?!\d)[^\n]*)$", re.MULTILINE)
SYNOPSIS = re.compile(r"[\[\]]|\.\.\.|\bREQ\b|\bPACKAGE\b|\bDIR\b|\bFILE\b| NAME\b|COMMAND")


@pytest.mark.parametrize("name", ["rules.md"])
def test_the_examples_of_a_page_run(name: str) -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs" / name), module_relative=False)
    assert tried > 0
    assert failed == 0


@pytest.mark.network
def test_the_examples_of_the_api_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "index_data", tmp_path / "index_data")
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False)
    assert tried > 0
    assert failed == 0


def test_links_lead_to_files() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())]
    assert len(links) > 100
    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []


def test_paths_of_the_project_exist() -> None:
    """Pages name modules and tests; ``some_name.py`` and ``<name>`` are yours to choose."""
    named = re.compile(r"`((?:envsolve|tests|bench|index_data|docs|examples)/[\w./-]+)`")
    found = [(page, path) for page in [*PAGES, ROOT / "bench/README.md"] for path in named.findall(page.read_text())]
    assert [at for at in found if "some_name" not in at[1] and not (ROOT / at[1]).exists()] == []


def test_the_reference_of_the_commands_is_current() -> None:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for directory, written in (("reference", module.pages()), ("man", module.man_pages())):
        found = {page.name: page.read_text() for page in (ROOT / "docs" / directory).iterdir()}
        assert found == written, "run: python docs/reference.py"


def test_the_man_pages_are_sound() -> None:
    mandoc, groff = shutil.which("mandoc"), shutil.which("groff")
    if mandoc is None and groff is None:
        pytest.skip("neither mandoc nor groff is installed")
    for page in sorted((ROOT / "docs" / "man").iterdir()):
        check = [mandoc, "-Tlint", "-Wwarning"] if mandoc else [str(groff), "-man", "-Tutf8", "-ww", "-z"]
        done = subprocess.run([*check, str(page)], capture_output=True, text=True)
        # The pages have no date, so that they change only with the command line.
        faults = [line for line in (done.stdout + done.stderr).splitlines() if "missing date" not in line]
        assert faults == []


def test_every_page_is_in_the_menu_of_the_site() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}


def commands(text: str) -> Iterator[list[str]]:
    """Return the words of every command of envsolve in the code blocks of a page."""
    for line in COMMAND.findall(text):
        words = shlex.split(re.sub(r"\$\(.*?\)", "x", line), comments=True)
        end = next((place for place, word in enumerate(words) if word in {"|", ">", "<", "&&", "2>&1", ";"}), None)
        if not SYNOPSIS.search(line.split("#")[0].partition(" -- ")[0]):
            yield words[1:end]


def parse(words: list[str]) -> None:
    """Parse a command as the command line does, and run nothing."""
    given = [word for place, word in enumerate(words) if word not in main._ANYWHERE or "--" in words[:place]]
    if given in ([], ["--version"], ["--help"]):
        return
    command: Any = main._app()
    while hasattr(command, "list_commands"):
        command, given = command.get_command(None, given[0]), given[1:]
    if "--help" not in given:
        command.make_context("envsolve", list(given))


def test_the_command_line_takes_every_command_that_is_shown() -> None:
    refused = {}
    shown = [(page, words) for page in PAGES for words in commands(page.read_text())]
    for page, words in shown:
        try:
            parse(words)
        except Exception as error:
            refused[f"{page.name}: {shlex.join(words)}"] = str(error)
    assert refused == {}


def test_the_command_line_takes_every_command_that_the_text_names() -> None:
    """Commands in a sentence; those without a verb, or with a word in capitals, only name a command."""
    refused, tried = {}, 0
    for page, command in [(p, c) for p in PAGES for c in re.findall(r"`(envsolve [a-z][^`]*)`", p.read_text())]:
        words = shlex.split(" ".join(command.split()))[1:]
        if len(words) > 1 and not SYNOPSIS.search(command) and not re.search(r"\b[A-Z]{2,}\b|[<|>]", command):
            tried += 1
            try:
                parse(words)
            except Exception as error:
                if not re.search("Missing parameter|requires an argument", str(error)):  # named, not shown whole
                    refused[f"{page.name}: {command}"] = str(error)
    assert tried > 20
    assert refused == {}


def test_the_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [re.findall(r"(?:^ {4}|`)make ([a-z][\w-]*)", page.read_text(), re.MULTILINE) for page in PAGES]
    assert set(filter(None, {word for words in named for word in words})) <= targets
    assert len(targets) > 10


def test_a_wrong_option_in_a_page_is_found() -> None:
    found = list(commands("    $ envsolve plan torch --no-such\n\n    cat x | envsolve diagnose --log -   # y\n"))
    assert found == [["plan", "torch", "--no-such"], ["diagnose", "--log", "-"]]
    with pytest.raises(Exception, match="no-such"):
        parse(found[0])


def test_the_threat_table_names_tests_that_exist() -> None:
    rows = [line for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = [re.findall(r"`(tests/[\w/]+\.py)`", row) for row in rows[1:]]
    assert len(named) > 20 and all(named)
    assert [name for names in named for name in names if not (ROOT / name).is_file()] == []

"""An answer is given again exactly where solving anew would read the same, and is then the same to the byte."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from envsolve import api
from envsolve.answers import program
from envsolve.answers.kept import Answers
from envsolve.errors import IndexUnavailableError
from envsolve.index.cache import DiskCache
from envsolve.jsontext import dump
from envsolve.plan import Plan
from envsolve.planner import make
from tests.indexserver import Index, IndexServer

CARD = "H100, driver 580.95.05, python 3.12, linux-x86_64, glibc 2.36"
LATER = 10 * 24 * 3600


@dataclass
class Asking:
    """Somebody who asks; ``solves`` counts the answers that were worked out.

    Attributes:
        folder: Where the requirement file lies.
        cache: The cache.
    """

    server: IndexServer
    index: Index
    folder: Path
    cache: Path
    solves: int = 0
    own: list[str] = field(default_factory=lambda: ["this program"])
    target: str = CARD
    options: dict[str, Any] = field(default_factory=dict)

    def plan(self, *requirements: str, **options: Any) -> Plan:
        """A plan for what is asked; the requirement file where nothing is."""
        options = {"index_url": self.index.url} | self.options | options
        if not requirements:
            options = {"files": [self.folder / "asked.txt"]} | options
        return api.plan(requirements, [api.describe_target(self.target)], **options)

    def kept(self) -> list[Path]:
        """The files of answers."""
        return sorted(path for path in (self.cache / "answers").rglob("*") if path.is_file())


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    with IndexServer() as server:
        index = server.index()
        index.wheel("lib", "1.0", requires=["part>=1"], upload_time="2026-01-01T00:00:00Z")
        index.wheel("part", "1.0", upload_time="2026-01-01T00:00:00Z")
        (tmp_path / "asked.txt").write_text("lib\n")
        (tmp_path / "limits.txt").write_text("part<9\n")
        asker = Asking(server, index, tmp_path, tmp_path / "cache")
        solve = make.make_plan

        def counted(*arguments: Any) -> Plan:
            asker.solves += 1
            return solve(*arguments)

        monkeypatch.setattr(make, "make_plan", counted)
        monkeypatch.setattr(program, "program", lambda: asker.own)
        yield asker


def test_asked_again_it_is_the_answer_of_before(asking: Asking) -> None:
    first = asking.plan()
    assert asking.plan() == first
    assert asking.solves == 1


def impossible(asking: Asking) -> Plan:
    return asking.plan("lib>5")


def torch_on_a_card_that_is_too_new(asking: Asking) -> Plan:
    asking.target = "RTX 5090, driver 570.86, python 3.12, linux-x86_64, glibc 2.36"
    return asking.plan("torch==2.4.*")


def of_a_machine_that_cannot_be(asking: Asking) -> Plan:
    asking.target = "RTX 5090, driver 560.10, python 3.12, linux-x86_64, glibc 2.36"
    return asking.plan("lib")


def with_what_stands(asking: Asking) -> Plan:
    return asking.plan("lib", keep=[("part", "1.0")], constraints=[asking.folder / "limits.txt"])


@pytest.mark.parametrize(
    "ask",
    [Asking.plan, impossible, torch_on_a_card_that_is_too_new, of_a_machine_that_cannot_be, with_what_stands],
)
def test_a_kept_answer_is_the_same_to_the_byte(asking: Asking, ask: Callable[[Asking], Plan]) -> None:
    anew = dump(ask(asking))
    kept = dump(ask(asking))
    assert asking.solves == 1
    shutil.rmtree(asking.cache / "answers")
    assert dump(ask(asking)) == kept == anew
    assert asking.solves == 2


def file_changes(asking: Asking, _: pytest.MonkeyPatch) -> None:
    (asking.folder / "asked.txt").write_text("lib  \n")


def option(**given: Any) -> Callable[[Asking, pytest.MonkeyPatch], None]:
    def change(asking: Asking, _: pytest.MonkeyPatch) -> None:
        asking.options |= given

    return change


def machine(target: str) -> Callable[[Asking, pytest.MonkeyPatch], None]:
    def change(asking: Asking, _: pytest.MonkeyPatch) -> None:
        asking.target = target

    return change


def variable(name: str, value: str) -> Callable[[Asking, pytest.MonkeyPatch], None]:
    def change(_: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(name, value)

    return change


def constraints_change(asking: Asking, _: pytest.MonkeyPatch) -> None:
    asking.options["constraints"] = [asking.folder / "limits.txt"]


def own_catalogue_comes(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    own = asking.folder / "own"
    own.mkdir()
    (own / "drivers.json").write_text('{"schema": "envsolve.catalogue/1", "sources": {}, "records": []}')
    monkeypatch.setenv("ENVSOLVE_CATALOGUE", str(own))


def program_changes(asking: Asking, _: pytest.MonkeyPatch) -> None:
    asking.own = ["another program"]


def time_passes(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.time
    monkeypatch.setattr("time.time", lambda: clock() + LATER)


def pages_go(asking: Asking, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(asking.cache / "index")


def a_page_is_damaged(asking: Asking, _: pytest.MonkeyPatch) -> None:
    path = next(path for path in (asking.cache / "index").rglob("*") if path.is_file() and "pages" in str(path))
    path.write_bytes(b"torn" + path.read_bytes()[4:])


def metadata_goes(asking: Asking, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(next((asking.cache / "index").glob("metadata-*")))


def answers_are_damaged(asking: Asking, _: pytest.MonkeyPatch) -> None:
    for path in asking.kept():
        path.write_bytes(path.read_bytes()[:-1])


def answers_are_foreign(asking: Asking, _: pytest.MonkeyPatch) -> None:
    cache = DiskCache(asking.folder)
    cache.write("x", "x", msgspec.msgpack.encode(["of another program"]))
    (foreign,) = [path for path in (asking.folder / "x").rglob("*") if path.is_file()]
    for path in asking.kept():
        shutil.copy(foreign, path)


@pytest.mark.parametrize(
    "change",
    [
        file_changes,
        constraints_change,
        machine("A100, driver 580.95.05, python 3.12, linux-x86_64, glibc 2.36"),
        machine("H100, driver 580.95.06, python 3.12, linux-x86_64, glibc 2.36"),
        machine("H100, driver 580.95.05, python 3.11, linux-x86_64, glibc 2.36"),
        option(python="3.11"),
        option(cuda="cpu"),
        option(exclude_newer="2026-06-01"),
        option(prereleases=True),
        option(keep=[("part", "1.0")]),
        option(offline=True),
        variable("PIP_TRUSTED_HOST", "example.org"),
        variable("UV_EXTRA_INDEX_URL", "https://example.org/simple"),
        own_catalogue_comes,
        program_changes,
        time_passes,
        pages_go,
        a_page_is_damaged,
        metadata_goes,
        answers_are_damaged,
        answers_are_foreign,
    ],
)
def test_whatever_changes_it_is_solved_anew(
    asking: Asking, monkeypatch: pytest.MonkeyPatch, change: Callable[[Asking, pytest.MonkeyPatch], None]
) -> None:
    asking.plan()
    change(asking, monkeypatch)
    asking.plan()
    assert asking.solves == 2


def test_a_page_with_other_content_is_what_counts(asking: Asking) -> None:
    assert [p.version for p in asking.plan().packages] == ["1.0", "1.0"]
    asking.index.wheel("lib", "2.0", upload_time="2026-01-01T00:00:00Z")
    assert [p.version for p in asking.plan().packages] == ["1.0", "1.0"]  # the page is fresh for ten minutes
    shutil.rmtree(next((asking.cache / "index").glob("pages-*")))
    assert [p.version for p in asking.plan().packages] == ["2.0"]
    assert asking.solves == 2


def test_offline_an_answer_is_given_however_old(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.plan()
    asking.plan(offline=True)
    time_passes(asking, monkeypatch)
    asking.plan(offline=True)
    assert asking.solves == 2


def test_an_index_of_another_user_is_another_index(asking: Asking) -> None:
    asking.plan()
    asking.plan(index_url=asking.index.url.replace("://", "://somebody:secret@"))
    assert asking.solves == 2
    assert not any(b"secret" in path.read_bytes() for path in asking.kept())


def by_address(asking: Asking) -> dict[str, Any]:
    (entry,) = asking.index.projects["part"]
    return {"requirements": [f"part @ {asking.index.address(entry)}"]}


def of_a_project(asking: Asking) -> dict[str, Any]:
    (asking.folder / "pyproject.toml").write_text('[project]\nname = "own"\nversion = "1"\ndependencies = ["lib"]\n')
    return {"requirements": [], "projects": [asking.folder]}


def of_a_file_that_names_another(asking: Asking) -> dict[str, Any]:
    (asking.folder / "outer.txt").write_text("-r asked.txt\n")
    return {"requirements": [], "files": [asking.folder / "outer.txt"]}


def of_an_index_on_disk(asking: Asking) -> dict[str, Any]:
    page = asking.folder / "simple" / "part"
    page.mkdir(parents=True)
    (page / "part-1.0-py3-none-any.whl").write_bytes(asking.index.projects["part"][0].content)
    (page / "index.html").write_text('<a href="part-1.0-py3-none-any.whl">part-1.0-py3-none-any.whl</a>')
    return {"requirements": ["part"], "index_url": (asking.folder / "simple").as_uri()}


def of_a_page_that_may_not_be_kept(asking: Asking) -> dict[str, Any]:
    private = asking.server.index("/private/")
    private.wheel("lib", "1.0")
    private.cache_control = "no-store"
    return {"requirements": ["lib"], "index_url": private.url}


@pytest.mark.parametrize(
    "ask",
    [by_address, of_a_project, of_a_file_that_names_another, of_an_index_on_disk, of_a_page_that_may_not_be_kept],
)
def test_what_depends_on_more_is_never_kept(asking: Asking, ask: Callable[[Asking], dict[str, Any]]) -> None:
    given = ask(asking)
    for solves in (1, 2):
        assert asking.plan(*given["requirements"], **{k: v for k, v in given.items() if k != "requirements"}).packages
        assert asking.solves == solves
    assert asking.kept() == []


def test_what_an_index_lacks_today_it_may_have_tomorrow(asking: Asking) -> None:
    for solves in (1, 2):
        assert asking.plan("lib", "not-there").status == "impossible"
        assert asking.solves == solves
    assert asking.kept() == []


def test_an_index_that_fails_is_asked_again(asking: Asking) -> None:
    asking.server.fault("/simple/part/", status=401)
    for solves in (1, 2):
        with pytest.raises(IndexUnavailableError):
            asking.plan()
        assert asking.solves == solves
    assert asking.kept() == []


def test_a_disk_that_takes_nothing_is_no_matter(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.cache.write_text("no folder")
    assert asking.plan() == asking.plan()
    assert asking.solves == 2


def test_what_changed_while_it_was_answered_is_not_kept(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    solve = make.make_plan

    def meanwhile(*arguments: Any) -> Plan:
        file_changes(asking, monkeypatch)
        return solve(*arguments)

    monkeypatch.setattr(make, "make_plan", meanwhile)
    asking.plan()
    assert asking.kept() == []


def test_many_writers_leave_a_whole_answer(asking: Asking) -> None:
    plan = asking.plan()
    answers = Answers()
    (path,) = asking.kept()
    key = "of a question"

    def write() -> None:
        for _ in range(20):
            answers.keep(key, plan, [])

    threads = [Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.read(key) == plan
    assert len(asking.kept()) == 2 and path in asking.kept()


def test_the_oldest_go_where_there_are_too_many(tmp_path: Path) -> None:
    answers = Answers(tmp_path, limit=3000)
    for number in range(4):
        answers.keep(str(number), Plan(requirements=("x" * 1000,)), [])
        for path in (tmp_path / "answers").glob("*/*/*"):
            os.utime(path, (path.stat().st_mtime - 60,) * 2)
    assert [number for number in range(4) if answers.read(str(number))] == [2, 3]

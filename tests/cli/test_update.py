"""Locks that remember their request: update, plan without words, and the comparison of two locks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envsolve.cli.main import run
from envsolve.cli.remembered import recall
from envsolve.errors import UsageError
from envsolve.locks.compare import compare_files, read_said
from tests.indexserver import Index, IndexServer

TARGET = "no gpu, python 3.12, linux-x86_64, glibc 2.35"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVSOLVE_CACHE_DIR", str(tmp_path / "cache"))
    with IndexServer() as server:
        made = server.index(cache_control="no-store")
        monkeypatch.setenv("UV_DEFAULT_INDEX", made.url)
        made.wheel("es-one", "1.0", requires=["es-two"])
        made.wheel("es-two", "1.0")
        yield made


def code(*words: str) -> object:
    with pytest.raises(SystemExit) as ended:
        run([*words])
    return ended.value.code


def locked(index: Index, *words: str) -> str:
    said = ("--target", TARGET, "--allow-unknown-names", *words, "-o", "pylock.toml")
    assert code("plan", "es-one", *said) == 0
    return Path("pylock.toml").read_text()


def test_a_lock_is_made_again_without_words_and_stays_the_same(index: Index) -> None:
    text = locked(index)
    was = recall(Path("pylock.toml"))
    assert was.requirements == ["es-one"]
    assert was.machines.target == [TARGET]
    index.wheel("es-two", "2.0")
    assert code("plan", "--lock", "pylock.toml", "-o", "pylock.toml") == 0
    assert Path("pylock.toml").read_text() == text
    assert code("plan", "--lock", "pylock.toml", "-U", "-o", "pylock.toml") == 0
    assert Path("pylock.toml").read_text() != text
    assert recall(Path("pylock.toml")) == was


def test_paths_are_remembered_relative_to_the_lock(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("locks", "demo", "elsewhere"):
        Path(name).mkdir()
    Path("demo/pyproject.toml").write_text('[project]\nname = "demo"\nversion = "1"\ndependencies = ["es-one"]\n')
    Path("more.txt").write_text("es-two\n")
    Path("links").mkdir()
    said = ("--target", TARGET, "--allow-unknown-names", "-r", "more.txt", "-f", "links", "-o", "locks/pylock.toml")
    assert code("plan", "./demo", *said) == 0
    text = Path("locks/pylock.toml").read_text()
    assert '"../demo"' in text and '"../more.txt"' in text and '"../links"' in text
    for place, lock in ((".", "locks/pylock.toml"), ("elsewhere", "../locks/pylock.toml"), ("../locks", "pylock.toml")):
        monkeypatch.chdir(place)
        assert code("update", lock) == 0
        assert Path(lock).read_text() == text


def test_update_moves_what_is_newer_and_touches_nothing_else(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    text = locked(index)
    capsys.readouterr()
    assert code("update") == 0
    assert "pylock.toml is up to date" in capsys.readouterr().out
    assert Path("pylock.toml").read_text() == text
    index.wheel("es-one", "1.5", requires=["es-two"])
    index.wheel("es-two", "2.0")
    assert code("update", "--outdated") == 0
    assert capsys.readouterr().out.split() == ["locked", "newest", "es-one", "1.0", "1.5", "es-two", "1.0", "2.0"]
    assert Path("pylock.toml").read_text() == text
    assert code("update", "-P", "es-two", "--format", "json") == 0
    found = json.loads(capsys.readouterr().out)["differences"]
    assert found == [{"kind": "package", "name": "es-two", "now": "1.0", "then": "2.0"}]
    assert code("update") == 0
    assert code("update", "--outdated", "--format", "json") == 0
    assert '"differences": []' in capsys.readouterr().out.replace("\n", "")


def test_options_are_remembered_and_logins_are_not(index: Index) -> None:
    secret = index.url.replace("://", "://user:secret@")
    text = locked(index, "--index-url", secret, "--pre", "--python", "3.12", "--find-links", ".")
    assert "secret" not in text
    was = recall(Path("pylock.toml")).asked
    assert (was.pre, was.python, was.index_url, was.find_links) == (True, "3.12", index.url, ["."])


def test_a_lock_of_another_tool_remembers_nothing(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pylock.toml").write_text('lock-version = "1.0"\ncreated-by = "x"\npackages = []\n')
    assert code("update") == 2
    assert "does not record which requirements it was made from" in capsys.readouterr().err
    with pytest.raises(UsageError, match="cannot be read"):
        recall(Path("no.toml"))


LOCK = 'lock-version = "1.0"\ncreated-by = "x"\npackages = []\n'


@pytest.mark.parametrize(
    "request_",
    [
        "requirements = 5",
        "requirements = [[1]]",
        "python = 3.12",
        'find-links = "x"',
        "requirement = [5]",
        'no-index = "x"',
        "allow-groups = 1",
    ],
)
def test_a_request_of_other_types_is_refused(request_: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "pylock.toml"
    lock.write_text(f"{LOCK}[tool.envsolve.request]\n{request_}\n")
    assert code("update", str(lock)) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\nenvsolve = 5"])
def test_a_lock_whose_own_table_is_none_is_refused(text: str, tmp_path: Path) -> None:
    lock = tmp_path / "pylock.toml"
    lock.write_text(f"{LOCK}{text}\n")
    assert code("update", str(lock)) == 2
    assert code("diff", str(lock), str(lock)) == 2
    assert code("bundle", str(lock), "-o", str(tmp_path / "made")) == 2


@pytest.mark.parametrize("text", ["[1]", '{"packages": 1}', '{"packages": [{"version": 1, "name": 2}]}', "[" * 100_000])
def test_json_that_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert code("diff", str(tmp_path / "plan.json"), str(tmp_path / "plan.json")) == 2


def test_a_lock_does_not_choose_that_code_of_packages_runs(index: Index) -> None:
    text = locked(index, "--build-metadata")
    assert "build-metadata" not in text
    table = "[tool.envsolve.request]\n"
    Path("pylock.toml").write_text(text.replace(table, f"{table}build-metadata = true\nmanager = 'conda'\n"))
    was = recall(Path("pylock.toml")).asked
    assert (was.build_metadata, was.manager) == (False, None)


def test_locks_of_tools_are_compared(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(
        '[[package]]\nname = "x"\nversion = "0"\nsource = { virtual = "." }\n'
        '[[package]]\nname = "Es_One"\nversion = "1.0"\nsource = { registry = "r" }\n'
        '[[package]]\nname = "es-one"\nversion = "0.9"\nsource = { registry = "r" }\n'
    )
    plan = {"packages": [{"name": "es-one", "version": "2.0"}], "python": "3.12", "driver": {"required": "580"}}
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"environment": {"A": "1"}}))
    found = compare_files(tmp_path / "uv.lock", tmp_path / "plan.json").differences
    assert [(one.kind, one.name, one.now, one.then) for one in found] == [
        ("python", "python", None, "3.12"),
        ("driver", "driver", None, "580"),
        ("variable", "A", None, "1"),
        ("package", "es-one", "0.9, 1.0", "2.0"),
    ]
    for text, name in (("[]", "a.json"), ("{", "b.json"), ("x = 1", "c.toml"), ("packages = 3", "d.toml")):
        with pytest.raises(UsageError):
            read_said(text, Path(name))


def test_diff_prints_a_table(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    locked(index)
    Path("old.toml").write_text(Path("pylock.toml").read_text())
    assert code("diff", "old.toml", "pylock.toml") == 0
    index.wheel("es-two", "2.0")
    assert code("update") == 0
    capsys.readouterr()
    assert code("diff", "old.toml", "pylock.toml") == 0
    assert capsys.readouterr().out.split() == ["old.toml", "pylock.toml", "es-two", "1.0", "2.0"]

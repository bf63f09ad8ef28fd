from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from packaging.requirements import Requirement

from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError, UsageError
from envsolve.install.files import File, read_lock, wanted
from envsolve.install.interpreters import Target, probe
from envsolve.packages.urls import Tree
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import ConflictFact, PlannedPackage
from tests.install.wheels import PYTHON, plan_of

SHA = {"sha256": "a" * 64}
WHEEL = PlannedPackage(
    "demo", "1.0", None, None, "demo-1.0-py3-none-any.whl", "https://h/demo-1.0-py3-none-any.whl", SHA, "wheel"
)


@pytest.fixture(scope="module")
def target() -> Target:
    found = probe(sys.executable)
    assert found is not None
    return found


def test_the_requirement_line_names_address_and_hash() -> None:
    file = File("demo", "1.0+cu126", "wheel", "w", "https://h/demo-1.0%2Bcu126-py3-none-any.whl#sha256=ff", SHA)
    assert file.requirement == f"demo @ https://h/demo-1.0%2Bcu126-py3-none-any.whl --hash=sha256:{'a' * 64}"


@given(st.text(max_size=30))
def test_no_address_breaks_out_of_its_line(path: str) -> None:
    line = File("demo", None, "wheel", "w", f"https://host/{path}", SHA).requirement
    reference, _, checks = line.rpartition(" --hash=")
    assert checks == f"sha256:{'a' * 64}"
    assert "\n" not in line
    assert "$" not in line
    url = Requirement(reference).url
    assert url is not None
    assert url.startswith("https://host/")
    assert " " not in url


def test_the_recorded_address_has_no_password() -> None:
    assert (
        File("demo", None, "wheel", "w", "https://me:secret@host:8/w?sig=secret", SHA).public_url == "https://host:8/w"
    )


def test_a_repository_that_was_not_read_is_refused(target: Target) -> None:
    url = "git+https://example.org/apex"
    unread = Tree(repository="https://example.org/apex", unread="no route to host")
    tree = PlannedPackage("apex", "0+unread", None, None, None, url, {}, "sdist", tree=unread)
    with pytest.raises(IndexUnavailableError, match="which was not read: no route to host"):
        wanted(plan_of(tree), target)


def test_a_commit_is_pinned_by_its_id_and_a_folder_by_its_content(target: Target, tmp_path: Path) -> None:
    commit = Tree(repository="https://example.org/a b", commit="c" * 40, subdirectory="x")
    folder = Tree(folder=str(tmp_path))
    trees = [PlannedPackage("k", "0+unread", None, None, None, "u", {}, "sdist", tree=one) for one in (commit, folder)]
    one, other = wanted(plan_of(*trees), target).files
    assert (one.version, one.hashes) == (None, {"git": "c" * 40})
    assert one.requirement == f"k @ git+https://example.org/a%20b@{'c' * 40}#subdirectory=x"
    (tmp_path / "setup.py").touch()
    (changed,) = wanted(plan_of(trees[1]), target).files
    assert changed.hashes != other.hashes


@pytest.mark.parametrize("lack", [{"url": None}, {"hashes": {}}, {"hashes": {"md5": "b" * 32}}, {"filename": None}])
def test_a_file_that_only_the_catalogue_knows_is_an_index_failure(lack: dict[str, object], target: Target) -> None:
    package = replace(WHEEL, index="https://example.org/simple/", **lack)
    with pytest.raises(IndexUnavailableError, match=r"demo 1\.0 only from the catalogue"):
        wanted(plan_of(package), target)


def test_a_file_that_was_requested_by_url_needs_a_hash(target: Target) -> None:
    package = replace(WHEEL, url="https://me:secret@example.org/demo-1.0-py3-none-any.whl", index=None, hashes={})
    with pytest.raises(UsageError, match=r"requested by URL \(https://[^ ]*example\.org.*without a hash") as refused:
        wanted(plan_of(package), target)
    assert "secret" not in refused.value.message
    assert refused.value.hint is not None and "#sha256=" in refused.value.hint


def test_an_impossible_plan_is_refused_with_its_conflict(target: Target) -> None:
    plan = Plan(status="impossible", conflict=(ConflictFact("no build knows sm_30"),))
    with pytest.raises(ImpossibleError, match="no build knows sm_30"):
        wanted(plan, target)


@pytest.mark.parametrize("tags", ["cp30-cp30-any", "py3-none-win32", "py3-none-manylinux_9_99_x86_64"])
def test_a_wheel_for_another_machine_is_refused(tags: str, target: Target) -> None:
    with pytest.raises(ImpossibleError, match="does not run on Python"):
        wanted(plan_of(replace(WHEEL, filename=f"demo-1.0-{tags}.whl")), target)


HEAD = 'lock-version = "1.0"\ncreated-by = "tests"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("= nonsense", "is not TOML"),
        ("a" + ".a" * 20_000 + " = 1", "a key has 20001 parts; the limit is 500"),
        ("packages = []", "Missing required value"),
        (HEAD.replace("1.0", "9.0") + "packages = []", "9.0 is not supported"),
        (HEAD + "packages = []\n[tool.envsolve]\ndriver_required = 5", r"tool\.envsolve.*driver_required"),
        (HEAD + "packages = []\n[tool.envsolve]\ndriver_required = 'new'", "driver_required is no driver version"),
        (HEAD + "packages = []\n[tool.envsolve]\nlibc = 'some'", "libc is not in a form"),
        (HEAD + "packages = []\n[tool.envsolve]\ngpus = ['fast']", "gpus: not a compute capability"),
        (HEAD + "packages = []\n[tool.envsolve]\npython = '3'", "python is no version"),
        (HEAD + "packages = []\n[tool.envsolve.environment]\n'A=B' = 'x'", "sets A=B to 'x', which no plan does"),
        (HEAD + 'packages = []\n[tool.envsolve.environment]\nA = "x\\ny"', "gives A a value"),
        (HEAD + "requires-python = '<3.11'\npackages = []\n[tool.envsolve]\npython = '3.12'", "contradicts itself"),
        (HEAD + "packages = []\n[tool.envsolve]\nschema = 'envsolve.lock/9'", "envsolve.lock/9"),
    ],
)
def test_a_malformed_lock_is_a_usage_error(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "pylock.toml").write_text(text)
    with pytest.raises(UsageError, match=reason):
        read_lock(tmp_path / "pylock.toml")


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_lock(tmp_path / "pylock.toml")


_OTHER = 'packages = []\nrequires-python = "<3"\n'
ZEROS = "0" * 64
_WRONG_WHEEL = (
    '[[packages]]\nname = "demo"\nversion = "1.0"\n'
    '[[packages.wheels]]\nname = "demo-1.0-cp30-cp30-win32.whl"\npath = "w"\nhashes = {sha256 = "@"}\n'
).replace("@", ZEROS)
_GIT = '[[packages]]\nname = "demo"\n[packages.vcs]\ntype = "git"\nurl = "https://h/r"\ncommit-id = "abc"\n'
_HG = _GIT.replace('"git"', '"hg"')
_EXT = _GIT.replace("https://h/r", "ext::sh -c true").replace("abc", "a" * 40)
_OUT = _GIT.replace("abc", "a" * 40) + 'subdirectory = "../x"\n'
_FOLDER = '[[packages]]\nname = "demo"\n[packages.directory]\npath = "gone"\n'
_MD5 = '[[packages]]\nname = "demo"\n[packages.archive]\nurl = "https://h/demo-1.0.tar.gz"\nhashes = {md5 = "0"}\n'


@pytest.mark.parametrize(
    ("text", "error", "reason"),
    [
        (_OTHER, ImpossibleError, "does not satisfy"),
        (_WRONG_WHEEL, ImpossibleError, "No wheel found"),
        (_GIT, UsageError, "no URL and commit that git could fetch for demo"),
        (_EXT, UsageError, "no URL and commit that git could fetch for demo"),
        (_HG, UsageError, "names a hg repository"),
        (_OUT, UsageError, "outside of its tree"),
        (_FOLDER, UsageError, "/gone, which does not exist"),
        (_MD5, UsageError, "no sha256"),
    ],
)
def test_a_lock_that_does_not_serve_here(
    tmp_path: Path, target: Target, text: str, error: type[EnvsolveError], reason: str
) -> None:
    (tmp_path / "pylock.toml").write_text(HEAD + text)
    with pytest.raises(error, match=reason):
        wanted(read_lock(tmp_path / "pylock.toml"), target)


def test_a_path_in_a_lock_is_relative_to_the_lock(tmp_path: Path, target: Target) -> None:
    text = '[[packages]]\nname = "demo"\n[packages.archive]\npath = "a b/demo-1.0.tar.gz"\n'
    text += f'hashes = {{sha256 = "{ZEROS}"}}\n'
    (tmp_path / "pylock.toml").write_text(HEAD + text)
    (file,) = wanted(read_lock(tmp_path / "pylock.toml"), target).files
    assert file.url == (tmp_path / "a b" / "demo-1.0.tar.gz").resolve().as_uri()
    assert (file.kind, file.version) == ("sdist", None)


def test_target_tags_are_those_of_packaging_itself(target: Target) -> None:
    from packaging.tags import sys_tags

    assert target.tags[0] == next(iter(sys_tags()))
    assert set(sys_tags()) == set(target.tags)
    assert target.version.startswith(PYTHON)


@pytest.mark.parametrize(("sizes", "total"), [([1000, 24], 1024), ([1000, None], None), ([], 0)])
def test_the_size_of_all_files_is_known_where_each_is(
    sizes: list[int | None], total: int | None, target: Target
) -> None:
    assert wanted(plan_of(*(replace(WHEEL, size=size) for size in sizes)), target).size == total


def _archive(digest: str = ZEROS, url: str = "https://h/demo-1.0.tar.gz") -> dict[str, object]:
    package = {"name": "demo", "archive": {"url": url, "hashes": {"sha256": digest}}}
    return {"lock-version": "1.0", "created-by": "tests", "packages": [package]}


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (_archive(digest=f"{ZEROS}\nother @ https://evil/other.whl"), "sha256 hash of demo-1.0.tar.gz is not one"),
        (_archive(digest="00"), "is not one"),
        (_archive(digest="g" * 64), "is not one"),
        (_archive(url="ftp://h/demo-1.0.tar.gz"), "does not begin with http"),
    ],
)
def test_nothing_in_a_lock_gets_into_a_requirements_line(
    tmp_path: Path, target: Target, table: dict[str, object], reason: str
) -> None:
    (tmp_path / "pylock.toml").write_text(tomli_w.dumps(table))
    with pytest.raises(UsageError, match=reason):
        wanted(read_lock(tmp_path / "pylock.toml"), target)


def test_a_newer_minor_version_of_the_format_is_noted(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_text(HEAD.replace("1.0", "1.7") + "packages = []")
    assert read_lock(tmp_path / "pylock.toml").notes == (
        "the lock's version 1.7 is newer than 1.0: its new fields are ignored",
    )


def test_what_is_no_text_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pylock.toml").write_bytes(b"\x00\xff\xfe")
    with pytest.raises(UsageError, match="not text") as caught:
        read_lock(tmp_path / "pylock.toml")
    assert caught.value.hint
    with pytest.raises(UsageError, match="is a directory"):
        read_lock(tmp_path)

"""What a requirement file may hold and be: hashes, addresses in constraints, and which files are read at all."""

from __future__ import annotations

import os
import time
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.errors import UsageError
from envsolve.packages.requirement_files import read_lines, read_requirements
from envsolve.packages.requirement_text import logical_lines
from envsolve.packages.requirements import Asked

AA = "aa" * 32
WHEEL = "https://example.org/torch-2.9.0-cp312-cp312-linux_x86_64.whl"


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def from_text(text: str) -> Asked:
    Path("requirements.txt").write_text(text)
    return read_requirements([], [Path("requirements.txt")])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch --hash=sha256:abc", "line 1: --hash=sha256:abc is not a digest"),
        (f"torch --hash=md5:{'a' * 32}", "is not a digest"),
        ("torch --hash=" + "z" * 64, "is not a digest"),
        (f"--hash=sha256:{AA}", "line 1: --hash without a requirement"),
        (f"./project --hash=sha256:{AA}", "line 1: a local project cannot have a --hash"),
    ],
)
def test_an_option_that_means_nothing_is_refused(line: str, message: str, in_folder: Path) -> None:
    (in_folder / "project").mkdir()
    with pytest.raises(UsageError) as caught:
        from_text(line)
    assert message in caught.value.message


def test_an_index_behind_a_requirement_counts_and_is_remarked_on() -> None:
    asked = from_text("torch --index-url https://example.org/simple")
    assert asked.index_urls == ("https://example.org/simple",)
    assert any("pip ignores --index-url after a requirement" in note for note in asked.notes)


def test_hashes_of_a_constraint_are_kept() -> None:
    Path("c.txt").write_text(f"numpy==2.1 --hash=sha512:{'c' * 128}")
    (constraint,) = read_requirements([], [], [Path("c.txt")]).constraints
    assert constraint.hashes == (f"sha512:{'c' * 128}",)


@pytest.mark.parametrize("line", ["requests @ https://example.org/requests-2.0-py3-none-any.whl", WHEEL])
def test_an_address_is_no_constraint(line: str) -> None:
    Path("c.txt").write_text(line)
    with pytest.raises(UsageError, match="line 1: a URL is not supported in constraints"):
        read_requirements([], [], [Path("c.txt")])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_only_regular_files_of_a_sensible_size_are_read(in_folder: Path) -> None:
    os.mkfifo("pipe.txt")
    with Path("huge.txt").open("wb") as file:
        file.truncate(2**24 + 1)
    (in_folder / "folder").mkdir()
    os.mkfifo("folder/pyproject.toml")
    for name, message in {
        "pipe.txt": "a pipe or a device",
        "/dev/zero": "a pipe or a device",
        "huge.txt": "larger than 16 MiB",
        "folder": "Is a directory",
        "folder/pyproject.toml": "a pipe or a device",
    }.items():
        with pytest.raises(UsageError, match=message):
            read_requirements([], [Path(name)])
    Path("loop.txt").symlink_to("loop.txt")
    with pytest.raises(UsageError, match=r"loop\.txt: the file cannot be read: Too many levels of symbolic links"):
        read_requirements([], [Path("loop.txt")])
    Path("link.txt").symlink_to("real.txt")
    Path("real.txt").write_text("torch")
    (need,) = read_requirements([], [Path("link.txt")]).needs
    assert str(need.requirement) == "torch"


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("torch" + " " * 60_000 + ">=2", ["torch>=2"]),
        ("torch" + " " * 60_000 + "# newest", ["torch"]),
        ("torch" + " " * 60_000 + '; python_version > "3"', ['torch; python_version > "3"']),
        (" " * 2_000_000 + "torch" + " " * 2_000_000, ["torch"]),
        ("torch \\\n" * 2 + " " * 60_000 + "#\nnumpy", None),
        ("torch" + " " * 60_000 + "x", None),
        ("./" + " " * 60_000 + "x", None),
        ("torch " + "--hash=sha256:abc " * 60_000, None),
    ],
    ids=["specifier", "comment", "marker", "around", "continued", "two words", "path", "hashes"],
)
def test_long_lines_take_no_longer_than_their_length(text: str, needs: list[str] | None, in_folder: Path) -> None:
    """Patterns that look through a run again from each of its characters take minutes for some of these."""
    started = time.process_time()
    try:
        found: list[str] | None = [str(need.requirement) for need in from_text(text).needs]
    except UsageError:
        found = None
    assert found == needs
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("name", "text", "says", "hint"),
    [
        ("list.txt", "# x\n@EXPLICIT\nhttps://h/x\n", "an explicit lock of conda", "envsolve install list.txt"),
        (
            "list.txt",
            "# This file may be used to create an environment using:\n"
            "# $ conda create --name <env> --file <this file>\n# platform: linux-64\nnumpy=1.21.2=py37h20f2e39_0\n",
            "a list of conda packages",
            "conda create --name NAME --file list.txt",
        ),
        ("conda-linux-64.lock", "@EXPLICIT\n", "an explicit lock of conda", "envsolve install conda-linux-64.lock"),
        ("pylock.gpu.toml", "packages = []\n", "it is a lock", "envsolve install pylock.gpu.toml --prefix DIR"),
        ("uv.lock", "version = 1\n", "uv's lock", "uv export"),
        ("poetry.lock", "version = 1\n", "Poetry's lock", "poetry export"),
        ("pixi.toml", "[workspace]\n", "it lists conda packages", "--manager conda"),
    ],
)
def test_files_of_other_tools_are_named_for_what_they_are(
    in_folder: Path, name: str, text: str, says: str, hint: str
) -> None:
    (in_folder / name).write_text(text)
    ways: list[tuple[list[str], list[Path]]] = [([], [Path(name)])]
    ways += [([f"./{name}"], [])] if not name.endswith(".txt") else []
    for arguments, files in ways:
        with pytest.raises(UsageError, match=says) as caught:
            read_requirements(arguments, files)
        assert hint in (caught.value.hint or "")


def test_a_reader_that_does_not_stop_at_what_it_cannot_read() -> None:
    files = {
        "docker/requirements.txt": "torch==2.9.0 --hash=sha256:0 # not checked here\n-r ../base.txt\n-r gone.txt\n"
        "numpy==${NUMPY}\n--frobnicate -i https://example.org/simple\n-c pins.txt\n-r pyproject.toml\n",
        "base.txt": "--extra-index-url https://example.org/whl\n-r docker/requirements.txt\n",
        "docker/pins.txt": "triton<4\n",
    }
    lines = list(read_lines(PurePosixPath("docker/requirements.txt"), lambda path: files.get(str(path))))
    read = [line for line in lines if line.problem is None]
    assert [(line.origin, line.role, line.requirement, line.options.words) for line in read] == [
        ("docker/requirements.txt line 1", "needs", "torch==2.9.0", ("--hash", "sha256:0")),
        ("base.txt line 1", "needs", "", ("--extra-index-url", "https://example.org/whl")),
        ("base.txt line 2", "needs", "", ("-r", "docker/requirements.txt")),
        ("docker/requirements.txt line 2", "needs", "", ("-r", "../base.txt")),
        ("docker/requirements.txt line 3", "needs", "", ("-r", "gone.txt")),
        ("docker/requirements.txt line 4", "needs", "numpy==${NUMPY}", ()),
        ("docker/pins.txt line 1", "constraints", "triton<4", ()),
        ("docker/requirements.txt line 6", "needs", "", ("-c", "pins.txt")),
        ("docker/pyproject.toml", "needs", "docker/pyproject.toml", ()),
        ("docker/requirements.txt line 7", "needs", "", ("-r", "pyproject.toml")),
    ]
    problems = {line.origin: line.problem.message.partition(": ")[2] for line in lines if line.problem}
    assert problems == {
        "docker/requirements.txt": "the file includes itself, directly or through other files",
        "docker/gone.txt": "the file does not exist",
        "docker/requirements.txt line 5": "--frobnicate is not an option of a requirement file",
    }


def test_files_that_name_each_other_are_read_up_to_a_limit(in_folder: Path) -> None:
    Path("f0.txt").write_text("numpy\n")
    for number in range(1, 1500):
        Path(f"f{number}.txt").write_text(f"-r f{number - 1}.txt\n" * 2)
    for last in (25, 1499):
        with pytest.raises(UsageError, match="more than 500 files are included"):
            read_requirements([], [Path(f"f{last}.txt")])


@pytest.mark.parametrize("text", ["numpy ;\n python_version > '3'", "numpy==" + "9" * 5000, "numpy\n\n[x]"])
def test_an_odd_requirement_is_refused(text: str, in_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"^command line: .* is not a requirement: ") as refused:
        read_requirements([text])
    assert repr(text)[:20] in str(refused.value)


def test_what_follows_an_option_on_its_line_is_ignored_as_by_pip(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n-f https://files.test/ torch==1.13.1+cpu\n")
    asked = read_requirements([], [tmp_path / "requirements.txt"])
    assert [str(one.requirement) for one in asked.needs] == ["numpy"]
    assert any("line 2: torch==1.13.1+cpu is ignored" in note for note in asked.notes)


def test_a_path_that_begins_at_the_requirements_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for pip, paths begin at the current directory, which is not where the file lies."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "setup.py").write_text("setup(name='app')")
    (tmp_path / "app" / "requirements.txt").write_text("-e .\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be read") as caught:
        read_requirements((), [Path("app/requirements.txt")])
    assert (caught.value.hint or "").endswith("run the command in app")
    monkeypatch.chdir(tmp_path / "app")
    assert str(read_requirements((), [Path("requirements.txt")]).needs[0].requirement).startswith("app @ file://")


@given(st.text())
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "r.txt"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        read_requirements([], [path])
    except UsageError as error:
        assert str(path.parent) in error.message or "does not exist" in error.message


@given(st.lists(st.from_regex(r"[a-z#\\ ]{0,6}", fullmatch=True), max_size=8))
def test_line_numbers_rise_and_comments_go(lines: list[str]) -> None:
    found = list(logical_lines("\n".join(lines)))
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    assert not any(content.startswith("#") or " #" in content for _, content in found)

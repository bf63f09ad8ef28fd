from __future__ import annotations

import codecs
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from envsolve.errors import UsageError
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked

WHEEL = "https://example.org/torch-2.9.0%2Bcu126-cp312-cp312-linux_x86_64.whl"
AA, BB = "aa" * 32, "bb" * 32


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def needs(asked: Asked) -> list[str]:
    return [str(need.requirement) for need in asked.needs]


def from_text(text: str | bytes, name: str = "requirements.txt") -> Asked:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_requirements([], [Path(name)])


@pytest.mark.parametrize(
    ("argument", "requirement"),
    [
        ("torch", "torch"),
        ("torch>=2.4,<3", "torch<3,>=2.4"),
        ("transformers[torch] ; python_version < '3.13'", 'transformers[torch]; python_version < "3.13"'),
        ("foo @ https://example.org/foo-1.tar.gz", "foo @ https://example.org/foo-1.tar.gz"),
        ("foo @ git+https://example.org/foo.git@v1", "foo @ git+https://example.org/foo.git@v1"),
        ("git+https://example.org/foo.git@v1#egg=foo", "foo @ git+https://example.org/foo.git@v1"),
        ("git+ssh://git@example.org/foo.git#egg=foo[bar]", "foo[bar] @ git+ssh://git@example.org/foo.git"),
        (
            "git+https://example.org/m.git#subdirectory=a/b&egg=foo",
            "foo @ git+https://example.org/m.git#subdirectory=a/b",
        ),
        (WHEEL, f"torch @ {WHEEL}"),
        (f"{WHEEL}#sha256=ab12", f"torch @ {WHEEL}#sha256=ab12"),
        (f'{WHEEL} ; sys_platform == "linux"', f'torch @ {WHEEL} ; sys_platform == "linux"'),
        ("https://example.org/Foo_Bar-1.0.tar.gz", "foo-bar @ https://example.org/Foo_Bar-1.0.tar.gz"),
        ("https://example.org/download?id=3#egg=foo", "foo @ https://example.org/download?id=3"),
    ],
)
def test_arguments(argument: str, requirement: str) -> None:
    asked = read_requirements([argument])
    assert [Requirement(text) for text in needs(asked)] == [Requirement(requirement)]
    assert asked.needs[0].origin == "command line"


@pytest.mark.parametrize("written", ["{name}", "./{name}", "{folder}/{name}", "foo @ ./{name}", "foo @ file:./{name}"])
def test_wheel_paths(written: str, in_folder: Path) -> None:
    name = "foo-1.0-py3-none-any.whl"
    (in_folder / name).touch()
    asked = read_requirements([written.format(name=name, folder=in_folder)])
    assert needs(asked) == [f"foo @ {(in_folder / name).resolve().as_uri()}"]


def test_extras_of_a_wheel_path(in_folder: Path) -> None:
    wheel = in_folder / "foo-1.0-py3-none-any.whl"
    wheel.touch()
    asked = read_requirements([f"{wheel}[bar] ; python_version > '3.8'"])
    assert asked.needs[0].requirement.extras == {"bar"}
    assert str(asked.needs[0].requirement.marker) == 'python_version > "3.8"'


def test_a_plain_word_is_a_package_even_where_a_folder_has_its_name(in_folder: Path) -> None:
    (in_folder / "torch").mkdir()
    assert needs(read_requirements(["torch"])) == ["torch"]


@pytest.mark.parametrize(
    ("argument", "message", "hint"),
    [
        ("torch=2.9", "command line: 'torch=2.9' is not a requirement", "torch==2.9"),
        ("torch 2.9", "command line: 'torch 2.9' is not a requirement", "torch==2.9"),
        ("torch>>2", "command line: 'torch>>2' is not a requirement", None),
        ("", "command line: '' is not a requirement", None),
        ("https://example.org/page", "does not contain the package's name", "name @ https://example.org/page"),
        ("./gone-1.0-py3-none-any.whl", "file or directory ./gone-1.0-py3-none-any.whl does not exist", None),
        ("requirements.txt", "'requirements.txt' is the name of a file", "-r requirements.txt"),
        ("environment.yml", "'environment.yml' is the name of a file", "-r environment.yml"),
        ("plan.json", "'plan.json' is the name of a file", "-r FILE"),
        ("~nobody-of-that-name/x.whl", "file or directory ~nobody-of-that-name/x.whl does not exist", None),
        ("https://[::1/foo-1.tar.gz", "is not a URL", None),
        ("./notes.txt", "not a wheel, sdist", "-r ./notes.txt"),
        ("x @ git+git@h.org:o/x.git@v1", "git's short URL form", "`x @ git+ssh://git@h.org/o/x.git@v1`"),
        ("x @ ./a folder", "'x @ ./a folder' is not a requirement", "a%20folder': a space ends a URL"),
        ("./empty", "empty/pyproject.toml: the project cannot be read", None),
        ("nowhere/pyproject.toml", "nowhere/pyproject.toml: the project cannot be read", None),
    ],
)
def test_bad_arguments(argument: str, message: str, hint: str | None, in_folder: Path) -> None:
    (in_folder / "notes.txt").touch()
    (in_folder / "empty").mkdir()
    (in_folder / "a folder").mkdir()
    with pytest.raises(UsageError) as caught:
        read_requirements([argument])
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize("text", ["ruamel.yaml==0.18.6", "ruamel.yaml>=0.15", "ruamel.yaml", "some.json==1"])
def test_a_package_may_be_named_like_a_file(text: str, in_folder: Path) -> None:
    assert [str(need.requirement) for need in read_requirements([text]).needs] == [text]
    if "=" not in text:
        (in_folder / text).write_text("dependencies: []")
        with pytest.raises(UsageError, match="is the name of a file"):
            read_requirements([text])


def test_file_lines_and_origins() -> None:
    asked = from_text(
        "# the model\n"
        "\n"
        "torch>=2.4  # newest\n"
        "transformers[torch] \\\n"
        "    >=4 ; \\\n"
        "    python_version < '3.14'\n"
        "foo @ https://example.org/foo-1.tar.gz#sha256=ab\n"
        "numpy==2.1 \\\n"
        f"  --hash=sha256:{AA.upper()} \\\n"
        f"  --hash=sha256:{BB}\n"
    )
    assert [need.requirement for need in asked.needs] == [
        Requirement(text)
        for text in (
            "torch>=2.4",
            'transformers[torch]>=4; python_version < "3.14"',
            "foo @ https://example.org/foo-1.tar.gz#sha256=ab",
            "numpy==2.1",
        )
    ]
    assert [need.origin for need in asked.needs] == [f"requirements.txt line {n}" for n in (3, 4, 7, 8)]
    assert [need.hashes for need in asked.needs] == [(), (), (), (f"sha256:{AA}", f"sha256:{BB}")]
    assert asked.notes == ()


def test_options() -> None:
    asked = from_text(
        "-i https://a.example/simple\n"
        "--index-url=https://b.example/simple\n"
        "--extra-index-url https://c.example/simple\n"
        "--pre\n"
        "--no-index\n"
        "-f ./wheels\n"
        "--trusted-host b.example\n"
        "torch\n"
    )
    assert asked.index_urls == ("https://a.example/simple", "https://b.example/simple")
    assert asked.extra_index_urls == ("https://c.example/simple",)
    assert asked.prereleases
    assert asked.no_index
    assert asked.find_links == ()
    assert [note.split(" is ignored")[0] for note in asked.notes] == [
        "requirements.txt line 6: --find-links: ./wheels does not exist; it",
        "requirements.txt line 7: --trusted-host",
    ]


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + "tôrch-x\n".encode(),
        codecs.BOM_UTF16_LE + "# tôrch\ntorch\n".encode("utf-16-le"),
        codecs.BOM_UTF32_BE + "# tôrch\ntorch\n".encode("utf-32-be"),
        "# -*- coding: latin-1 -*-\n# tôrch\ntorch\n".encode("latin-1"),
        "# tôrch\r\ntorch\r\n".encode(),
    ],
    ids=["utf-8 mark", "utf-16 mark", "utf-32 mark", "coding comment", "crlf"],
)
def test_encodings(data: bytes) -> None:
    if data.startswith(codecs.BOM_UTF8):
        with pytest.raises(UsageError, match=r"requirements.txt line 1: 'tôrch-x' is not a requirement"):
            from_text(data)
    else:
        assert needs(from_text(data)) == ["torch"]


def test_nested_files_are_relative_to_the_file_that_names_them(in_folder: Path) -> None:
    (in_folder / "req").mkdir()
    (in_folder / "req" / "base.txt").write_text("numpy\n")
    (in_folder / "req" / "pins.txt").write_text("numpy<3\n-r more-pins.txt\n")
    (in_folder / "req" / "more-pins.txt").write_text("pillow<12\n")
    asked = from_text("-r base.txt\n-c pins.txt\ntorch\n", "req/gpu.txt")
    assert needs(asked) == ["numpy", "torch"]
    assert [(str(c.requirement), Path(c.origin).as_posix()) for c in asked.constraints] == [
        ("numpy<3", "req/pins.txt line 1"),
        ("pillow<12", "req/more-pins.txt line 1"),
    ]


def test_constraint_files(in_folder: Path) -> None:
    (in_folder / "pins.txt").write_text("numpy<3\n--extra-index-url https://c.example/simple\n")
    asked = read_requirements(["torch"], constraints=[Path("pins.txt")])
    assert needs(asked) == ["torch"]
    assert [str(c.requirement) for c in asked.constraints] == ["numpy<3"]
    assert asked.extra_index_urls == ("https://c.example/simple",)


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    asked = from_text("--index-url https://me:${TOKEN}@a.example/simple\ntorch # ${UNSET} in a comment is no matter\n")
    assert asked.index_urls == ("https://me:s3cret@a.example/simple",)


def test_a_file_may_be_named_twice_but_not_by_itself(in_folder: Path) -> None:
    (in_folder / "base.txt").write_text("numpy\n")
    assert needs(from_text("-r base.txt\n-r base.txt\n")) == ["numpy", "numpy"]
    (in_folder / "base.txt").write_text("-r requirements.txt\n")
    with pytest.raises(UsageError, match="includes itself"):
        from_text("-r base.txt\n")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"torch\n")))
    assert needs(read_requirements([], [Path("-")])) == ["torch"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch\nnumpy=1\n", "requirements.txt line 2: 'numpy=1' is not a requirement"),
        ("a \\\n\\\nb c\n", "requirements.txt line 1: 'a b c' is not a requirement"),
        ("--frobnicate\n", "requirements.txt line 1: --frobnicate is not an option of a requirement file"),
        ("--index-url\n", "requirements.txt line 1: --index-url has no value"),
        ("torch --hash='sha256:a\n", "requirements.txt line 1: --hash='sha256:a: No closing quotation"),
        ("-i https://${NO_SUCH_VARIABLE}/\n", "requirements.txt line 1: the environment variable NO_SUCH_VARIABLE"),
        ("-r gone.txt\n", "gone.txt: the file cannot be read: No such file or directory"),
        ("-r https://example.org/r.txt\n", "requirement files are read from disk"),
        ("-e ./gone\n", "requirements.txt line 1: file or directory ./gone does not exist"),
        (b"t\xf4rch\n", "requirements.txt: byte 1 is not utf-8 text"),
        (b"torch\0", "requirements.txt: the file is not text"),
        (b"# coding: klingon\n", "requirements.txt: unknown encoding klingon"),
        ("-c pins.txt\n", "pins.txt line 1: a constraint has no extras"),
        ("-c project.txt\n", "project.txt line 1: a project cannot be a constraint"),
    ],
)
def test_bad_lines(text: str | bytes, message: str, in_folder: Path) -> None:
    (in_folder / "pins.txt").write_text("torch[x]\n")
    (in_folder / "project.txt").write_text("-e .\n")
    with pytest.raises(UsageError) as caught:
        from_text(text)
    assert message in caught.value.message


PROJECT = """
[project]
name = "My.Project"
version = "1"
requires-python = ">=3.10"
dependencies = ["torch>=2.4", "numpy"]

[project.optional-dependencies]
Test_Kit = ["pytest"]
docs = ["sphinx; python_version > '3.10'"]
all = ["my-project[test-kit]", "my_project[docs] ; sys_platform == 'linux'"]

[dependency-groups]
lint = ["ruff"]
Dev = [{ include-group = "lint" }, "mypy", "my-project[docs]"]
broken = [{ include-group = "gone" }]
"""


@pytest.fixture
def project(in_folder: Path) -> Path:
    (in_folder / "app").mkdir()
    (in_folder / "app" / "pyproject.toml").write_text(PROJECT)
    return Path("app")


@pytest.mark.parametrize("written", ["./app", "app/", "app/pyproject.toml"])
def test_project_as_an_argument(project: Path, written: str) -> None:
    asked = read_requirements([written])
    assert needs(asked) == ["torch>=2.4", "numpy"]
    assert asked.requires_python == ">=3.10"
    assert Path(asked.needs[0].origin.split(" ")[0]) == project / "pyproject.toml"
    assert asked.needs[0].origin.endswith("[project]")
    assert "not the project itself" in asked.notes[0]


def test_extras_and_groups(project: Path) -> None:
    base = ["torch>=2.4", "numpy"]
    linux_docs = 'sphinx; python_version > "3.10" and sys_platform == "linux"'
    assert needs(read_requirements(["./app[test-kit]"])) == [*base, "pytest"]
    assert needs(read_requirements([], projects=[project], extras=["all"])) == [*base, "pytest", linux_docs]
    dev = read_requirements([], projects=[project], groups=["dev"])
    assert needs(dev) == [*base, "ruff", "mypy", 'sphinx; python_version > "3.10"']
    assert dev.needs[2].origin.endswith("[dependency-groups] dev")


def test_editable_project_in_a_file(project: Path) -> None:
    assert needs(from_text("-e ./app[docs]\nscipy\n")) == [
        "torch>=2.4",
        "numpy",
        'sphinx; python_version > "3.10"',
        "scipy",
    ]
    assert needs(from_text("./app\n")) == ["torch>=2.4", "numpy"]
    assert needs(read_requirements([], [project / "pyproject.toml"])) == ["torch>=2.4", "numpy"]


def test_projects_share_extras_and_pythons(project: Path, in_folder: Path) -> None:
    (in_folder / "lib").mkdir()
    (in_folder / "lib" / "pyproject.toml").write_text(
        '[project]\nname = "lib"\nrequires-python = "<3.14"\ndependencies = ["scipy"]\n'
    )
    asked = read_requirements(["./lib"], projects=[project], extras=["docs"])
    assert [need.requirement.name for need in asked.needs] == ["torch", "numpy", "sphinx", "scipy"]
    assert asked.requires_python == "<3.14,>=3.10"


def test_dynamic_fields_are_noted(in_folder: Path) -> None:
    (in_folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndynamic = ["version", "dependencies", "optional-dependencies"]\n'
    )
    asked = read_requirements([".[gpu]"])
    assert asked.needs == ()
    assert any("dependencies is dynamic" in note for note in asked.notes)
    assert any("optional-dependencies is dynamic" in note for note in asked.notes)
    assert not any(": version is dynamic" in note for note in asked.notes)


def test_groups_need_no_project_table(in_folder: Path) -> None:
    (in_folder / "pyproject.toml").write_text('[dependency-groups]\ngpu = ["torch"]\n')
    assert needs(read_requirements([], projects=[in_folder], groups=["gpu"])) == ["torch"]


@pytest.mark.parametrize(
    ("text", "kwargs", "message"),
    [
        ("[tool.poetry]\n", {}, "neither a [project] table nor [dependency-groups]"),
        ("[project\n", {}, "pyproject.toml: "),
        ('[project]\ndependencies = "torch"\n', {}, "Expected `array`, got `str` - at `$.project.dependencies`"),
        ('[project]\ndependencies = ["torch=2"]\n', {}, "[project]: 'torch=2' is not a requirement"),
        ('[project]\nrequires-python = "3"\n', {}, "[project] requires-python: '3' is not a version specifier"),
        (PROJECT, {"extras": ["tests"]}, "command line: no project has an extra 'tests'"),
        (PROJECT, {"groups": ["docs"]}, "command line: no project has a dependency group 'docs'"),
        (PROJECT, {"groups": ["broken"]}, "[dependency-groups] broken: "),
        ('[dependency-groups]\na = [{include-group = "a"}]\n', {"groups": ["a"]}, "includes itself"),
        ('[dependency-groups]\na = ["torch=2"]\n', {"groups": ["a"]}, "[dependency-groups] a: "),
    ],
)
def test_bad_projects(text: str, kwargs: dict[str, list[str]], message: str, in_folder: Path) -> None:
    (in_folder / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_requirements([], projects=[Path("pyproject.toml")], **kwargs)  # type: ignore[arg-type]
    assert message in caught.value.message


def test_an_unknown_extra_gets_the_known_ones(project: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_requirements(["./app[tests]"])
    assert caught.value.hint == "extras there: all, docs, test-kit"


names = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True)
versions = st.from_regex(r"(0|[1-9][0-9]?)(\.(0|[1-9][0-9]?)){0,2}", fullmatch=True)
clauses = st.tuples(st.sampled_from(["==", ">=", "<=", "<", ">", "!="]), versions).map("".join)
requirements = st.builds(
    lambda name, extras, specifier, marker: (
        name + (f"[{','.join(extras)}]" if extras else "") + ",".join(specifier) + (f" ; {marker}" if marker else "")
    ),
    names,
    st.lists(names, max_size=2, unique=True),
    st.lists(clauses, max_size=3, unique=True),
    st.sampled_from(["", "python_version < '3.13'", 'sys_platform == "linux" and extra != "x"']),
)


@given(st.lists(requirements, max_size=6))
def test_requirements_survive_a_file(tmp_path_factory: pytest.TempPathFactory, written: list[str]) -> None:
    path = tmp_path_factory.mktemp("round") / "r.txt"
    path.write_text("".join(f"{line}  # why\n" for line in written))
    once = read_requirements([], [path])
    assert [need.requirement for need in once.needs] == [Requirement(line) for line in written]
    path.write_text("\n".join(needs(once)))
    assert [need.requirement for need in read_requirements([], [path]).needs] == [n.requirement for n in once.needs]

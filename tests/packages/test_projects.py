"""What the tables of uv, Poetry and PDM add to a project: followed, or noted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from envsolve.errors import UsageError
from envsolve.packages.project_files import load_project
from envsolve.packages.projects import ask_project
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.requirements import Asked

PROJECT = """\
[project]
name = "demo"
version = "1"
dependencies = ["torch"]
[project.optional-dependencies]
cpu = ["torch"]
gpu = ["torch"]
"""
UV = """\
[tool.uv]
constraint-dependencies = ["numpy<2"]
override-dependencies = ["numpy==1.26"]
exclude-newer = "2026-01-01T00:00:00Z"
conflicts = [[{ extra = "cpu" }, { extra = "gpu" }]]
dev-dependencies = ["pytest"]
[tool.uv.sources]
torch = [{ index = "gpu", extra = "gpu" }, { index = "cpu", extra = "cpu" }]
other = { git = "https://git.test/other" }
[[tool.uv.index]]
name = "gpu"
url = "https://download.pytorch.org/whl/cu124"
explicit = true
[[tool.uv.index]]
name = "cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
url = "https://more.test/simple"
[[tool.uv.index]]
url = "https://main.test/simple"
default = true
"""


def read(folder: Path, text: str, extras: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> Asked:
    (folder / "pyproject.toml").write_text(PROJECT + text)
    return ask_project(load_project(folder), extras, groups)


def test_the_tables_of_uv(tmp_path: Path) -> None:
    asked = read(tmp_path, UV, ("gpu",), ("dev",))
    assert [str(one.requirement) for one in asked.constraints] == ["numpy<2"]
    assert (asked.index_urls, asked.extra_index_urls) == (("https://main.test/simple",), ("https://more.test/simple",))
    (source,) = asked.sources
    assert (source.package, source.url) == ("torch", "https://download.pytorch.org/whl/cu124")
    assert source.origin == f"{tmp_path / 'pyproject.toml'} line 19"
    assert [str(one.requirement) for one in asked.needs] == ["torch", "torch", "pytest"]
    assert asked.exclude_newer == "2026-01-01T00:00:00Z"
    assert [str(one.requirement) for one in asked.overrides] == ["numpy==1.26"]


def test_extras_that_uv_declares_as_conflicts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="extra cpu and extra gpu are declared as conflicts"):
        read(tmp_path, UV, ("cpu", "gpu"))


def test_the_sources_of_poetry_and_pdm(tmp_path: Path) -> None:
    asked = read(
        tmp_path,
        '[[tool.poetry.source]]\nname = "t"\nurl = "https://download.pytorch.org/whl/cu118"\npriority = "explicit"\n'
        '[[tool.pdm.source]]\nname = "pypi"\nurl = "https://main.test/simple"\n'
        '[[tool.pdm.source]]\nname = "own"\nurl = "https://own.test/simple"\n',
    )
    assert [(one.package, one.url[-5:]) for one in asked.sources] == [("torch", "cu118")]
    assert (asked.index_urls, asked.extra_index_urls) == (("https://main.test/simple",), ("https://own.test/simple",))


def test_tables_that_are_not_read_are_noted(tmp_path: Path) -> None:
    asked = read(tmp_path, '[tool.pixi.dependencies]\npytorch = "*"\n[tool.conda-lock]\nx = 1\n')
    assert [note.rpartition("[tool.")[2].partition("]")[0] for note in asked.notes[1:]] == ["pixi", "conda-lock"]
    assert "'soon' is not a date" in read(tmp_path, '[tool.uv]\nexclude-newer = "soon"\n').notes[1]


@pytest.mark.parametrize(
    ("text", "days"),
    [("1 week", 7), ("30 days", 30), ("2 weeks, 1 day ago", 15), ("48 hours", 2), ("P7D", 7), ("P1WT24H", 8)],
)
def test_a_span_of_time_before_now(tmp_path: Path, text: str, days: int) -> None:
    before = datetime.now(timezone.utc).date()
    found = read(tmp_path, f'[tool.uv]\nexclude-newer = "{text}"\n').exclude_newer
    # At midnight the day may change between the two.
    assert found in {str(day - timedelta(days=days)) for day in (before, datetime.now(timezone.utc).date())}


def test_environments_and_pre_releases_of_uv(tmp_path: Path) -> None:
    asked = read(tmp_path, "[tool.uv]\nprerelease = 'allow'\nenvironments = [\"sys_platform == 'win32'\"]\n")
    assert asked.prereleases
    [(marker, place)] = asked.environments
    assert str(marker) == 'sys_platform == "win32"' and place.endswith("[tool.uv] environments")
    with pytest.raises(UsageError, match="'linux' is not a marker"):
        read(tmp_path, "[tool.uv]\nenvironments = ['linux']\n")


def test_environments_of_hatch_and_groups_of_pdm(tmp_path: Path) -> None:
    text = '[tool.hatch.envs.gpu]\ndependencies = ["numpy"]\nfeatures = ["gpu"]\n'
    asked = read(tmp_path, text + '[tool.pdm.dev-dependencies]\ntest = ["pytest"]\n', (), ("gpu", "test"))
    assert [str(one.requirement) for one in asked.needs] == ["torch", "numpy", "torch", "pytest"]


def test_environments_of_hatch_inherit_and_name_what_is_not_read(tmp_path: Path) -> None:
    text = """
[tool.hatch.envs.default]
dependencies = ["numpy"]
[tool.hatch.envs.base]
dependencies = ["pandas"]
[tool.hatch.envs.gpu]
extra-dependencies = ["pytest"]
[tool.hatch.envs.test]
template = "base"
[[tool.hatch.envs.test.matrix]]
python = ["3.11", "3.12"]
[tool.hatch.envs.alone]
detached = true
dependencies = ["ruff"]
"""
    needs, noted = {}, []
    for group in ("gpu", "test", "alone"):
        asked = read(tmp_path, text, (), (group,))
        needs[group] = [str(one.requirement) for one in asked.needs][1:]
        noted += [group for note in asked.notes if "[tool.hatch.envs.test] matrix is ignored" in note]
    assert needs == {"gpu": ["numpy", "pytest"], "test": ["pandas"], "alone": ["ruff"]}
    assert noted == ["test"]


POETRY = """\
[tool.poetry]
name = "demo"
[tool.poetry.dependencies]
python = "^3.10"
torch = { version = "^2.4", source = "gpu" }
numpy = [{ version = "<2", python = "<3.12" }, { version = ">=2", markers = "python_version >= '3.12'" }]
zero = "^0.2.3"
tilde = "~1.2"
wild = "1.*"
exact = { version = "1.0", extras = ["a", "b"], platform = "linux" }
either = ">=1,<2 || >=3"
tree = { git = "https://git.test/tree", tag = "v1" }
more = { version = "*", optional = true }
less = "*"
[tool.poetry.extras]
all = ["more"]
part = ["less"]
[tool.poetry.group.test.dependencies]
pytest = ">=7 <9"
[[tool.poetry.source]]
name = "gpu"
url = "https://download.pytorch.org/whl/cu124"
priority = "explicit"
"""


def test_a_project_with_dependencies_of_poetry(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(POETRY)
    asked = ask_project(load_project(tmp_path), ("all",), ("test",))
    assert [str(one.requirement).replace("tree@ ", "tree @ ") for one in asked.needs] == [
        "torch<3,>=2.4",
        'numpy<2; python_version < "3.12"',
        'numpy>=2; python_version >= "3.12"',
        "zero<0.3,>=0.2.3",
        "tilde<1.3,>=1.2",
        "wild==1.*",
        'exact[a,b]==1.0; sys_platform == "linux"',
        "either",
        "tree @ git+https://git.test/tree@v1",
        "more",
        "pytest<9,>=7",
    ]
    assert "less" in [str(one.requirement) for one in ask_project(load_project(tmp_path), ("part",), ()).needs]
    assert asked.requires_python == "<4,>=3.10"
    assert [(one.package, one.url[-5:]) for one in asked.sources] == [("torch", "cu124")]
    assert any("'>=1,<2 || >=3' cannot be written as a PEP 508" in note for note in asked.notes)


def test_a_setup_cfg(tmp_path: Path) -> None:
    file = tmp_path / "setup.cfg"
    file.write_text(
        "[metadata]\nname = demo\n[options]\npython_requires = >=3.9\ninstall_requires =\n    torch>=2\n    # why\n"
        "    numpy; python_version < '3.13'\n[options.extras_require]\ntest =\n    pytest\n"
    )
    asked = read_requirements((), [file])
    assert [str(one.requirement) for one in asked.needs] == ["torch>=2", 'numpy; python_version < "3.13"']
    assert asked.requires_python == ">=3.9"
    assert len(read_requirements([f"{file}[test]"]).needs) == 3
    file.write_text("[options]\ninstall_requires = file: requirements.txt\n")
    assert any("dependencies is dynamic" in note for note in read_requirements((), [file]).notes)
    (tmp_path / "requirements.txt").write_text("torch\n")
    assert [str(one.requirement) for one in read_requirements((), [file]).needs] == ["torch"]


def test_dependencies_in_a_file_that_the_build_reads(tmp_path: Path) -> None:
    tables = '[project]\nname = "demo"\ndynamic = ["dependencies"]\n'
    files = '[tool.setuptools.dynamic]\ndependencies = {file = ["needs.txt"]}\n'
    (tmp_path / "pyproject.toml").write_text(tables + files)
    (tmp_path / "needs.txt").write_text("torch>=2  # why\nnumpy\n")
    asked = read_requirements([f"{tmp_path}"])
    assert [str(one.requirement) for one in asked.needs] == ["torch>=2", "numpy"]
    assert not any("dynamic" in note for note in asked.notes)


def test_dependencies_that_only_the_build_knows_make_the_project_a_tree(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "demo"\ndynamic = ["dependencies"]\n')
    (tmp_path / "setup.py").write_text("setup(install_requires=['torch'])")
    assert str(read_requirements([f"{tmp_path}"]).needs[0].requirement).startswith("demo @ file://")


def test_a_table_of_another_shape(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid for its tool"):
        read(tmp_path, "[tool.uv]\nsources = 3\n")


def project(folder: Path, name: str, needs: str, tables: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = f'[project]\nname = "{name}"\nversion = "1"\ndependencies = [{needs}]\n{tables}'
    (folder / "pyproject.toml").write_text(text)
    return folder


def needs_of(folder: Path) -> list[str]:
    return [str(one.requirement) for one in ask_project(load_project(folder), (), ()).needs]


def same(*needs: str) -> list[str]:
    """As packaging writes them, which differs between its releases."""
    return [str(Requirement(need)) for need in needs]


def test_what_uv_takes_from_a_path_git_or_a_url_comes_from_there(tmp_path: Path) -> None:
    local = project(tmp_path / "sd-scripts", "library", "")
    tables = (
        '[tool.uv.sources]\nlibrary = { path = "sd-scripts", editable = true }\n'
        'Clip = { git = "https://git.test/clip", tag = "v1", subdirectory = "py" }\n'
        'wheel = { url = "https://files.test/wheel-1-py3-none-any.whl" }\n'
    )
    project(tmp_path, "p", '"library[gpu]>=1", "clip; python_version > \'3\'", "wheel", "plain<2"', tables)
    assert needs_of(tmp_path) == same(
        f"library[gpu]@ {local.as_uri()}",
        'clip@ git+https://git.test/clip@v1#subdirectory=py ; python_version > "3"',
        "wheel@ https://files.test/wheel-1-py3-none-any.whl",
        "plain<2",
    )


def test_a_source_under_a_marker_leaves_the_index_for_the_rest(tmp_path: Path) -> None:
    source = '[tool.uv.sources]\na = { url = "https://files.test/a-1.zip", marker = "sys_platform == \'linux\'" }\n'
    project(tmp_path, "p", '"a>=1"', source)
    assert needs_of(tmp_path) == same('a@ https://files.test/a-1.zip ; sys_platform == "linux"', "a>=1")


def test_members_of_a_workspace_come_from_their_directories_with_their_own_sources(tmp_path: Path) -> None:
    tables = '[tool.uv.workspace]\nmembers = ["libs/*"]\n[tool.uv.sources]\ncore = { workspace = true }\n'
    project(tmp_path, "root", '"app"', tables + "app = { workspace = true }\n")
    app = project(tmp_path / "libs" / "app", "app", '"core", "numpy"')
    core = project(tmp_path / "libs" / "core", "core", '"app"')
    assert needs_of(tmp_path) == same(f"app@ {app.as_uri()}", f"core@ {core.as_uri()}", f"app@ {app.as_uri()}")
    among = [f"core@ {core.as_uri()}"]
    # From within, the table of the root counts, too.
    assert needs_of(app) == same(*[f"core@ {core.as_uri()}", f"app@ {app.as_uri()}"], *among, "numpy")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('{ path = "gone" }', "does not exist"),
        ("{ workspace = true }", "no member of the workspace is named library"),
        ('{ index = "own" }', "unknown index own"),
        ('{ elsewhere = "x" }', "a source with elsewhere is not known"),
    ],
)
def test_a_source_that_leads_nowhere_is_refused(tmp_path: Path, source: str, said: str) -> None:
    project(tmp_path, "p", '"library"', f"[tool.uv.sources]\nlibrary = {source}\n")
    with pytest.raises(UsageError, match=said):
        needs_of(tmp_path)


def test_an_index_that_a_source_names_is_the_only_one_of_its_package(tmp_path: Path) -> None:
    index = '[[tool.uv.index]]\nname = "own"\nurl = "https://own.test/simple"\nexplicit = true\n'
    project(tmp_path, "p", '"library"', f'[tool.uv.sources]\nlibrary = {{ index = "own" }}\n{index}')
    assert ask_project(load_project(tmp_path), (), ()).indexes == (("library", "https://own.test/simple"),)


def test_overrides_and_prereleases_of_uv_and_pdm(tmp_path: Path) -> None:
    asked = read(tmp_path, '[tool.uv]\nprerelease = "allow"\n[tool.pdm.resolution.overrides]\na = "1.5"\nb = ">=2"\n')
    assert asked.prereleases
    assert [str(one.requirement) for one in asked.overrides] == ["a==1.5", "b>=2"]

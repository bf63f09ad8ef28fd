"""The order of the rooms, as docs/architecture.md gives it, and what may not be in a committed file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pip._internal.models.index import PyPI, TestPyPI

from envsolve._default_index import DEFAULT_INDEX
from tests.shape import Shape, complexity, modules, parameters, statements

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "envsolve"
MODULES = sorted(PACKAGE.rglob("*.py"))
# The address of the default index, generated at build, and the package's face.
OUTSIDE = ("_default_index", "__init__", "__main__")
MOST_LINES = 400
# A home folder, bar the one that examples speak of; a root user's has no name to tell.
HOME = re.compile(rb"/(?:home|Users)/(?!me/)[\w.-]+/")


def rooms() -> list[str]:
    """The rooms, from the ground floor to the roof."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `(\w+)(?:/|\.py)` \|", page, re.MULTILINE)


def room_of(module: str) -> str:
    return module.split(".")[1]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ours, those within functions and under TYPE_CHECKING included."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute, so that the order can be read off them"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "envsolve" and "." in name)


def upward(module: str, nodes: Iterable[ast.AST], order: list[str]) -> list[str]:
    """Imports of a module that lead to a room above its own."""
    here = order.index(room_of(module))
    return [
        f"{module}:{line} imports {name}"
        for line, name in imports(nodes)
        if room_of(name) in order and order.index(room_of(name)) > here
    ]


def committed() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("only a git checkout knows which files are committed")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = (ROOT / name.decode() for name in listed.split(b"\0") if name)
    return [path for path in paths if path.is_file()]  # one that is deleted and not committed yet is no matter


def test_every_room_is_in_the_table_once() -> None:
    found = {room_of(name_of(path)) for path in MODULES} - set(OUTSIDE)
    assert sorted(rooms()) == sorted(found)


def test_a_room_imports_only_rooms_below_it() -> None:
    order = rooms()
    inside = [(name_of(one.path), one.statements) for one in modules() if room_of(name_of(one.path)) not in OUTSIDE]
    assert [line for name, nodes in inside for line in upward(name, nodes, order)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import envsolve.cli.main",
        "from envsolve import cli",
        "from envsolve.cli.main import run",
        "def late():\n    from envsolve.cli import main",
        "class Late:\n    def late(self):\n        with a:\n            from envsolve.cli import main",
        "try:\n    pass\nexcept E:\n    from envsolve.cli import main",
        "match a:\n    case 1:\n        from envsolve.cli import main",
        "for a in b:\n    pass\nelse:\n    from envsolve.cli import main",
        "try:\n    pass\nfinally:\n    import envsolve.cli.main",
        "if TYPE_CHECKING:\n    from envsolve.cli import main",
    ],
)
def test_an_import_upward_is_seen_wherever_it_hides(source: str) -> None:
    nodes = list(statements(ast.parse(source)))
    assert len(upward("envsolve.machine.model", nodes, ["machine", "cli"])) == 1
    assert upward("envsolve.cli.main", nodes, ["machine", "cli"]) == []


def test_no_module_grows_long() -> None:
    modules = [*MODULES, *(ROOT / "tests").rglob("*.py")]
    assert [path for path in modules if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES] == []


def test_the_code_keeps_its_shape() -> None:
    """Later features may add to the totals, not to these."""
    shape = Shape()
    functions = [(f"{module.name}.{f.name}", f) for module in shape.modules for f in module.functions()]
    assert [name for name, function in functions if complexity(function) > 20] == []
    outside = [(name, function) for name, function in functions if not name.startswith("envsolve.cli.")]
    assert [name for name, function in outside if parameters(function) > 8] == []
    assert len(shape.single_users) <= 40
    assert len(shape.reach("envsolve.planning.make")) <= 60
    assert len(shape.reach("envsolve.cli.plan")) <= 150


def test_no_committed_file_names_the_hosts_of_the_default_index() -> None:
    hosts = {urlsplit(DEFAULT_INDEX).netloc}
    for index in (PyPI, TestPyPI):
        hosts |= {index.netloc, index.file_storage_domain}
    named = re.compile(b"|".join(re.escape(host.encode()) for host in sorted(hosts)))
    assert [path for path in committed() if named.search(path.read_bytes())] == []


def test_no_committed_file_holds_a_path_of_the_machine_that_it_was_written_on() -> None:
    here = f"{ROOT}/".encode()
    assert [path for path in committed() if here in (text := path.read_bytes()) or HOME.search(text)] == []

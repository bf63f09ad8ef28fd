"""A ``pyproject.toml`` as it lies on disk: its ``[project]``, groups and tables of tools."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.packages.model import CoreMetadata, of_extra, read_version, requirement_text, specifier_text
from envsolve.packages.project_tools import declared
from envsolve.packages.requirements import wrong
from envsolve.system.files import is_folder, read_regular

#: A file that is read as a project, beside ``pyproject.toml``.
SETUP_CFG = "setup.cfg"


class ProjectTable(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of ``[project]`` that decides a plan."""

    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    dynamic: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    project: ProjectTable | None = None
    # Its members are checked by packaging, whose messages name the group.
    dependency_groups: dict[str, list[Any]] = {}
    tool: dict[str, Any] = {}


class Project(msgspec.Struct, frozen=True):
    """A ``pyproject.toml`` that was read, with the path as it was given; each table may be empty.

    Attributes:
        tool: Its ``[tool]`` table.
        text: The whole file.
        notes: What of its tool's tables is set aside.
    """

    path: Path
    table: ProjectTable
    groups: dict[str, list[Any]]
    tool: dict[str, Any] = {}
    text: str = ""
    notes: tuple[str, ...] = ()

    @property
    def extras(self) -> dict[str, tuple[str, ...]]:
        """The optional dependencies by normalised extra."""
        return {canonicalize_name(name): lines for name, lines in self.table.optional_dependencies.items()}

    @property
    def group_names(self) -> frozenset[str]:
        """The normalised names of its dependency groups."""
        return frozenset(canonicalize_name(name) for name in self.groups)


def load_project(path: Path, origin: str | None = None) -> Project:
    """Read a ``pyproject.toml``, or that of a directory, or a ``setup.cfg``.

    Args:
        path: The file or the directory.
        origin: Where the path was named, for messages.

    Raises:
        UsageError: The file is missing, or it does not describe dependencies.
    """
    path = path / "pyproject.toml" if is_folder(path) else path
    try:
        text = read_regular(path).decode("utf-8-sig")
        if path.name == SETUP_CFG:
            return _setup_cfg(path, text)
        file = msgspec.toml.decode(text, type=_File)
    except OSError as error:
        hint = "name a directory with a pyproject.toml, or that file; `NAME @ FOLDER` builds what is in a directory"
        what = f"the project cannot be read: {error.strerror}"
        raise wrong(f"{origin}: {path}" if origin else str(path), what, hint) from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # a number of 5,000 digits, 2,000 brackets
        raise wrong(str(path), str(error)) from None
    project, groups = file.project, dict(file.dependency_groups)
    try:
        found = declared(file.tool, file.project.name or "" if file.project else "")
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise misshapen(path, error) from None
    groups = {**found.groups, **groups}
    if found.dependencies is not None and (project is None or not project.dependencies):
        # Poetry 2 reads [project] and takes only sources from its own table; before, there was only its own table.
        project = replace(
            project or ProjectTable(),
            dependencies=found.dependencies,
            requires_python=project.requires_python if project and project.requires_python else found.requires_python,
            optional_dependencies={**found.extras, **(project.optional_dependencies if project else {})},
            dynamic=(),
        )
    if isinstance(old := file.tool.get("uv", {}).get("dev-dependencies"), list):
        groups["dev"] = [*groups.get("dev", []), *old]
    if project is None and not groups:
        what = "the file has neither a [project] table nor [dependency-groups]"
        raise wrong(str(path), what, "name its dependencies in a requirements file and give that with -r")
    return Project(path, project or ProjectTable(), groups, file.tool, text, found.notes)


def _setup_cfg(path: Path, text: str) -> Project:
    """The declarative metadata of setuptools; what it reads from other files (``file:``) is dynamic."""
    import configparser  # late: few projects still have this file alone

    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text, str(path))
    except configparser.Error as error:
        raise wrong(str(path), str(error).splitlines()[0]) from None

    def lines(section: str, option: str) -> tuple[str, ...]:
        value = parser.get(section, option, fallback="")
        return tuple(line for line in map(str.strip, value.splitlines()) if line and not line.startswith("#"))

    needs = lines("options", "install_requires")
    dynamic = any(line.startswith(("file:", "attr:")) for line in needs)
    named = parser.options("options.extras_require") if parser.has_section("options.extras_require") else ()
    table = ProjectTable(
        name=parser.get("metadata", "name", fallback=None),
        requires_python=parser.get("options", "python_requires", fallback=None),
        dependencies=() if dynamic else needs,
        optional_dependencies={name: lines("options.extras_require", name) for name in named},
        dynamic=("dependencies",) if dynamic else (),
    )
    if not (needs or named):
        raise wrong(str(path), "it has no install_requires", "build the project: 'NAME @ ./DIRECTORY'")
    return Project(path, table, {}, text=text)


def misshapen(path: Path, error: Exception) -> UsageError:
    """The error for a table that its tool would refuse."""
    what = f"a [tool] table is not as its tool takes it ({type(error).__name__}: {error})"
    return wrong(str(path), what, "let the tool check it: uv lock, pdm lock, poetry check")


# What a ``setup.cfg`` or ``setup.py`` states of a project; nothing of it is run.
#
# Many projects of researchers have only a ``setup.py`` with a literal list of requirements. pip and uv run it. Reading
# the list is enough to choose versions; the build may still say something else, so nothing that is read here is exact.


Read = Callable[[str], bytes | None]
_MOST = 10_000  # items of a list, characters of a text


class SetupFields(msgspec.Struct, frozen=True):
    """The fields of a project that could be read; None for those that only the build knows.

    Attributes:
        requires: ``install_requires``; empty if it is certain that there are none.
        extras: ``extras_require``, by extra.
    """

    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    requires: tuple[str, ...] | None = None
    extras: Mapping[str, tuple[str, ...]] = {}


def setup_fields(read: Read) -> SetupFields:
    """The fields of a project, those of the call of ``setup`` in ``setup.py`` before those of ``setup.cfg``.

    Args:
        read: Gives the content of a file of the project by its path; None if it is not there.
    """
    options = _of_setup_cfg(_text(read("setup.cfg")))
    stated = _Script(_text(read("setup.py"))).keywords
    if stated is None:
        return options

    name, version = stated.get("name", options.name), stated.get("version", options.version)
    python, extras = (
        stated.get("python_requires", options.requires_python),
        stated.get("extras_require", options.extras),
    )
    return SetupFields(
        name if isinstance(name, str) else None,
        version if isinstance(version, str) else None,
        python if isinstance(python, str) else None,
        _lines(stated.get("install_requires", options.requires or ())),
        {key: lines for key, own in extras.items() if isinstance(key, str) and (lines := _lines(own)) is not None}
        if isinstance(extras, Mapping)
        else {},
    )


def stated(name: str, read: Read) -> CoreMetadata:
    """The metadata of a project as far as its files state it, never exact.

    Args:
        name: The package that was asked for.
        read: As for :func:`setup_fields`.
    """
    fields = setup_fields(read)
    lines = [*(fields.requires or ())]
    for extra, more in fields.extras.items():
        lines += [of_extra(line, extra) for line in more]
    return CoreMetadata(
        name,
        fields.version if fields.version and read_version(fields.version) else "",
        tuple(text for text in map(requirement_text, lines) if text),
        specifier_text(fields.requires_python),
        tuple(fields.extras),
        exact=False,
    )


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", "replace")


def _lines(value: object) -> tuple[str, ...] | None:
    """Requirement lines; None if one of them is not a text."""
    some = value.splitlines() if isinstance(value, str) else value
    if not isinstance(some, list | tuple | set) or not all(isinstance(line, str) for line in some):
        return None
    return tuple(line.strip() for line in some if line.strip() and not line.strip().startswith("#"))


def _of_setup_cfg(text: str) -> SetupFields:
    import configparser  # late, as above

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return SetupFields()
    requires = parser.get("options", "install_requires", fallback=None)
    extras = parser["options.extras_require"] if parser.has_section("options.extras_require") else {}
    version = parser.get("metadata", "version", fallback=None)
    return SetupFields(
        parser.get("metadata", "name", fallback=None),
        None if version is None or version.startswith(("attr:", "file:")) else version,
        parser.get("options", "python_requires", fallback=None),
        # `file:` names a file that the build reads.
        None if requires is None or requires.startswith("file:") else _lines(requires),
        {name: lines for name, own in extras.items() if (lines := _lines(own)) is not None},
    )


class _UnknownError(Exception):
    """An expression is not made of literals alone."""


class _Script:
    """The statements of a ``setup.py`` as far as they are literals, lists that grow, and the call of ``setup``.

    Attributes:
        keywords: Those of the call, less what could not be read; an unknown value is None. None without a call.
    """

    def __init__(self, text: str) -> None:
        self.keywords: dict[str, object] | None = None
        self._values: dict[str, object] = {}
        try:
            for statement in ast.parse(text).body:
                self._follow(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.keywords = None

    def _follow(self, statement: ast.stmt) -> None:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and _called(call) == "setup":
            self.keywords = dict(self._arguments(call))
        elif isinstance(statement, ast.If) and _is_main(statement.test):
            for inner in statement.body:
                self._follow(inner)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            return
        elif isinstance(statement, ast.Assign) and all(isinstance(one, ast.Name) for one in statement.targets):
            value = self._value_or_none(statement.value)
            self._values |= {one.id: value for one in statement.targets if isinstance(one, ast.Name)}
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            together = ast.BinOp(ast.Name(statement.target.id, ast.Load()), ast.Add(), statement.value)
            is_sum = isinstance(statement.op, ast.Add)
            self._values[statement.target.id] = self._value_or_none(together) if is_sum else None
        elif not (isinstance(call, ast.Call) and self._grows(call)):
            self._forget(statement)

    def _grows(self, call: ast.Call) -> bool:
        """Follow ``names.append(x)`` and ``names.extend(y)``, also of a list in a dictionary."""
        method = call.func
        if not isinstance(method, ast.Attribute) or method.attr not in ("append", "extend") or len(call.args) != 1:
            return False
        try:
            grown, more = self._value(method.value), self._value(call.args[0])
        except _UnknownError:
            return False
        if not isinstance(grown, list):
            return False
        many = list(more) if method.attr == "extend" and isinstance(more, list) else [more]
        grown.extend(many if len(grown) + len(many) <= _MOST else [None])  # more than that is never a list of lines
        return True

    def _forget(self, statement: ast.stmt) -> None:
        """Take what a statement of another kind may change, as in an ``if``, for unknown."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _called(node) == "setup":
                self.keywords = dict.fromkeys([*(name for name, _ in self._arguments(node)), "install_requires"])
        # A loop that only prints a name is not told from one that changes it.
        named = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        self._values |= dict.fromkeys(named)

    def _arguments(self, call: ast.Call) -> Iterator[tuple[str, object]]:
        for keyword in call.keywords:
            value = self._value_or_none(keyword.value)
            if keyword.arg is not None:
                yield keyword.arg, value
            elif isinstance(value, dict):
                yield from ((key, own) for key, own in value.items() if isinstance(key, str))
            else:
                yield "install_requires", None

    def _value_or_none(self, node: ast.expr) -> object:
        try:
            return self._value(node)
        except _UnknownError:
            return None

    def _value(self, node: ast.expr) -> object:
        """The value of an expression of literals, names of such, sums, items and ``dict(...)``."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and self._values.get(node.id) is not None:
            return self._values[node.id]
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [item for one in node.elts for item in self._items(one)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._sum(self._value(node.left), self._value(node.right))
        return self._of_dict(node)

    def _of_dict(self, node: ast.expr) -> object:
        if isinstance(node, ast.Dict):
            keys = [None if key is None else self._value(key) for key in node.keys]
            if not all(isinstance(key, str) for key in keys):
                raise _UnknownError
            # An extra that only the build knows leaves the others readable.
            return {key: self._value_or_none(value) for key, value in zip(keys, node.values, strict=True)}
        if isinstance(node, ast.Subscript):
            whole, key = self._value(node.value), self._value(node.slice)
            if isinstance(whole, dict) and isinstance(key, str) and whole.get(key) is not None:
                return whole[key]
        if isinstance(node, ast.Call) and _called(node) in ("dict", "list"):
            return self._made(node)
        raise _UnknownError

    @staticmethod
    def _sum(left: object, right: object) -> object:
        """A sum of texts or lists, within limits: a file may double a list again and again."""
        if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) <= _MOST:
            return left + right
        if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) <= _MOST:
            return left + right
        raise _UnknownError

    def _made(self, call: ast.Call) -> object:
        if _called(call) == "dict" and not call.args:
            return dict(self._arguments(call))
        if _called(call) == "list" and len(call.args) == 1:
            return self._value(call.args[0])
        raise _UnknownError

    def _items(self, node: ast.expr) -> list[object]:
        if not isinstance(node, ast.Starred):
            return [self._value(node)]
        value = self._value(node.value)
        if not isinstance(value, list):
            raise _UnknownError
        return value


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))

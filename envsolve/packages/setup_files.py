"""Statements of a project's ``setup.py``, ``setup.cfg`` and files of dynamic fields; nothing of it is run."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from envsolve.packages.model import CoreMetadata, ProjectTable, of_extra, read_version, requirement_text, specifier_text
from envsolve.packages.requirements import Read, lines_of_files, text_of
from envsolve.system.files import without_warnings

# Fields that are dynamic and that the build takes from requirements files, as setuptools and hatch-requirements-txt do.


def dependency_files(tool: Mapping[str, Any], read: Read) -> tuple[tuple[str, ...] | None, dict[str, tuple[str, ...]]]:
    """The dependencies that the files named in ``[tool]`` list, and those of extras; None if not all can be read."""
    dynamic = _at(tool, "setuptools", "dynamic")
    hook = _at(tool, "hatch", "metadata", "hooks", "requirements_txt")
    found = lines_of_files(_at(dynamic, "dependencies").get("file") or hook.get("files") or hook.get("filename"), read)
    named = {k: one.get("file") for k, one in _at(dynamic, "optional-dependencies").items() if isinstance(one, dict)}
    optional = {**named, **_at(hook, "optional-dependencies")}
    extras = {name: lines for name, paths in optional.items() if (lines := lines_of_files(paths, read)) is not None}
    return found, extras


def with_files(table: ProjectTable, tool: dict[str, Any], read: Read) -> ProjectTable:
    """A table with the dynamic dependencies that its build would take from files."""
    lines, extras = dependency_files(tool, read)
    found = {"dependencies"} if lines is not None else set()
    if extras and "optional-dependencies" in table.dynamic:
        found.add("optional-dependencies")
    if not found & {*table.dynamic}:
        return table
    return replace(
        table,
        dependencies=lines if lines is not None and "dependencies" in table.dynamic else table.dependencies,
        optional_dependencies={**extras, **table.optional_dependencies},
        dynamic=tuple(field for field in table.dynamic if field not in found),
    )


def _at(table: object, *keys: str) -> Mapping[str, Any]:
    """The table at a path of keys; an empty one if there is none."""
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


# pip and uv run a ``setup.py``. Reading its literal lists is enough to choose versions; the build may still say
# something else, so no requirement read here is exact.

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
    """The fields of a project, those of the call of ``setup`` in ``setup.py`` before those of ``setup.cfg``."""
    options = of_setup_cfg(text_of(read("setup.cfg")), read)
    script = _Script(text_of(read("setup.py")))
    stated = script.keywords
    if stated is None:
        return options
    if "install_requires" in stated and _lines(stated["install_requires"]) is None:
        # What it computes comes from the files that it names, as far as can be seen.
        stated = {**stated, "install_requires": lines_of_files(script.files_behind("install_requires", read), read)}

    name, version = stated.get("name", options.name), stated.get("version", options.version)
    python = stated.get("python_requires", options.requires_python)
    extras = stated.get("extras_require", options.extras)
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
    """The metadata of a project as far as its files state it; exact only if it certainly requires nothing.

    Args:
        name: The package that was requested.
        read: Reads the files of the project.
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
        exact=fields.requires == (),
    )


def _lines(value: object) -> tuple[str, ...] | None:
    """Requirement lines; None if one of them is not a text."""
    some = value.splitlines() if isinstance(value, str) else value
    if not isinstance(some, list | tuple | set) or not all(isinstance(line, str) for line in some):
        return None
    return tuple(line.strip() for line in some if line.strip() and not line.strip().startswith("#"))


def of_setup_cfg(text: str, read: Read) -> SetupFields:
    """The fields that a ``setup.cfg`` states, those of the files that it names included."""
    import configparser  # late: few projects still have this file alone

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
        None if requires is None else _of_option(requires, read),
        {name: lines for name, own in extras.items() if (lines := _of_option(own, read)) is not None},
    )


def _of_option(value: str, read: Read) -> tuple[str, ...] | None:
    """The lines of an option; ``file:`` names files that the build reads."""
    if value.strip().startswith("file:"):
        return lines_of_files([path.strip() for path in value.strip().removeprefix("file:").split(",")], read)
    return None if value.strip().startswith("attr:") else _lines(value)


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
        self._expressions: dict[str, ast.expr] = {}  # of the keywords
        self._behind: dict[str, list[ast.AST]] = {}  # what may have made a name, or is a function of that name
        try:
            with without_warnings():
                for statement in ast.parse(text).body:
                    self._follow(statement)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.keywords = None

    def _follow(self, statement: ast.stmt) -> None:
        for name in _made_in(statement):
            self._behind.setdefault(name, []).append(statement)
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and _called(call) == "setup":
            self.keywords = dict(self._arguments(call))
        elif isinstance(statement, ast.If | ast.With) and _holds_the_call(statement):
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
        elif not (self._grows(call) if isinstance(call, ast.Call) else self._sets_item(statement)):
            self._forget(statement)

    def _sets_item(self, statement: ast.stmt) -> bool:
        """Follow ``names["key"] = value``."""
        owner, key, value = _item_of(statement) or ("", "", None)
        whole = self._values.get(owner)
        if not isinstance(whole, dict) or value is None:
            return False
        whole[key] = self._value_or_none(value)
        return True

    def files_behind(self, keyword: str, read: Read) -> list[str]:
        """The files of requirements that the value of a keyword of the call may come from."""
        waiting: list[ast.AST] = [self._expressions[keyword]] if keyword in self._expressions else []
        seen, found = set[str](), dict[str, None]()
        for _ in range(_MOST):
            if not waiting:
                break
            for node in ast.walk(waiting.pop(0)):
                for path in _paths(node):
                    if path.endswith((".txt", ".in")) and read(path) is not None:
                        found[path] = None
                if isinstance(node, ast.Name) and node.id not in seen:
                    seen.add(node.id)
                    waiting += self._behind.get(node.id, ())
        # A path in two parts is named by its last part, too.
        return [path for path in found if not any(other.endswith(f"/{path}") for other in found)]

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
        """Mark as unknown what a statement of another kind may change, such as an ``if``."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _called(node) == "setup":
                self.keywords = dict.fromkeys([*(name for name, _ in self._arguments(node)), "install_requires"])
        # A loop that only prints a name is not told from one that changes it; an item that is set is the only one lost.
        keys = [item[:2] for one in ast.walk(statement) if (item := _item_of(one))]
        named = [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
        for name in {*named}:
            whole, own = self._values.get(name), [key for owner, key in keys if owner == name]
            kept = isinstance(whole, dict) and len(own) == named.count(name)
            self._values[name] = {**whole, **dict.fromkeys(own)} if kept and isinstance(whole, dict) else None

    def _arguments(self, call: ast.Call) -> Iterator[tuple[str, object]]:
        for keyword in call.keywords:
            value = self._value_or_none(keyword.value)
            if keyword.arg is not None:
                self._expressions[keyword.arg] = keyword.value
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
        if isinstance(node, ast.Call):
            return self._chosen(node)
        if isinstance(node, ast.DictComp) and isinstance(node.generators[0].iter, ast.GeneratorExp):
            return self._by_name(node.generators[0].iter)
        raise _UnknownError

    def _chosen(self, call: ast.Call) -> list[object]:
        """The items that ``def deps_list(*pkgs): return [deps[pkg] for pkg in pkgs]`` takes from a table."""
        function = next(reversed(self._behind.get(_called(call), [])), None)
        last = function.body[-1] if isinstance(function, ast.FunctionDef) else None
        item = last.value.elt if isinstance(last, ast.Return) and isinstance(last.value, ast.ListComp) else None
        table = self._value(item.value) if isinstance(item, ast.Subscript) else None
        keys = [self._value(one) for one in call.args]
        if not isinstance(table, dict) or not all(isinstance(key, str) and table.get(key) for key in keys):
            raise _UnknownError
        return [table[key] for key in keys]

    def _by_name(self, lines: ast.GeneratorExp) -> dict[str, object]:
        """Requirement lines by their names: Hugging Face's projects make such a table with a regular expression."""
        listed = self._value(lines.generators[0].iter)
        if not isinstance(listed, list) or "findall(" not in ast.unparse(lines):
            raise _UnknownError
        return {re.split(r"[!=<>~ ]", line, maxsplit=1)[0]: line for line in listed if isinstance(line, str)}

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


def _item_of(statement: ast.AST) -> tuple[str, str, ast.expr] | None:
    """The name, the key and the value of ``name["key"] = value``."""
    if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Subscript):
        return None
    key, owner = getattr(target.slice, "value", None), getattr(target.value, "id", None)
    return (owner, key, statement.value) if isinstance(key, str) and isinstance(owner, str) else None


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _holds_the_call(statement: ast.If | ast.With) -> bool:
    """Whether a block certainly runs, and calls ``setup``: that of the script itself, or one within a context."""
    if isinstance(statement, ast.If):
        return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test))
    return any(isinstance(node, ast.Call) and _called(node) == "setup" for node in ast.walk(statement))


def _made_in(statement: ast.stmt) -> set[str]:
    """The names that a statement binds or adds to, less those of open files."""
    if isinstance(statement, ast.FunctionDef):
        return {statement.name}
    opened = {
        node.id
        for block in ast.walk(statement)
        if isinstance(block, ast.With)
        for item in block.items
        for node in ast.walk(item.optional_vars or ast.Pass())
        if isinstance(node, ast.Name)
    }
    grown = {
        node.func.value.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
    }
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return (bound | grown) - opened


def _paths(node: ast.AST) -> Iterator[str]:
    """The paths that texts in an expression may name: each alone, and the parts of ``join(...)`` and ``a / b``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield posixpath.normpath(node.value)
    elif (isinstance(node, ast.Call) and _called(node) == "join") or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    ):
        parts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        # The walk meets the right end of `a / b / c` first.
        ordered = parts if isinstance(node, ast.Call) else [*reversed(parts)]
        yield posixpath.normpath("/".join(ordered))

"""Figures of the code's structure, for the architecture test and for people: ``python -m tests.shape``.

Code lines leave out blank lines, comments and docstrings. An ``__init__`` that holds only a docstring is not a module.
An import counts wherever it is written: within functions and under ``TYPE_CHECKING``, too.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "envsolve"
_GENERATED = "_default_index.py"
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement within a node, with the handlers and cases that hold others: a tenth of all nodes."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from statements(child)


@dataclass(frozen=True)
class Module:
    """One module of the package: its dotted name and its text."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def statements(self) -> tuple[ast.AST, ...]:
        return tuple(statements(self.tree))

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_empty(self) -> bool:
        """Whether this is an ``__init__`` with nothing but a docstring."""
        return self.path.name == "__init__.py" and len(self.tree.body) <= 1

    @cached_property
    def code_and_comments(self) -> tuple[int, int]:
        """The number of code lines and of comments."""
        docstrings: set[int] = set()
        for node in self.statements:
            text = node.value if isinstance(node, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                docstrings |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
        code: set[int] = set()
        comments = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                comments += 1
            elif token.type not in _LAYOUT:
                code |= set(range(token.start[0], token.end[0] + 1))
        return len(code - docstrings), comments

    @property
    def names_cuda(self) -> bool:
        return re.search(r"cuda|nvidia", self.text, re.IGNORECASE) is not None

    def functions(self) -> Iterator[_Function]:
        for node in self.statements:
            if isinstance(node, _Function):
                yield node


def complexity(function: _Function) -> int:
    """McCabe's cyclomatic complexity, nested functions and comprehensions included, as radon counts it."""
    found = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            found += 1
        elif isinstance(node, ast.BoolOp):
            found += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            found += 1 + len(node.ifs)
    return found


def parameters(function: _Function) -> int:
    """The number of parameters, without ``self`` or ``cls``."""
    taken = function.args
    named = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
    return len(named) - (1 if named and named[0].arg in ("self", "cls") else 0)


class Shape:
    """The modules of the package and the imports between them."""

    def __init__(self) -> None:
        self.all = {module.name: module for module in modules()}
        self.modules = [module for module in self.all.values() if not module.is_empty]
        self.imports = {name: self._imports(module) for name, module in self.all.items()}

    @cached_property
    def single_users(self) -> dict[str, str]:
        """Modules that exactly one other module imports, with that one."""
        users: dict[str, set[str]] = defaultdict(set)
        for name, imported in self.imports.items():
            for one in imported:
                users[one].add(name)
        return {m.name: next(iter(users[m.name])) for m in self.modules if len(users[m.name]) == 1}

    def reach(self, name: str) -> set[str]:
        """The modules that a module imports, directly or not."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            new = self.imports[waiting.pop()] - seen
            seen |= new
            waiting += new
        return {one for one in seen if not self.all[one].is_empty}

    def _imports(self, module: Module) -> set[str]:
        found: set[str] = set()
        for node in module.statements:
            if isinstance(node, ast.ImportFrom) and node.module:
                # `from package import module` uses the module, and nothing of the package itself.
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {name if name in self.all else node.module for name in full}
            elif isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
        return {name for name in found if name in self.all} - {module.name}


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package; parsing them all takes a second, so it is done once in a process."""
    return tuple(_modules())


def _modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != _GENERATED:
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield Module(name, path, path.read_text(encoding="utf-8"))


def _print_figures() -> None:
    shape = Shape()
    code = sum(m.code_and_comments[0] for m in shape.modules)
    comments = sum(m.code_and_comments[1] for m in shape.modules)
    lines = [m.lines for m in shape.modules]
    functions = [(m.name, f) for m in shape.modules for f in m.functions()]
    print(f"code lines {code}, comments {100 * comments / code:.1f} per 100 code lines")
    print(f"modules {len(lines)}, median {statistics.median(lines):.0f} lines, longest {max(lines)}")
    print(f"modules with one user {len(shape.single_users)}")
    for name in ("envsolve.planning.make", "envsolve.cli.plan"):
        print(f"{name} reaches {len(shape.reach(name))} modules")
    print(f"modules that name CUDA or NVIDIA {sum(m.names_cuda for m in shape.modules)}")
    print("highest complexity", max((complexity(f), f"{name}.{f.name}") for name, f in functions))
    outside = [(parameters(f), f"{name}.{f.name}") for name, f in functions if not name.startswith("envsolve.cli.")]
    print("most parameters outside cli", max(outside))


if __name__ == "__main__":
    _print_figures()

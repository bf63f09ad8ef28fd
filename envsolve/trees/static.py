"""What a tree's own files say of it, without its build. Pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from envsolve.errors import UsageError
from envsolve.index.address import redact
from envsolve.index.lenient import requirement_text, specifier_text
from envsolve.index.metadata import parse_metadata
from envsolve.index.model import CoreMetadata
from envsolve.trees.model import Read, Tree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A build that imports torch must see the torch that it is for.
_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)


class _Project(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    version: str = ""
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] = {}
    dynamic: tuple[str, ...] = ()


def described(name: str, tree: Tree, read: Callable[[str], bytes | None]) -> Read:
    """A tree with what its files say.

    Args:
        name: The package that was asked for, for a tree that does not name itself.
        tree: Where it is.
        read: Gives the content of a file of the project by its path; None where it is not there.

    Returns:
        Metadata of its PKG-INFO (an unpacked sdist) or of ``[project]`` in its pyproject.toml, which is exact unless
        its dependencies are dynamic; without either, nothing is known of it but its build requirements.

    Raises:
        UsageError: No installer could build it: it has neither file, or its pyproject.toml is not TOML.
    """
    project, script = read("pyproject.toml"), read("setup.py")
    if project is None and script is None:
        hint = "name the folder of the project in it: #subdirectory=FOLDER"
        raise UsageError(f"there is no pyproject.toml and no setup.py in {_place(tree)}", hint=hint)
    table = _table(project, tree)
    requires = _build_requires(table)
    imported = _IMPORTS_TORCH.search((script or b"").decode("utf-8", "replace"))
    metadata = _unpacked(read("PKG-INFO")) or _declared(table) or CoreMetadata(name, "", exact=False)
    needs_torch = imported is not None or any(Requirement(line).name == "torch" for line in requires)
    known = msgspec.structs.replace(tree, exact=metadata.exact, needs_torch=needs_torch, build_requires=requires)
    return Read(known, metadata)


def _table(text: bytes | None, tree: Tree) -> dict[str, Any]:
    try:
        table: dict[str, Any] = tomllib.loads((text or b"").decode("utf-8"))
        return table
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"the pyproject.toml in {_place(tree)} is not TOML: {error}", hint="no installer builds it before it is"
        ) from None


def _place(tree: Tree) -> str:
    return redact(tree.address or "")


def _unpacked(text: bytes | None) -> CoreMetadata | None:
    try:
        return parse_metadata(text, sdist=True) if text else None
    except ValueError:
        return None


def _declared(table: dict[str, Any]) -> CoreMetadata | None:
    try:
        project = msgspec.convert(table.get("project"), _Project)
    except msgspec.ValidationError:
        return None
    lines = [*project.dependencies]
    for extra, more in project.optional_dependencies.items():
        lines += [_of_extra(line, extra) for line in more]
    return CoreMetadata(
        project.name,
        "" if "version" in project.dynamic else project.version,
        tuple(text for text in map(requirement_text, lines) if text),
        specifier_text(project.requires_python),
        tuple(project.optional_dependencies),
        exact="dependencies" not in project.dynamic,
    )


def _of_extra(line: str, extra: str) -> str:
    body, _, marker = line.partition(";")
    condition = f'extra == "{extra}"'
    return f"{body} ; ({marker.strip()}) and {condition}" if marker.strip() else f"{body} ; {condition}"


def _build_requires(table: dict[str, Any]) -> tuple[str, ...]:
    """``[build-system] requires``; empty where there is none, which means setuptools (PEP 518)."""
    system = table.get("build-system")
    lines = system.get("requires") if isinstance(system, dict) else None
    return tuple(line for line in lines if _is_requirement(line)) if isinstance(lines, list) else ()


def _is_requirement(line: object) -> bool:
    try:
        return isinstance(line, str) and bool(Requirement(line))
    except InvalidRequirement:
        return False

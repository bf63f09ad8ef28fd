"""Rule 11, the interpreter half: tags of wheels, and what their metadata asks for."""

from __future__ import annotations

import pytest

from envsolve.machine.model import Interpreter, Machine
from envsolve.rules.platform import Environment, python_fits, python_tag


@pytest.mark.parametrize(
    ("pythons", "python", "tag"),
    [
        (("cp311", "cp312", "cp313t"), "3.12", "cp312"),
        (("cp311", "cp312", "cp313t"), "3.13", None),
        (("cp311", "cp312", "cp313t"), "3.13t", "cp313t"),
        (("py3-none",), "3.12", "py3-none"),
        (("cp312-abi3",), "3.14", "cp312-abi3"),
        (("py39-none",), "3.12", "py39-none"),
        (("py39-none",), "3.14t", "py39-none"),
        (("py39-none",), "3.8", None),
        (("cp39-none",), "3.12", None),
        (("cp312-abi3",), "3.11", None),
        (("cp312-abi3",), "3.14t", None),
    ],
)
def test_rule_11_python(pythons: tuple[str, ...], python: str, tag: str | None) -> None:
    assert python_tag(pythons, python) == tag


@pytest.mark.parametrize(
    ("requires_python", "python", "fits"),
    [
        (None, "3.8", True),
        (">=3.10,!=3.14.1", "3.8", False),
        (">=3.10,!=3.14.1", "3.14", True),
        (">=3.9.7", "3.9", True),
        ("<3.13", "3.13", False),
        ("<=3.12", "3.12", True),
        (">=3.13", "3.13t", True),
        ("three", "3.8", True),
    ],
)
def test_a_wheel_for_any_python_is_bound_by_its_metadata(requires_python: str | None, python: str, fits: bool) -> None:
    assert python_fits(("py3-none",), python, requires_python).ok is fits


@pytest.mark.parametrize(
    ("known", "requires", "allowed"),
    [
        (None, ">=3.6.2", True),
        ("3.6.1", ">=3.6.2", False),
        ("3.6.2", ">=3.6.2", True),
        (None, ">=3.7", False),
        (None, "!=3.6.0", True),
        ("3.6.0", "!=3.6.0", False),
    ],
)
def test_an_unknown_patch_release_may_be_any(known: str | None, requires: str, allowed: bool) -> None:
    pythons = (Interpreter(known, "/usr/bin/python3"),) if known else None
    assert Environment.of(Machine(pythons=pythons), "3.6").allows(requires) is allowed

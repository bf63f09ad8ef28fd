"""What torch was published for, on the shipped catalogue; what people write for it."""

from __future__ import annotations

import pytest

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue, nearest_variants, pythons, variants
from envsolve.facts.choices import check_python, check_variant

CATALOGUE = Catalogue()


def test_in_the_order_of_their_versions() -> None:
    known = variants(CATALOGUE)
    assert known[:2] == ("cpu", "cu92")
    assert known.index("cu118") < known.index("cu121") < known.index("cu126")
    assert pythons(CATALOGUE)[0] == "3.6"
    assert pythons(CATALOGUE).index("3.9") < pythons(CATALOGUE).index("3.10")


@pytest.mark.parametrize("name", variants(CATALOGUE))
def test_known_variants(name: str) -> None:
    assert check_variant(name, CATALOGUE) == name


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *[(text, "cu126") for text in ("12.6", "126", "cu12.6", "CU126", "cuda12.6", "cuda 12.6", "cu-126", "12.6.3")],
        ("9.2", "cu92"),
        ("CPU", "cpu"),
    ],
)
def test_a_variant_written_otherwise_is_understood_and_refused(text: str, meant: str) -> None:
    with pytest.raises(UsageError, match="not the name of a variant") as caught:
        check_variant(text, CATALOGUE)
    assert (caught.value.hint or "").startswith(f"did you mean {meant}? there are cpu, cu92,")


@pytest.mark.parametrize("text", ["cu999", "99.9", "12", "cuda", "gpu", "rocm6.4", ""])
def test_an_unknown_variant_lists_the_known_ones(text: str) -> None:
    with pytest.raises(UsageError, match="torch was never published for it") as caught:
        check_variant(text, CATALOGUE)
    assert (caught.value.hint or "").startswith("there are cpu, cu92,")


@pytest.mark.parametrize(
    ("name", "nearest"), [("cu131", ("cu130", "cu132")), ("cu125", ("cu124", "cu126")), ("cu999", ()), ("13.1", ())]
)
def test_a_variant_that_never_was_lies_between_two(name: str, nearest: tuple[str, ...]) -> None:
    assert nearest_variants(name, CATALOGUE) == nearest
    if nearest:
        assert check_variant(name, CATALOGUE) == name  # the plan answers it


@pytest.mark.parametrize(("text", "python"), [("3.12", "3.12"), ("3.12.4", "3.12"), ("python3.9", "3.9")])
def test_known_pythons(text: str, python: str) -> None:
    assert check_python(text, CATALOGUE) == python


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("2.7", "Python 2.7 is not in the catalogue", "known for Python 3.6 to 3."),
        ("3.5", "Python 3.5 is not in the catalogue", "known for Python 3.6 to 3."),
        ("3.99", "Python 3.99 is not in the catalogue", "known for Python 3.6 to 3."),
        ("abc", "not a Python version", "write it as 3.12"),
        ("3", "not a Python version", "write it as 3.12"),
        ("", "not a Python version", "write it as 3.12"),
        ("3.13t", "free-threaded", "write 3.13"),
    ],
)
def test_other_pythons(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        check_python(text, CATALOGUE)
    assert hint in (caught.value.hint or "")

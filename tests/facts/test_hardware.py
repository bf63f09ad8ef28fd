"""Look-ups of toolkits and driver branches."""

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.facts.hardware import branch_of, toolkit_of


@pytest.mark.parametrize(("cuda", "expected"), [("12.6", "12.6"), ("12.6.3", "12.6"), ("99.9", None), (None, None)])
def test_toolkit_of(cuda: str | None, expected: str | None) -> None:
    toolkit = toolkit_of(cuda, Catalogue().toolkits)
    assert (toolkit and str(toolkit.cuda_version)) == expected


@pytest.mark.parametrize(
    ("driver", "expected"), [("550.54.15", "12.4"), ("550", "12.4"), ("1.2", None), ("", None), (None, None)]
)
def test_branch_of(driver: str | None, expected: str | None) -> None:
    branch = branch_of(driver, Catalogue().drivers)
    assert (branch and str(branch.cuda_version)) == expected

"""The request, and the names in it."""

import re

import pytest
from packaging.requirements import Requirement

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.packages.requirements import Need
from envsolve.planning.request import check_names


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pytorch", "did you mean torch?"),
        ("PyTorch", "did you mean torch?"),
        ("trch", "did you mean torch?"),
        ("torchvisoin>=0.2", "did you mean torchvision?"),
        ("cuda", "did you mean cuda-toolkit?"),
        ("tensorflow-gpu", "did you mean tensorflow?"),
        ("sklearn", "did you mean scikit-learn?"),
        ("cv2", "did you mean opencv-python?"),
        ("comfyui", "the package is not installed under this name"),
        ("apex", "the package is not installed under this name"),
    ],
)
def test_names_that_are_mistakes_are_not_planned(name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=re.escape(meant)) as caught:
        check_names([Need(Requirement(name), "command line")], Catalogue())
    assert "--allow-unknown-names" in (caught.value.hint or "")


def test_a_release_under_a_name_that_was_given_up_is_planned() -> None:
    check_names([Need(Requirement("tensorflow-gpu==2.10.1"), "command line")], Catalogue())


def test_a_name_in_a_project_is_not_taken_for_a_misspelt_one() -> None:
    """babe is a package, and a project that is installed each day names what it means."""
    check_names([Need(Requirement("babe"), "demo/pyproject.toml [project]")], Catalogue())
    for name, origin in (("babe", "requirements.txt line 1"), ("pytorch", "demo/pyproject.toml [project]")):
        with pytest.raises(UsageError, match="did you mean"):
            check_names([Need(Requirement(name), origin)], Catalogue())


@pytest.mark.parametrize(
    "name",
    [
        "torch",
        "vllm",
        "requests",
        "torchx",
        "jax",
        "nvidia-cublas-cu11",
        "transformer-engine-jax",
        "acme-tools",
        "trch @ https://a.example/trch.zip",
    ],
)
def test_other_names_are_planned(name: str) -> None:
    check_names([Need(Requirement(name), "command line")], Catalogue())

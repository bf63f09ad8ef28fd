"""Images, distributions and conda builds: the facts that people trip over."""

from __future__ import annotations

import re

import pytest

from envsolve.facts.builds import CondaBuild
from envsolve.facts.catalogue import Catalogue


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.fixture(scope="module")
def tags(catalogue: Catalogue) -> set[str]:
    return {f"{image.repository}:{tag}" for image in catalogue.images for tag in image.tags}


@pytest.mark.parametrize(
    ("tag", "published"),
    [
        ("nvidia/cuda:12.1.1-devel-ubuntu20.04", True),
        ("nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04", True),
        ("nvidia/cuda:12.2.0-cudnn8-runtime-ubuntu22.04", False),  # 12.2.0 has no cuDNN images
        ("nvidia/cuda:12.3.2-cudnn9-devel-ubuntu22.04", True),
        ("nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", True),  # from 12.4.1 on the tag says just cudnn
        ("nvidia/cuda:12.4.1-cudnn9-devel-ubuntu22.04", False),
        ("nvidia/cuda:12.4.1-base-ubuntu24.04", False),  # Ubuntu 24.04 starts at 12.5.1
        ("nvidia/cuda:13.0.0-base-ubuntu20.04", False),  # Ubuntu 20.04 ends at 12.9.1
        ("nvidia/cuda:12.7.0-base-ubuntu22.04", False),  # never was
        ("pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel", True),
        ("pytorch/pytorch:2.5.0-cuda12.1-cudnn9-devel", True),
        ("pytorch/pytorch:2.12.0-cuda12.8-cudnn9-devel", False),  # torch 2.12 dropped CUDA 12.8
        ("python:3.12-slim-bookworm", True),
        ("python:3.9-slim-trixie", False),
    ],
)
def test_which_tags_are_known(tags: set[str], tag: str, published: bool) -> None:
    assert (tag in tags) is published


def test_an_image_stands_on_a_known_distribution(catalogue: Catalogue) -> None:
    assert {i.distribution for i in catalogue.images if i.distribution} <= set(catalogue.distributions)
    for image in catalogue.images:
        says = image.repository != "python" and bool(image.distribution)
        says = says or image.repository.startswith("nvcr.io/")
        assert bool(image.cuda) is says, "either the record or the tag says the CUDA version, and python has none"


def test_what_an_image_asks_of_the_driver(catalogue: Catalogue) -> None:
    needs = catalogue.image_requirements
    assert {i.version for i in catalogue.images if i.source == "images:dockerfiles"} <= set(needs)
    assert needs["12.9.1"].cuda == "12.9"
    older = needs["11.0.3"].or_drivers
    assert [group.brands for group in older] == [("tesla",)]
    assert all(
        re.fullmatch(r"\d{3}", branch) for need in needs.values() for g in need.or_drivers for branch in g.branches
    )


@pytest.mark.parametrize(
    ("version", "subdir", "cuda", "arm", "code"),
    [
        ("2.13.0", "linux-64", "12.9", None, "sm_60"),  # the channel that still carries what wheels dropped
        ("2.13.0", "linux-aarch64", "12.9", "tegra", "sm_87"),
        ("2.7.1", "linux-64", "12.6", None, "sm_90"),
        ("2.10.0", "win-64", "12.8", None, "sm_70"),
    ],
)
def test_conda_builds(catalogue: Catalogue, version: str, subdir: str, cuda: str, arm: str | None, code: str) -> None:
    found = [b for b in catalogue.conda if (b.version, b.subdir, b.cuda, b.arm) == (version, subdir, cuda, arm)]
    assert [code in (build.code or ()) for build in found] == [True]


def test_conda_builds_say_whether_they_ask_for_a_gpu(catalogue: Catalogue) -> None:
    def asks(build: CondaBuild) -> bool:
        return "__cuda" in build.depends

    assert not any(asks(build) for build in catalogue.conda if build.cuda is None)
    newest = [build for build in catalogue.conda if build.version == "2.13.0" and build.cuda]
    assert newest and all(asks(build) for build in newest)

"""Facts about images, found by their names."""

from __future__ import annotations

import pytest

from envsolve.dockerfile.image_names import Name


@pytest.mark.parametrize(
    ("image", "repository", "tag", "python"),
    [
        ("nvidia/cuda:12.6.3-base-ubi9", "nvidia/cuda", "12.6.3-base-ubi9", None),
        ("nvcr.io/nvidia/cuda:12.6.3-base-ubi9@sha256:aa", "nvidia/cuda", "12.6.3-base-ubi9", None),
        ("docker.io/library/python:3.12-slim", "python", "3.12-slim", "3.12"),
        ("python", "python", "latest", None),
        ("python@sha256:aa", "python", "", None),
        ("localhost:5000/own", "localhost:5000/own", "latest", None),
        ("nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io/nvidia/pytorch", "24.05-py3", None),
    ],
)
def test_names_of_images(image: str, repository: str, tag: str, python: str | None) -> None:
    name = Name.of(image)
    assert (name.repository, name.tag, name.python()) == (repository, tag, python)

"""The image that is proposed for a FROM line: one for all that is wrong with it, tried on the file."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from envsolve import describe_target, dockerfile
from envsolve.dockerfile.base_image import _OF_THE_IMAGE
from envsolve.facts.catalogue import Catalogue

TORCH = "RUN pip install torch\nRUN pip install flash-attn\n"
ADA = "RTX 4090, driver 535.104, linux-x86_64"


def proposed(text: str, catalogue: Catalogue) -> tuple[list[str], set[str]]:
    """The codes of the findings about an image, and the images that they propose."""
    report = dockerfile.check_dockerfile(text, [describe_target(ADA, catalogue)], catalogue)
    about = [finding for finding in report.findings if finding.code in _OF_THE_IMAGE]
    return [f.code for f in about], {r for f in about for r in f.remedies if r.startswith("FROM ")}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("FROM nvidia/cuda:12.0.0-devel-ubuntu20.04\n" + TORCH, ["base-python", "image-retired"]),
        ("FROM nvidia/cuda:12.1.0-cudnn8-devel-ubuntu18.04\n" + TORCH, ["base-python", "image-unknown"]),
        ("FROM nvidia/cuda:12.8.0-devel-ubuntu20.04\n" + TORCH, ["base-python", "image-retired", "image-driver"]),
        ("FROM python:3.8-alpine\n" + TORCH, ["base-python", "image-libc"]),
        (
            "ARG V=12.0.0\nFROM nvidia/cuda:${V}-devel-ubuntu20.04 \\\n  AS b\n" + TORCH,
            ["base-python", "image-retired"],
        ),
    ],
)
def test_all_findings_of_a_line_propose_one_image_which_removes_them(
    catalogue: Catalogue, text: str, codes: list[str]
) -> None:
    found, [image] = proposed(text, catalogue)
    assert sorted(found) == sorted(codes)
    assert proposed(f"{image}\n{TORCH}", catalogue)[0] == []


def test_nothing_is_proposed_that_trades_one_fault_for_another(catalogue: Catalogue) -> None:
    """The final stage needs only a Python, but the stage below it compiles with the toolkit of the image."""
    text = f"FROM nvidia/cuda:12.0.0-devel-ubuntu20.04 AS build\n{TORCH}FROM build\nRUN pip install torch\n"
    _, [image] = proposed(text, catalogue)
    assert image.startswith("FROM nvidia/cuda:") and "-devel-" in image


def test_a_nvidia_image_whose_condition_is_not_known_is_not_proposed(catalogue: Catalogue) -> None:
    _, images = proposed("FROM nvidia/cuda:13.0.0-devel-rockylinux8\n" + TORCH, catalogue)
    [release] = {image.partition(":")[2].partition("-")[0] for image in images}
    assert release in catalogue.image_requirements


def test_a_file_of_many_images_is_checked_a_bounded_number_of_times(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = Mock(wraps=dockerfile._findings)
    monkeypatch.setattr(dockerfile, "_findings", checks)
    kinds = [f"FROM nvidia/cuda:12.0.{number}-devel-ubuntu20.04 AS s{number}" for number in range(20)]
    proposed("\n".join(kinds) + "\n" + TORCH, catalogue)
    assert 1 < checks.call_count <= 1 + 16

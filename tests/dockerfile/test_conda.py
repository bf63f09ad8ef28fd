"""The pytorch that conda takes as an image is built, and the files that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.facts.catalogue import Catalogue
from tests.dockerfile.conftest import check

CONDA = "FROM continuumio/miniconda3:24.1.2-0\n"
ADA, HOPPER = "RTX 4090, driver 550.54, linux-x86_64", "H100, driver 550.54, linux-x86_64"


@pytest.mark.parametrize(
    ("words", "target", "codes"),
    [
        ("pytorch==1.12.1 torchvision cudatoolkit=11.3 -c pytorch", ADA, []),
        ("pytorch==1.12.1 torchvision cudatoolkit=11.3 -c pytorch", HOPPER, ["build-does-not-run"]),
        ("pytorch=1.12 cudatoolkit=10.2 -c pytorch", ADA, ["build-does-not-run"]),
        ("pytorch pytorch-cuda=12.1 -c pytorch -c nvidia", HOPPER, []),
        ("pytorch::pytorch pytorch-cuda=12.1 -c nvidia", HOPPER, []),
        ("'pytorch>=2.0,<2.1' pytorch-cuda=11.7 -c pytorch", HOPPER, ["build-does-not-run"]),
        ("pytorch cpuonly -c pytorch", ADA, ["cpu-build"]),
        # A build sees no GPU, and the builds of conda-forge depend on one.
        ("pytorch -c conda-forge", ADA, ["conda-no-gpu"]),
        ("pytorch-gpu -c conda-forge", ADA, ["conda-no-gpu"]),
        ("numpy -c conda-forge", ADA, []),
    ],
)
def test_the_build_that_conda_takes(catalogue: Catalogue, words: str, target: str, codes: list[str]) -> None:
    findings = check(f"{CONDA}RUN conda install -y {words}\n", target, catalogue).findings
    assert [finding.code for finding in findings] == codes, findings
    assert all(finding.remedies for finding in findings)


def test_what_is_said_of_the_gpu_ends_it(catalogue: Catalogue) -> None:
    text = f"{CONDA}RUN mamba install pytorch-gpu -c conda-forge\n"
    [finding] = check(text, ADA, catalogue).findings
    assert finding.level == "error" and finding.remedies[0].startswith("add before this line: ENV CONDA_OVERRIDE_CUDA=")
    variable = finding.remedies[0].removeprefix("add before this line: ")
    assert not check(text.replace("RUN", f"{variable}\nRUN"), ADA, catalogue).findings


def test_an_environment_file_is_read_with_what_pip_adds(catalogue: Catalogue, tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    text = f"{CONDA}COPY environment.yml .\nRUN conda env create -f environment.yml\n"
    (tmp_path / "environment.yml").write_text(
        "channels: [pytorch, nvidia]\ndependencies:\n- python=3.10\n- pytorch=2.1\n- pytorch-cuda=12.1\n- own-tools\n"
        "- pip:\n  - --extra-index-url https://download.pytorch.org/whl/cu118\n  - xformers==0.0.1\n"
    )
    report = check(text, HOPPER, catalogue, tmp_path)
    assert [finding.code for finding in report.findings] == []
    assert ["own-tools" in one.text for one in report.unjudged].count(True) == 1
    (tmp_path / "environment.yml").write_text("channels: [pytorch]\ndependencies: [pytorch=1.12, cudatoolkit=11.3]\n")
    assert [f.code for f in check(text, HOPPER, catalogue, tmp_path).findings] == ["build-does-not-run"]
    (tmp_path / "environment.yml").write_text("dependencies:\n- python=3.11\n- pip:\n  - torch==2.2.3\n")
    assert [f.code for f in check(text, HOPPER, catalogue, tmp_path).findings] == ["unpublished-build"]
    (tmp_path / "environment.yml").write_text("- what\n")
    assert "in a known format" in check(text, HOPPER, catalogue, tmp_path).unjudged[0].text

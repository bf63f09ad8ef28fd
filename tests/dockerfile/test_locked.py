"""Locks that a Dockerfile installs from: read in the build context, judged, and missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve import describe_target, dockerfile
from envsolve.dockerfile.model import Report
from envsolve.facts.catalogue import Catalogue

BLACKWELL = "RTX 5090, driver 570.86.15, linux-x86_64"
ADA = "RTX 4090, driver 560.35.03, linux-x86_64"
COPIED = "FROM python:3.12-slim-bookworm\nWORKDIR /app\nCOPY pyproject.toml uv.lock ./\n"
# As uv 0.8 writes it, with one wheel. What torch itself requires is left out, which is a finding of its own.
LOCK = """\
version = 1
requires-python = ">=3.12"

[[package]]
name = "app"
version = "0"
source = { virtual = "." }
dependencies = [{ name = "torch" }]

[package.optional-dependencies]
gpu = [{ name = "torch" }]

[[package]]
name = "torch"
version = "2.6.0+cu124"
source = { registry = "https://download.pytorch.org/whl/cu124" }
wheels = [
    { url = "https://download.pytorch.org/whl/cu124/torch-2.6.0%2Bcu124-cp312-cp312-linux_x86_64.whl" },
]
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    (tmp_path / "uv.lock").write_text(LOCK)
    return tmp_path


def report(text: str, target: str, context: Path) -> Report:
    catalogue = Catalogue()
    return dockerfile.check_dockerfile(text, (describe_target(target, catalogue),), catalogue, context)


def test_the_torch_of_a_lock_is_judged(context: Path) -> None:
    answer = report(COPIED + "RUN uv sync --frozen\n", BLACKWELL, context)
    assert answer.findings, answer
    finding = answer.findings[0]
    assert (finding.line, finding.level, finding.code) == (4, "error", "build-does-not-run")
    assert finding.text.startswith("uv.lock:") and "torch 2.6.0" in finding.text
    good = report(COPIED + "RUN uv sync --frozen\n", ADA, context)
    assert {one.code for one in good.findings} == {"requirement-missing"}
    assert not any("lock file" in one.text for one in good.unjudged)


@pytest.mark.parametrize(
    ("command", "says"),
    [("uv sync --extra none", "none"), ("uv sync --extra $WHAT", "at build time"), ("poetry install", "lock file")],
)
def test_what_is_not_known_of_a_lock(context: Path, command: str, says: str) -> None:
    answer = report(COPIED + f"ARG WHAT\nRUN {command}\n", ADA, context)
    assert any(says in one.text for one in answer.unjudged), answer


def test_a_lock_that_is_mounted_is_read(context: Path) -> None:
    text = "FROM python:3.12-slim-bookworm\nWORKDIR /app\n"
    text += "RUN --mount=type=bind,source=uv.lock,target=uv.lock uv sync --extra=gpu\n"
    assert "build-does-not-run" in [one.code for one in report(text, BLACKWELL, context).findings]


def test_a_lock_without_known_packages_is_not_judged(context: Path) -> None:
    (context / "uv.lock").write_text(LOCK.replace("torch", "numpy"))
    assert any("no package" in one.text for one in report(COPIED + "RUN uv sync\n", ADA, context).unjudged)


def test_a_lock_is_judged_with_the_libc_of_the_image(context: Path) -> None:
    # The wheel is for a newer glibc than that of the machine, which the image does not use.
    (context / "uv.lock").write_text(LOCK.replace("-cp312-linux_x86_64", "-cp312-manylinux_2_35_x86_64"))
    for image, codes in (("ubuntu:24.04", []), ("ubuntu:20.04", ["platform-wheel"]), ("own/image:1", [])):
        text = COPIED.replace("python:3.12-slim-bookworm", image) + "RUN uv sync --frozen\n"
        found = report(text, f"{ADA}, glibc 2.28", context).findings
        assert [finding.code for finding in found if finding.code == "platform-wheel"] == codes, found


def test_a_torch_whose_triton_does_not_run_is_a_warning(context: Path) -> None:
    [finding, *_] = report(f"{COPIED}RUN uv sync --frozen\n", "GTX 1080, driver 560.35.03", context).findings
    assert (finding.code, finding.level) == ("triton-does-not-run", "warning")


@pytest.mark.parametrize(
    ("copied", "codes"),
    [
        ("COPY app.py ./\n", ["file-not-copied"]),
        ("COPY app.py requirements.txt ./\n", []),
        ("COPY . .\n", []),
        ("", []),  # the image may have one
        ("COPY app.py ./\nRUN git clone https://example.org/a .\n", []),
        ("COPY app.py ./\nCOPY --from=own/image:1 /a ./\n", []),
    ],
)
def test_a_requirement_file_that_is_not_copied(tmp_path: Path, copied: str, codes: list[str]) -> None:
    (tmp_path / "requirements.txt").write_text("flask\n")
    text = f"FROM python:3.12-slim-bookworm\nWORKDIR /app\n{copied}RUN pip install -r requirements.txt\n"
    answer = report(text, ADA, tmp_path)
    assert [one.code for one in answer.findings] == codes, answer
    assert not codes or not any("requirements.txt" in one.text for one in answer.unjudged)


@pytest.mark.parametrize(("installer", "level"), [("pip install", "warning"), ("uv pip install --system", "error")])
def test_an_option_behind_a_requirement(tmp_path: Path, installer: str, level: str) -> None:
    (tmp_path / "r.txt").write_text("flask\ntorch==2.6.0 --index-url https://download.pytorch.org/whl/cu124\n")
    text = f"FROM python:3.12-slim-bookworm\nCOPY r.txt .\nRUN {installer} -r r.txt\n"
    [finding] = [one for one in report(text, ADA, tmp_path).findings if one.code == "requirement-line"]
    assert (finding.line, finding.level, finding.remedies) == (3, level, ("write --index-url on a separate line",))
    assert finding.text.startswith("r.txt:2: ")

"""Reading Dockerfiles: what a shell and BuildKit would make of them, and that no text crashes the reader."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.dockerfiles.installs import installs, nvcc_code
from envsolve.dockerfiles.model import Command
from envsolve.dockerfiles.read import read_stages
from envsolve.errors import UsageError

FILE = """\
ARG VERSION=2.0.0
FROM nvidia/cuda:12.1.1-devel-ubuntu20.04 AS builder
ARG VERSION
ENV A=1 TORCH_CUDA_ARCH_LIST="8.6;9.0"
ENV OLD form of it
RUN <<EOF
pip install torch==${VERSION}
pip install wheel
EOF
RUN --mount=type=cache,target=/x MAX_JOBS=3 pip install x && \\
    # why
    if true; then pip install "y>=2" ; fi
COPY <<EOF /requirements.txt
RUN pip install never
EOF
FROM builder
RUN export B=2; nvcc -arch=sm_75 a.cu
"""


def test_stages_lines_variables_and_documents() -> None:
    builder, final = read_stages(FILE)
    assert (builder.line, builder.image, builder.name) == (2, "nvidia/cuda:12.1.1-devel-ubuntu20.04", "builder")
    assert (final.base, final.root) == (builder, builder)
    pips = [(c.line, c.words[2:]) for c in builder.commands if c.words[0] == "pip"]
    assert pips == [(6, ("torch==2.0.0",)), (6, ("wheel",)), (10, ("x",)), (10, ("y>=2",))]
    assert builder.variables == {
        "VERSION": "2.0.0",
        "A": "1",
        "TORCH_CUDA_ARCH_LIST": "8.6;9.0",
        "OLD": "form of it",
    }
    assert [c.variables.get("MAX_JOBS") for c in builder.commands if "x" in c.words] == ["3"]
    [nvcc] = final.commands
    assert (nvcc.line, nvcc.variables["B"], nvcc.variables["A"]) == (17, "2", "1")
    assert len(list(final.history())) == len(builder.commands) + 1


@pytest.mark.parametrize("text", ["", "# nothing\n", "RUN echo hi\n"])
def test_what_has_no_from_is_no_dockerfile(text: str) -> None:
    with pytest.raises(UsageError, match="FROM"):
        read_stages(text)


@given(st.text(max_size=200), st.lists(st.sampled_from(FILE.splitlines()), max_size=12))
def test_no_text_crashes_it(noise: str, lines: list[str]) -> None:
    for stage in read_stages("FROM a\n" + "\n".join([*lines, noise])):
        list(installs(stage.commands))
        list(map(nvcc_code, stage.commands))


def command(words: str, **variables: str) -> Command:
    return Command(1, tuple(words.split()), variables)


@pytest.mark.parametrize(
    ("words", "names", "variant"),
    [
        ("pip install torch==2.0.0 --index-url https://download.pytorch.org/whl/cu118", ["torch"], "cu118"),
        ("python3 -m pip install --no-cache-dir -U torch numpy", ["torch", "numpy"], None),
        ("/opt/venv/bin/pip3.11 install torch", ["torch"], None),
        ("uv pip install --system --torch-backend cu126 torch", ["torch"], "cu126"),
        ("pip install --target /x -i https://download.pytorch.org/whl/cpu torch", ["torch"], "cpu"),
        ("pip install -r requirements.txt", [], None),
    ],
)
def test_installs(words: str, names: list[str], variant: str | None) -> None:
    [install] = installs([command(words)])
    assert ([r.name for r in install.requirements], install.variant) == (names, variant)


@pytest.mark.parametrize("words", ["pip download torch", "pip", "echo pip install torch", "conda install torch"])
def test_what_installs_nothing_through_pip(words: str) -> None:
    assert not list(installs([command(words)]))


def test_what_an_install_leaves_open() -> None:
    [plain] = installs([command("pip install .")])
    [held] = installs([command("pip install --no-build-isolation -e . -c c.txt")])
    [by_variable] = installs([command("pip install x", PIP_CONSTRAINT="/c.txt", PIP_NO_BUILD_ISOLATION="1")])
    assert (plain.sources, plain.constrained, plain.isolated) == ((".",), False, True)
    assert (held.sources, held.constrained, held.isolated) == ((".",), True, False)
    assert (by_variable.constrained, by_variable.isolated) == (True, False)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("nvcc -arch=sm_75 a.cu", ("sm_75", "compute_75")),
        ("/usr/local/cuda/bin/nvcc -gencode arch=compute_80,code=sm_80 a.cu", ("sm_80",)),
        ("nvcc --generate-code=arch=compute_90,code=[sm_90,compute_90] a.cu", ("sm_90", "compute_90")),
        ("nvcc -arch compute_80 -code sm_86,compute_80 a.cu", ("sm_86", "compute_80")),
        ("nvcc a.cu", ()),
        ("gcc a.c", None),
    ],
)
def test_the_code_that_nvcc_makes(words: str, code: tuple[str, ...] | None) -> None:
    assert nvcc_code(command(words)) == code

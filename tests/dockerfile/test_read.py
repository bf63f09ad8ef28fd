"""Reading Dockerfiles: what a shell and BuildKit would make of them, and that no text crashes the reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.dockerfile.compiling import cmake_code, nvcc_code
from envsolve.dockerfile.context import Context
from envsolve.dockerfile.installs import installs
from envsolve.dockerfile.model import other_installer
from envsolve.dockerfile.read import read_file, read_stages
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


ODD = """\
\ufeff# escape=`\r
ARG BASE\r
FROM ${BASE:-debian:12} AS one\r
WORKDIR /app\r
ARG GIVEN\r
ENV FIXED=1 FROM_ARG=${GIVEN:-x}\r
ARG FIXED=2\r
RUN echo a `\r
    # FROM nowhere, isn't it\r
    && pip install b\r
RUN cat > x <<EOF && `\r
    echo after\r
FROM nowhere\r
EOF\r
RUN <<'PY' python3\r
pip install never\r
PY\r
RUN <<-A bash -e\r
\tpip install c  # why
\tA\r
ONBUILD RUN pip install never\r
RUN ["pip", "install", "d e"]\r
FROM two@sha256:aa\r
"""


def test_what_buildkit_reads_and_other_files_do_not_have() -> None:
    one, two = read_stages(ODD)
    assert (one.image, two.image) == ("debian:12", "two@sha256:aa")
    pips = [(command.line, command.words[2:]) for command in one.commands if command.words[0] == "pip"]
    assert pips == [(8, ("b",)), (18, ("c",)), (22, ("d e",))]
    assert one.variables == {"GIVEN": "${GIVEN}", "FIXED": "1", "FROM_ARG": "x"}
    assert {command.directory for command in one.commands} == {"/app"}


def test_what_builders_pass_over_in_continued_lines() -> None:
    [stage] = read_stages("FROM a\nRUN pip install \\ \t\n  a \\\n\n  # isn't\n  b \\\n   \n  c\nRUN pip install d \\")
    assert [(c.line, c.words[2:]) for c in stage.commands] == [(2, ("a", "b", "c")), (9, ("d",))]


@pytest.mark.parametrize(
    ("data", "says"),
    [("FROM a\n".encode("utf-16"), "UTF-16"), (b"FROM a\0\n", "not text"), (b"FROM a\n" + b"#" * 2**20, "1 MiB")],
)
def test_what_is_no_text_or_endless_is_refused(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_bytes(data)
    with pytest.raises(UsageError, match=says) as caught:
        read_file(tmp_path / "Dockerfile")
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "# nothing\n", "RUN echo hi\n"])
def test_what_has_no_from_is_no_dockerfile(text: str) -> None:
    with pytest.raises(UsageError, match="FROM"):
        read_stages(text)


@given(st.text(max_size=200), st.lists(st.sampled_from((FILE + ODD).splitlines()), max_size=12))
def test_no_text_crashes_it(noise: str, found: list[str]) -> None:
    for stage in read_stages("FROM a\n" + "\n".join([*found, noise])):
        list(installs(stage.commands, Context(None)))
        for command in stage.commands:
            nvcc_code(command), cmake_code(command), other_installer(command)


@given(st.text(max_size=200))
def test_no_requirement_file_crashes_it(text: str) -> None:
    document = "FROM a\nCOPY <<EOF r.txt\n" + text.replace("EOF", "") + "\nEOF\nRUN pip install -r r.txt\n"
    for stage in read_stages(document):
        list(installs(stage.commands, Context(None)))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("FROM a AS s0\n" + "".join(f"FROM s{n} AS s{n + 1}\n" for n in range(1500)), "more than 100 stages"),
        ("FROM a\n" + "RUN pip install torch\n" * 8_000, "more than 4000 commands"),
        ("FROM a\nRUN x " + "\\\n" * 400_000, "more than 50000 lines"),
        ("FROM a\nRUN " + "true;" * 8_000, "more than 4000 commands"),
        (
            "FROM a AS s0\n" + "".join(f"FROM s{n} AS s{n + 1}\n" + "RUN true\n" * 39 for n in range(99)),
            "more than 4000 commands",
        ),
    ],
    ids=["stages", "instructions", "lines", "commands", "commands of stages"],
)
def test_what_would_take_minutes_is_refused(text: str, limit: str) -> None:
    with pytest.raises(UsageError, match=limit):
        read_stages(text)

"""Reading Dockerfiles: what a shell and BuildKit would make of them, and that no text crashes the reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envsolve.dockerfile.context import Context, lines
from envsolve.dockerfile.installs import Install, installs, other_installer
from envsolve.dockerfile.model import Command
from envsolve.dockerfile.offers import Name
from envsolve.dockerfile.packages import EVERY, NATIVE, cmake_code, nvcc_code, torch_code
from envsolve.dockerfile.read import read_file, read_stages
from envsolve.errors import UsageError
from envsolve.packages.shell import simple_commands

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
    assert {command.folder for command in one.commands} == {"/app"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("set -ex; pip install a", ["set -ex", "pip install a"]),
        ("bash -lc 'source /v/bin/activate && pip install a'", ["source /v/bin/activate", "pip install a"]),
        ("/bin/sh -c \"bash -c 'pip install a'\"", ["pip install a"]),
        ("conda run -n x --no-capture-output pip install a", ["pip install a"]),
        ("sudo -H -u me env -u B A=1 pip install a", ["pip install a"]),
        ("timeout 60 pip install a | tee log", ["pip install a", "tee log"]),
        ('if [ -n "$X" ]; then pip install a; fi', ["[ -n $X ]", "pip install a", "fi"]),
        ("pip install torch>=2 2>&1 > log", ["pip install torch"]),  # as a shell takes it: > writes a file
        (
            "pip install 'torch>=2' git+https://h/p#egg=p b  # it's one",
            ["pip install torch>=2 git+https://h/p#egg=p b"],
        ),
        ("# isn't\npip install a", ["pip install a"]),
        ("bash install.sh -c x", ["bash install.sh -c x"]),
        ("W='a b'; pip install $W ${W}c", ["pip install a b a bc"]),
        ("pip install a==`cat v`", ["pip install a==$", "cat v"]),
    ],
)
def test_simple_commands(text: str, words: list[str]) -> None:
    assert [" ".join(found) for found, _ in simple_commands(text, {})] == words


def test_what_builders_pass_over_in_continued_lines() -> None:
    [stage] = read_stages("FROM a\nRUN pip install \\ \t\n  a \\\n\n  # isn't\n  b \\\n   \n  c\nRUN pip install d \\")
    assert [(c.line, c.words[2:]) for c in stage.commands] == [(2, ("a", "b", "c")), (9, ("d",))]


@pytest.mark.parametrize(
    ("data", "says"),
    [("FROM a\n".encode("utf-16"), "UTF-16"), (b"FROM a\0\n", "no text"), (b"FROM a\n" + b"#" * 2**20, "1 MiB")],
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


def command(words: str, **variables: str) -> Command:
    return Command(1, tuple(words.split()), variables)


def install(words: str, **variables: str) -> Install:
    [found] = installs([command(words, **variables)], Context(None))
    return found


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("pip install torch==2.0.0 --index-url https://download.pytorch.org/whl/cu118", ["torch"]),
        ("python3 -m pip --no-cache-dir install -U torch numpy", ["torch", "numpy"]),
        ("/opt/venv/bin/pip3.11 install torch", ["torch"]),
        ("uv pip install --system --torch-backend cu126 torch", ["torch"]),
        ("pip install --target x -i https://download.pytorch.org/whl/cpu torch", ["torch"]),
        ("pip install -r requirements.txt", []),
    ],
)
def test_installs(words: str, names: list[str]) -> None:
    assert [wanted.name for wanted in install(words).wanted] == names


WHL = "https://download.pytorch.org/whl"


@pytest.mark.parametrize(
    ("words", "variables", "default", "variants", "unknown"),
    [
        ("pip install torch", {}, True, (), False),
        (f"pip install torch -i {WHL}/cu118", {}, False, ("cu118",), False),
        (f"pip install torch --extra-index-url {WHL}/cu118", {}, True, ("cu118",), False),
        (f"pip install torch -f {WHL}/cu111/torch_stable.html", {}, True, ("cu111",), False),
        ("pip install torch", {"PIP_EXTRA_INDEX_URL": f"{WHL}/cu121"}, True, ("cu121",), False),
        ("uv pip install torch", {"UV_INDEX": f"pytorch={WHL}/cu128"}, True, ("cu128",), False),
        ("pip install torch -i https://mirror.example/pypi/simple", {}, True, (), False),
        (f"pip install --pre torch -i {WHL}/nightly/cu128", {}, False, (), True),
        (f"pip install torch -i {WHL}/rocm6.4", {}, False, (), True),
        ("pip install torch -i ${INDEX}", {}, False, (), True),
        ("pip install torch --extra-index-url https://own.example/simple", {}, True, (), True),
    ],
)
def test_where_an_installer_looks(
    words: str, variables: dict[str, str], default: bool, variants: tuple[str, ...], unknown: bool
) -> None:
    places = install(words, **variables).places
    assert (places.default, places.variants, places.unknown) == (default, variants, unknown)


def test_uv_takes_the_first_index_and_its_backend_is_for_packages_of_pytorch() -> None:
    found = install(f"uv pip install torch numpy --extra-index-url {WHL}/cu118", UV_TORCH_BACKEND="cu126")
    assert not found.places.merges and install("pip install torch").places.merges
    assert (found.looks(from_pytorch=True).variants, found.looks(from_pytorch=False).variants) == (
        ("cu126",),
        ("cu118",),
    )
    assert install("uv pip install --torch-backend auto torch").looks(from_pytorch=True).unknown


@pytest.mark.parametrize("words", ["pip download torch", "pip", "echo pip install torch", "conda install torch"])
def test_what_installs_nothing_through_pip(words: str) -> None:
    assert not list(installs([command(words)], Context(None)))


def test_what_an_install_leaves_open() -> None:
    plain = install("pip install .")
    held = install("pip install --no-build-isolation -e . -c c.txt")
    by_variable = install("pip install x", PIP_CONSTRAINT="/c.txt", PIP_NO_BUILD_ISOLATION="1")
    assert (plain.sources, plain.constrained, plain.isolated) == ((".",), False, True)
    assert (held.sources, held.constrained, held.isolated) == ((".",), True, False)
    assert (by_variable.constrained, by_variable.isolated) == (True, False)
    assert install("pip install torch==${V} x").unread == {"torch"}


REQUIREMENTS = """\
--extra-index-url https://download.pytorch.org/whl/cu118  # where
torch==2.0.0 \\
    --hash=sha256:aa
-r more/other.txt
-r gone.txt
# nothing
"""


def test_requirement_files_of_the_context(tmp_path: Path) -> None:
    (tmp_path / "src" / "more").mkdir(parents=True)
    (tmp_path / "src" / "req.txt").write_text(REQUIREMENTS)
    (tmp_path / "src" / "more" / "other.txt").write_text("numpy\n-r ../req.txt\n")
    (tmp_path / "secret.txt").symlink_to("/etc/hostname")
    [stage] = read_stages(
        "FROM a\nWORKDIR /app\nCOPY src/ .\nCOPY secret.txt <<EOF /tmp/\nscipy\nEOF\n"
        "RUN pip install -r req.txt\nRUN cd /tmp && pip install -r EOF -r secret.txt\n"
    )
    first, second = installs(stage.commands, Context(tmp_path))
    found = [(wanted.name, wanted.file) for wanted in first.wanted]
    assert found == [("torch", "req.txt:2"), ("numpy", "more/other.txt:1")]
    assert (first.files, first.places.variants) == (("gone.txt",), ("cu118",))
    assert ([w.name for w in second.wanted], second.files) == (["scipy"], ("secret.txt",)), "a link leads out of it"


def test_lines_of_requirement_files() -> None:
    assert list(lines(REQUIREMENTS))[1:3] == [(2, "torch==2.0.0"), (4, "-r more/other.txt")]


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


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("conda install -y pytorch", "conda install"),
        ("micromamba create -n x", "micromamba create"),
        ("uv sync --frozen", "uv sync"),
        ("poetry install", "poetry install"),
        ("uv pip install torch", None),
        ("conda clean -a", None),
    ],
)
def test_installers_that_are_not_read(words: str, other: str | None) -> None:
    assert other_installer(command(words)) == other


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("nvcc -arch=sm_75 a.cu", ("sm_75", "compute_75")),
        ("/usr/local/cuda/bin/nvcc -gencode arch=compute_80,code=sm_80 a.cu", ("sm_80",)),
        ("nvcc --generate-code=arch=compute_90,code=[sm_90,compute_90] a.cu", ("sm_90", "compute_90")),
        ("nvcc -arch compute_80 -code sm_86,compute_80 a.cu", ("sm_86", "compute_80")),
        ("nvcc a.cu", ()),
        ("nvcc -arch=native a.cu", (NATIVE,)),
        ("nvcc -arch=all-major a.cu", (EVERY,)),
        ("nvcc --version", None),
        ("nvcc a.o b.o -o c", None),
        ("gcc a.c", None),
    ],
)
def test_the_code_that_nvcc_makes(words: str, code: tuple[str, ...] | None) -> None:
    assert nvcc_code(command(words)) == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("cmake .. -DCMAKE_CUDA_ARCHITECTURES=80;86-real;90-virtual", ("sm_80", "compute_80", "sm_86", "compute_90")),
        ("cmake -D CMAKE_CUDA_ARCHITECTURES=native ..", (NATIVE,)),
        ("cmake -DCMAKE_CUDA_ARCHITECTURES=${ARCHS} ..", None),
        ("cmake ..", None),
    ],
)
def test_the_code_that_cmake_makes(words: str, code: tuple[str, ...] | None) -> None:
    assert cmake_code(command(words)) == code


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("8.0;9.0a+PTX", ("sm_80", "sm_90a", "compute_90a")),
        ("8.0 8.6", ("sm_80", "sm_86")),
        ("Volta;Turing", None),
        ("${LIST}", None),
        ("", None),
    ],
)
def test_the_code_of_torchs_list(value: str, code: tuple[str, ...] | None) -> None:
    assert torch_code(value) == code

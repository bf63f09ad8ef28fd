"""Sources that the build of an image compiles: trees, clones and setup.py, against nvcc, torch and the listed GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve import describe_target, dockerfile
from envsolve.dockerfile.model import Finding
from envsolve.facts.catalogue import Catalogue

AMPERE = "RTX 3090, driver 535.161.08, linux-x86_64"
ADA = "RTX 4090, driver 550.54.14, linux-x86_64"
CU111 = "FROM nvidia/cuda:11.1.1-cudnn8-devel-ubuntu18.04\nRUN apt-get install -y python3.7\n"
CU126 = "FROM nvidia/cuda:12.6.3-devel-ubuntu24.04\n"
CLONE = "RUN git clone https://github.com/facebookresearch/detectron2 d2\nENV FORCE_CUDA=1\n"
LISTED = "ENV TORCH_CUDA_ARCH_LIST=8.9\n"
WHL = "https://download.pytorch.org/whl"
# Findings that have tests of their own: most of these files leave out how torch is installed.
OTHERS = ("image-retired", "base-python", "image-driver", "torch-not-installed")


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


def found(text: str, target: str, catalogue: Catalogue, context: Path | None = None) -> list[Finding]:
    answer = dockerfile.check_dockerfile(text, (describe_target(target, catalogue),), catalogue, context)
    return [one for one in answer.findings if one.code not in OTHERS]


@pytest.mark.parametrize(
    ("text", "target", "level", "says"),
    [
        # A list by names ends before the GPU: only its PTX runs there.
        (CU111 + CLONE + "ENV TORCH_CUDA_ARCH_LIST='Volta;Turing'\nRUN pip install -e d2\n", AMPERE, "warning", "_75"),
        (CU111 + CLONE + "ENV TORCH_CUDA_ARCH_LIST=8.9\nRUN pip install -e d2\n", AMPERE, "error", "not know sm_89"),
        (CU126 + CLONE + "ENV TORCH_CUDA_ARCH_LIST=8.9\nRUN pip install -e d2\n", AMPERE, "error", "no code that runs"),
        (CU126 + CLONE + "ENV TORCH_CUDA_ARCH_LIST=8.0+PTX\nRUN pip install -e d2\n", ADA, "", ""),
        # PTX that is newer than the driver is never compiled.
        (
            CU126 + CLONE + "ENV TORCH_CUDA_ARCH_LIST=7.5+PTX\nRUN pip install -e d2\n",
            ADA,
            "error",
            "cannot compile PTX",
        ),
        # setup.py, with and without cd, and trees that are not known.
        (CU126 + CLONE + "RUN cd d2 && python setup.py develop\n", ADA, "error", "is not set"),
        (CU126 + CLONE + "WORKDIR d2\nRUN python3 setup.py install\n", ADA, "error", "is not set"),
        (CU126 + "RUN git clone https://x.example/own.git\nRUN pip install -e own\n", ADA, "warning", "if own has"),
        ("FROM python:3.12-slim\nRUN git clone https://x.example/own.git\nRUN pip install -e own\n", ADA, "", ""),
        (
            CU126 + "RUN pip install git+https://github.com/NVlabs/tiny-cuda-nn.git#subdirectory=b\n",
            ADA,
            "error",
            "TCNN",
        ),
        # Somebody names GPUs for a source that is not known.
        (CU126 + "RUN TORCH_CUDA_ARCH_LIST=7.5 pip install git+https://github.com/own/a.git\n", ADA, "warning", "8.9"),
        (CU126 + "RUN pip install git+https://github.com/own/a.git\n", ADA, "", ""),
        # An nvcc that a package brings.
        ("FROM debian:12\nRUN apt-get install -y cuda-nvcc-12-8\nRUN pip install -e own\n", ADA, "warning", "if own"),
        (
            "FROM debian:12\nRUN conda install -c nvidia/label/cuda-12.1.1 cuda\nRUN pip install -e own\n",
            ADA,
            "warning",
            "if",
        ),
        # Builds that do not see the torch of the image.
        (
            CU126 + CLONE + "ENV TORCH_CUDA_ARCH_LIST=8.9\nRUN uv pip install -e d2\n",
            ADA,
            "warning",
            "isolated environment",
        ),
        (
            CU126 + CLONE + "ENV TORCH_CUDA_ARCH_LIST=8.9\nRUN pip install -U pip && pip install -e d2\n",
            ADA,
            "warning",
            "isolated environment",
        ),
    ],
)
def test_what_a_source_is_compiled_for(catalogue: Catalogue, text: str, target: str, level: str, says: str) -> None:
    findings = found(text, target, catalogue)
    assert [finding.level for finding in findings] == ([level] if level else []), findings
    assert all(says in finding.text for finding in findings)


def test_a_path_with_a_slash_is_a_directory(catalogue: Catalogue) -> None:
    text = CU126 + "RUN pip install submodules/simple-knn\n"
    assert [finding.code for finding in found(text, ADA, catalogue)] == ["arch-list-unset"]


def test_the_list_that_is_proposed_is_known_to_the_toolkit_of_the_image(catalogue: Catalogue) -> None:
    text = "FROM pytorch/pytorch:1.13.1-cuda11.6-cudnn8-devel\nRUN pip install -e ext\n"
    assert [one.remedies for one in found(text, ADA, catalogue)] == [('ENV TORCH_CUDA_ARCH_LIST="8.6"',)]


def test_a_torch_refuses_entries_that_its_table_lacks(catalogue: Catalogue) -> None:
    torch = f"RUN pip install torch==2.0.1 --index-url {WHL}/cu118\n"
    text = "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n" + torch + CLONE
    findings = found(text + "ENV TORCH_CUDA_ARCH_LIST='8.9;12.0'\nRUN pip install -e d2\n", ADA, catalogue)
    assert any("torch 2.0.1 does not know sm_120" in finding.text for finding in findings), findings


def test_a_list_that_is_given_at_build_time_is_not_judged(catalogue: Catalogue) -> None:
    text = CU126 + CLONE + "ARG TORCH_CUDA_ARCH_LIST\nRUN pip install -e d2\n"
    answer = dockerfile.check_dockerfile(text, (describe_target(ADA, catalogue),), catalogue)
    assert {finding.code for finding in answer.findings} <= {*OTHERS}
    assert any("TORCH_CUDA_ARCH_LIST" in one.text for one in answer.unjudged)


TORCH = "RUN pip install torch==2.9.0\n"
PYTHON = "FROM python:3.12\n"
OTHER_STAGE = "COPY --from=nvidia/cuda:12.6.3-devel-ubuntu24.04 /usr/local/cuda /usr/local/cuda\n"
FORCED = "ENV FLASH_ATTENTION_FORCE_BUILD=TRUE\n"
BOTH = {"torch-not-installed": "error", "toolkit-missing": "warning"}


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (PYTHON + "RUN pip install flash-attn\n", BOTH),
        (PYTHON + "RUN pip install torch flash-attn\n", BOTH),
        (CU126 + "RUN pip install own-tools\nRUN pip install torch-scatter\n", {"torch-not-installed": "warning"}),
        (PYTHON + TORCH + "RUN pip install --no-build-isolation flash-attn\n", {"toolkit-missing": "warning"}),
        (PYTHON + TORCH + FORCED + "RUN pip install flash-attn\n", {"toolkit-missing": "error"}),
        (PYTHON + TORCH + "RUN pip install pycuda\n", {"toolkit-missing": "error"}),
        (CU126 + f"RUN pip install torch==2.9.0 -i {WHL}/cu126\nRUN pip install pycuda\n", {}),
        # A version that is known only at build time is a torch, too.
        (CU126 + "RUN V=$(cat v) && pip install torch==2.9.0+cu${V}\nRUN pip install torch-scatter\n", {}),
        # A toolkit, or a torch, that may come from somewhere else.
        (PYTHON + OTHER_STAGE + TORCH + "RUN pip install pycuda\n", {}),
        (PYTHON + "RUN sh cuda_12.6.3_linux.run --toolkit --silent\n" + TORCH + "RUN pip install pycuda\n", {}),
        (PYTHON + TORCH + "RUN pip install nvidia-cuda-nvcc-cu12\nRUN pip install pycuda\n", {}),
        ("FROM own/image:1\nRUN pip install flash-attn\n", {}),
    ],
)
def test_what_a_build_needs_is_there_before_it(catalogue: Catalogue, text: str, codes: dict[str, str]) -> None:
    answer = dockerfile.check_dockerfile(text, (describe_target("H100, driver 580.95.05", catalogue),), catalogue)
    wanted = ("torch-not-installed", "toolkit-missing")
    assert {one.code: one.level for one in answer.findings if one.code in wanted} == codes


def test_a_setup_that_names_its_gpus_needs_no_list(catalogue: Catalogue, tmp_path: Path) -> None:
    flags = "extra_compile_args={'nvcc': ['-gencode', 'arch=compute_70,code=sm_70']}"
    (tmp_path / "setup.py").write_text(f"setup(ext_modules=[CUDAExtension('a', ['a.cu'], {flags})])")
    text = "FROM nvidia/cuda:12.6.3-devel-ubuntu24.04\nCOPY . /app\nWORKDIR /app\nRUN python3 setup.py install\n"
    target = describe_target("RTX 4090, driver 560.35.03", catalogue)
    report = dockerfile.check_dockerfile(text, (target,), catalogue, tmp_path)
    assert not report.findings
    assert [one.text for one in report.unjudged] == ["/app: its setup.py decides for which GPUs it is compiled"]


@pytest.mark.parametrize(
    ("line", "nvcc"),
    [
        ("RUN conda install -c nvidia cuda-nvcc=12.4", "12.4"),
        ("RUN conda install -c nvidia/label/cuda-12.1.0 cuda", "12.1"),
        ("RUN conda install -c nvidia cuda pytorch-cuda=12.1", "12.1"),
        ("RUN conda install -c nvidia cuda", None),
        ("RUN conda install numpy", "12.6"),
    ],
)
def test_the_nvcc_that_conda_brings(catalogue: Catalogue, line: str, nvcc: str | None) -> None:
    text = f"{CU126}{line}\nRUN TORCH_CUDA_ARCH_LIST=12.0 pip install --no-build-isolation ./ext\n"
    texts = [finding.text for finding in found(text, "RTX 5090, driver 575.51", catalogue)]
    assert [one for one in texts if "does not know sm_120" in one] == (
        [f"TORCH_CUDA_ARCH_LIST=12.0: nvcc {nvcc} does not know sm_120, so the build stops"] if nvcc else []
    )


def test_what_pip_wheel_compiles_is_judged(catalogue: Catalogue) -> None:
    text = "FROM nvidia/cuda:12.6.3-devel-ubuntu24.04\nRUN TORCH_CUDA_ARCH_LIST=9.0 pip wheel -w /wheels ./ext\n"
    report = dockerfile.check_dockerfile(text, (describe_target("RTX 4090", catalogue),), catalogue)
    assert [finding.code for finding in report.findings] == ["arch-list"]


def test_a_setup_that_may_leave_its_extension_out_is_no_certain_fault(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("if os.getenv('BUILD'): e = [CUDAExtension('a', ['a.cu'])]\nsetup()\n")
    for image, levels in ((CU126, ["warning"]), ("FROM python:3.12-slim-bookworm\n", [])):
        text = f"{image}COPY . /app\nWORKDIR /app\nRUN python3 setup.py install\n"
        assert [one.level for one in found(text, ADA, catalogue, tmp_path)] == levels


def test_mmcv_full_leaves_its_gpu_code_out_without_a_gpu(catalogue: Catalogue) -> None:
    text = f"{CU126}RUN pip install torch==1.10.1\nRUN pip install mmcv-full==1.4.0\n"
    assert "cuda-not-forced" in [one.code for one in found(text, ADA, catalogue)]

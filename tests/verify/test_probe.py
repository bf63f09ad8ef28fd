"""Environments that are tried: each holds a torch of a few lines, and a real Python runs it."""

from __future__ import annotations

import os
import sys
import textwrap
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import envsolve
from envsolve.diagnose.model import Diagnoses
from envsolve.errors import UsageError
from envsolve.verify.report import Probe
from envsolve.verify.runner import KERNELS, probe
from envsolve.verify.scripts import find_scripts
from tests.binaries.artefacts import elf
from tests.environment.prefixes import Prefix, install
from tests.verify.clock import LIMIT, pass_limit_once

CARD = "0: NVIDIA H100 80GB HBM3 (cc 9.0)"
H100 = envsolve.describe_target("H100, driver 570.86.15, linux-x86_64, glibc 2.35")

HEALTHY = """
    from torch import cuda, version
    __version__ = version.__version__
    def zeros(*shape, device): pass
"""
STARTS = """
    def init(): pass
    def device_count(): return 1
    def get_device_name(ordinal): return "NVIDIA H100 80GB HBM3"
    def get_device_capability(ordinal): return 9, 0
    def get_arch_list(): return ["sm_80", "sm_90"]
"""
#: Stands for verify's own, which would ask the real driver.
DRIVER = f"""
    from check_support import check
    @check("driver", runs_on="host", order=1)
    def start(): return {{"detail": "CUDA 12.8 driver", "devices": [{CARD[3:]!r}]}}
"""
KERNEL = """
    from check_support import check
    @check({name!r}, runs_on="gpu", order=2, needs=("torch",))
    def multiply(ordinal):
        {body}
        return {{"detail": "all values equal the CPU's"}}
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without a package."""
    folder = tmp_path_factory.mktemp("probe") / "env"
    venv.create(folder)
    return folder


@pytest.fixture
def tried(bare: Path, tmp_path: Path) -> Callable[..., tuple[Probe, ...]]:
    """Tries an environment with a torch of which ``__init__`` and ``cuda`` are given, on a card that is made up."""

    def run(
        init: str = HEALTHY, cuda: str = STARTS, kernel: str = "pass", limit: float = 120.0, **variables: str
    ) -> tuple[Probe, ...]:
        for name, text in (("driver", DRIVER), ("torch-matmul", KERNEL.format(name="torch-matmul", body=kernel))):
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        place = tmp_path / "site"
        version = "__version__, cuda, hip = '2.8.0+cu128', '12.8', None\n"
        files = {"__init__.py": textwrap.dedent(init), "cuda.py": textwrap.dedent(cuda), "version.py": version}
        install(place, "torch", "2.8.0+cu128", {f"torch/{path}": text for path, text in files.items()})
        environ = {"PYTHONPATH": str(place), "LD_LIBRARY_PATH": "", **variables}
        return probe(bare, environ, time_limit=limit, folder=tmp_path)

    return run


def diagnosed(bare: Path, probes: tuple[Probe, ...], site: Path) -> Diagnoses:
    return envsolve.diagnose(
        "", [H100], prefix=bare, probes=probes, environ={"PYTHONPATH": str(site), "PATH": os.devnull}
    )


def outcomes(probes: tuple[Probe, ...]) -> dict[str, str]:
    return {probe.name: probe.outcome for probe in probes}


def test_what_works_is_said_to_with_where_it_came_from(tried: Callable[..., tuple[Probe, ...]], tmp_path: Path) -> None:
    probes = tried()
    names = ["driver", "torch-import", "torch-cuda", "triton-ptxas", "torch-matmul"]
    assert outcomes(probes) == dict.fromkeys(names, "works") | {"triton-ptxas": "skipped"}
    assert probes[1].seen["file"] == str(tmp_path / "site/torch/__init__.py")
    assert probes[2].detail == "1 GPU(s): NVIDIA H100 80GB HBM3 (cc 9.0); code for sm_80 sm_90"
    assert probes[4].gpu == CARD


FAULTS = [
    ("an error", "raise ImportError('libcudart.so.13: cannot open shared object file')", "fails", "libcudart.so.13"),
    ("a signal", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crashes", "was killed by SIGSEGV"),
    ("an exit", "import os; os.write(2, b'illegal'); os._exit(0)", "crashes", "exit code 0; its last output: "),
    (
        "a hang",
        "import pathlib, time; pathlib.Path({hangs!r}).touch(); time.sleep(600)",
        "hangs",
        "within 900 s and was",
    ),
]


@pytest.mark.parametrize(("body", "outcome", "words"), [fault[1:] for fault in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_torch_that_does_not_import_is_told_by_how_it_ends(
    tried: Callable[..., tuple[Probe, ...]],
    bare: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    outcome: str,
    words: str,
) -> None:
    pass_limit_once(tmp_path / "hangs", monkeypatch)
    probes = tried(body.format(hangs=str(tmp_path / "hangs")), limit=LIMIT)
    assert [probe.name for probe in probes] == ["driver", "torch-import"]
    assert (probes[1].outcome, words in probes[1].detail) == (outcome, True), probes[1]
    assert probes[1].failed
    found = diagnosed(bare, probes, tmp_path / "site")
    assert found.probes == probes
    assert found.diagnoses or found.next_steps


def test_an_error_of_cuda_is_told_by_its_signature_and_named_by_its_step(
    tried: Callable[..., tuple[Probe, ...]], bare: Path, tmp_path: Path
) -> None:
    words = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
    probes = tried(cuda=f"def init(): raise RuntimeError({words!r})")
    assert outcomes(probes) == {"driver": "works", "torch-import": "works", "torch-cuda": "fails"}
    old = envsolve.describe_target("H100, driver 470.57.02, linux-x86_64, glibc 2.35")
    found = envsolve.diagnose("", [old], prefix=bare, probes=probes, environ={"PYTHONPATH": str(tmp_path / "site")})
    assert found.diagnoses[0].cause == "driver-too-old"
    assert any(e.startswith("torch-cuda: ") and "too old" in e for e in found.diagnoses[0].evidence)


def test_a_kernel_that_fails_is_told_with_the_card(tried: Callable[..., tuple[Probe, ...]]) -> None:
    probes = tried(kernel="raise RuntimeError('CUDA error: no kernel image is available for execution on the device')")
    assert (probes[-1].gpu, probes[-1].outcome) == (CARD, "fails")
    assert "no kernel image" in probes[-1].detail


def test_a_torch_that_no_path_of_the_environment_leads_to_is_named(
    tried: Callable[..., tuple[Probe, ...]], bare: Path, tmp_path: Path
) -> None:
    """``sitecustomize`` puts a folder first; its own files do not show it."""
    own = tmp_path / "own"
    files = {"torch/__init__.py": "", "torch/version.py": "__version__, cuda = '2.6.0+cu124', '12.4'\n"}
    install(own, "torch", "2.6.0+cu124", files)
    found = diagnosed(bare, tried(), own)
    assert found.diagnoses[0].cause == "torch-replaced"
    assert str(tmp_path / "site") in found.diagnoses[0].explanation


def test_a_python_that_does_not_start_is_the_answer(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(tmp_path / "gone")
    (only,) = envsolve.probe(tmp_path)
    assert (only.name, only.outcome, "is missing" in only.detail) == ("python", "fails", True)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_time_limit_that_is_none_is_refused(tmp_path: Path, limit: float) -> None:
    with pytest.raises(UsageError, match="not a positive number"):
        envsolve.probe(tmp_path, time_limit=limit)


def test_mapped_copies_of_elsewhere_are_told_with_the_step_that_fails(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path / "env")
    prefix.add_torch(needed=())
    library = elf(soname="libcudnn.so.9")
    prefix.add("nvidia-cudnn-cu12", "9.10.2.21", {"nvidia/cudnn/lib/libcudnn.so.9": library})
    place = f"{tmp_path}/cuda/lib64/libcudnn.so.9.1.0"
    seen = Probe("torch-import", None, "works", "", seen={"mapped": place})
    wrong = Probe("torch-convolution", CARD, "crashes", "was killed by SIGSEGV")
    right = Probe("torch-convolution", CARD, "works", "")
    environ = {"HOME": str(tmp_path), "PATH": os.devnull}
    found = envsolve.diagnose("", [H100], prefix=prefix.folder, probes=[seen, wrong], environ=environ)
    assert found.diagnoses[0].cause == "library-shadowed"
    assert "torch-convolution does not work" in found.diagnoses[0].explanation
    dispelled = envsolve.diagnose("", [H100], prefix=prefix.folder, probes=[seen, right], environ=environ)
    assert dispelled.diagnoses == ()
    assert any(place in text for text in dispelled.ruled_out)


@pytest.mark.gpu
def test_a_real_environment_on_a_real_card() -> None:
    """``ENVSOLVE_GPU_PYTHON`` names the Python that has torch, as in tests/verify/test_gpu.py."""
    python = Path(os.environ.get("ENVSOLVE_GPU_PYTHON", sys.executable))
    probes = envsolve.probe(python.absolute().parent.parent, time_limit=180.0)
    assert [p for p in probes if p.failed] == []
    assert {"torch-cuda", "torch-matmul", "triton-ptxas", "triton-kernel"} <= {
        p.name for p in probes if p.outcome == "works"
    }
    mapped = next(p for p in probes if p.name == "torch-cuda").seen["mapped"]
    assert "libcuda.so" in mapped
    assert "libcudart" in mapped
    found = envsolve.diagnose(prefix=python.absolute().parent.parent, probes=probes)
    assert [d.cause for d in found.diagnoses] == []


def test_checks_of_verify_that_are_tried_are_there() -> None:
    assert set(KERNELS) <= {script.name for script in find_scripts() if script.runs_on == "gpu"}

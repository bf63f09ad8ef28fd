"""A small environment with a torch in order, which each test damages."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

import envsolve
from envsolve.diagnose.environment import diagnose_environment
from envsolve.diagnose.model import Diagnoses, Diagnosis, ReportFacts
from envsolve.environment.read import read_environment
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine
from tests.binaries.artefacts import CUBIN, container, elf, entry
from tests.environment.prefixes import Prefix, environ

CATALOGUE = Catalogue()
CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"
RUNTIME = {"nvidia/cuda_runtime/lib/libcudart.so.12": elf(soname="libcudart.so.12")}
PINS = ("nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cudnn-cu12==9.10.2.21", "triton==3.4.0; sys_platform == 'linux'")
H100 = "H100, driver 570.86.15, python 3.12, linux-x86_64"
CODE = container(entry(CUBIN, 80), entry(CUBIN, 90))


@dataclass
class World:
    """An environment with a torch in order, what is set in the shell, and the machine."""

    prefix: Prefix
    variables: dict[str, str] = field(default_factory=dict)
    target: str = H100
    log: str = ""
    changes: dict[str, object] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        return replace(envsolve.describe_target(self.target, CATALOGUE), **self.changes)

    def diagnoses(self) -> Diagnoses:
        home = self.prefix.folder.parent
        (home / "bin").mkdir(exist_ok=True)
        (home / "bin/gcc").touch(mode=0o755)
        variables = {"PATH": str(home / "bin"), **self.variables}
        environment = read_environment(self.prefix.folder, environ(home, **variables), root=home / "root")
        return diagnose_environment(environment, ReportFacts(self.log, self.machine), (), CATALOGUE)

    def first(self) -> Diagnosis:
        return self.diagnoses().diagnoses[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    prefix = Prefix(tmp_path / "env", settings={"include-system-site-packages": "true"})
    prefix.add("pip", "25.0")
    prefix.add_torch(requires=PINS, needed=("libcudart.so.12", "libcudnn.so.9"))
    prefix.add("nvidia-cuda-runtime-cu12", "12.8.90", RUNTIME)
    ops = elf(("libcudnn_graph.so.9",), soname="libcudnn_ops.so.9", runpath="$ORIGIN")
    libraries = {
        CUDNN: elf(soname="libcudnn.so.9"),
        "nvidia/cudnn/lib/libcudnn_ops.so.9": ops,
        "nvidia/cudnn/lib/libcudnn_graph.so.9": elf(soname="libcudnn_graph.so.9"),
    }
    prefix.add("nvidia-cudnn-cu12", "9.10.2.21", libraries)
    prefix.add("triton", "3.4.0", {"triton/__init__.py": ""})
    return World(prefix)

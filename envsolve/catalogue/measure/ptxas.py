"""What a ``ptxas`` program is: its CUDA release, the GPUs it knows, the newest PTX it reads.

The program is asked (``--version``, ``--help``, and a PTX from the future that it must refuse, naming its own version).
Where this host cannot run it, its strings tell all but the PTX version.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

from envsolve.catalogue.measure.model import Assembler, arch_order
from envsolve.errors import UsageError

_LARGEST = 256 << 20
_TIMEOUT_S = 20
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d+\.\d+), V(\d+\.\d+\.\d+)")
_ACCEPTED = re.compile(rb"'(sm_\d{2,3}[af]?)'")
_OWN_ISA = re.compile(rb"current version is '(\d+\.\d+)'")
# Strings hold the names of long dropped sm_ targets too; the compute_ names are exactly those that --help lists.
_COMPUTE = re.compile(rb"(?<=\0)compute_(\d{2,3}[af]?)(?=\0)")


def is_ptxas(name: str) -> bool:
    """Whether a path names a ptxas program: ``bin/ptxas``, ``bin/ptxas-blackwell``, ``ptxas.exe``."""
    return re.fullmatch(r"ptxas(-[a-z]+)?(\.exe)?", name.rsplit("/", 1)[-1]) is not None


def read_ptxas(file: IO[bytes], name: str) -> Assembler:
    """Ask the program where this host can run it, else read its strings.

    Args:
        file: The program, from its start.
        name: Path inside the artefact.

    Raises:
        UsageError: Not a ptxas.
    """
    data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST or not (found := _RELEASE.search(data)):
        raise UsageError(f"{name} is not a ptxas program: it names no CUDA release")
    release = [group.decode() for group in found.groups()]
    archs = _sorted(b"sm_" + digits for digits in _COMPUTE.findall(data))
    with tempfile.TemporaryDirectory(prefix="envsolve-") as folder:
        program = Path(folder, "ptxas")
        program.write_bytes(data)
        program.chmod(0o700)
        if not (answer := _RELEASE.search(_run([str(program), "--version"]))):
            return Assembler(name, release[0], release[1], None, archs, ran=False)
        release = [group.decode() for group in answer.groups()]
        archs = _sorted(_ACCEPTED.findall(_run([str(program), "--help"]))) or archs
        return Assembler(name, release[0], release[1], _newest_isa(program, archs), archs, ran=True)


def _newest_isa(program: Path, archs: Sequence[str]) -> str | None:
    """The newest PTX version, from the refusal of one that does not exist."""
    if not archs:
        return None
    source = program.with_name("future.ptx")
    source.write_text(f".version 99.9\n.target {archs[0]}\n")
    found = _OWN_ISA.search(_run([str(program), "-arch", archs[0], str(source), "-o", str(source.with_suffix(".o"))]))
    return found[1].decode() if found else None


def _run(command: Sequence[str]) -> bytes:
    """What the command prints, whatever its exit status (old ptxas crash after the refusal); empty if it cannot run."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, env={}, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout + done.stderr


def _sorted(names: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(sorted({n.decode() for n in names}, key=arch_order))

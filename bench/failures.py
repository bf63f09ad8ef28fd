"""Programs made to fail on a GPU, diagnosed by their own words; the printed fix is carried out, the program run again.

    python -m bench.failures [--envsolve "COMMAND"] [--keep DIR] [NAME ...]

Run it with a Python that has torch and Triton (and jax, for its two programs), on a machine with an NVIDIA GPU, nvcc
and gcc; no network is needed. Each program is a few lines of shell in a directory of its own. What it prints, after the
lines that people put before an error (``nvidia-smi``, ``nvcc --version``, torch's version), is all that ``envsolve
diagnose --log -`` gets.

A printed command is carried out in the program's shell. Its ``...`` stands for the program's own arguments. Commands
that need a network, root or an answer are not carried out; the row says so and counts as neither fixed nor failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.failing_programs import FAILURES, FILES, Failure

#: Variables of the caller's shell that would decide what the programs do.
_FOREIGN = re.compile(r"CUDA|LD_|TORCH_|TRITON_|JAX_|NVCC_|NCCL_DEBUG|PYTHONPATH|XLA_|CC$|CXX$|CPATH|LIBRARY_PATH")
_OFFLINE_PIP = re.compile(r"pip install\b[^&;|]*--no-build-isolation[^&;|]*(?:\s-e)?\s\.(?=\s|$)")
_NEEDS_MORE = re.compile(
    r"\b(?:pip|pip3|uv|conda|mamba|apt-get|dnf|docker|apptainer|winget|sudo|ubuntu-drivers|reboot|wget|curl)\b"
)
_TIME = 400


def main() -> None:
    """Run the programs and print a row for each, then the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs to run; all if none is named")
    parser.add_argument("--envsolve", default=f"{sys.executable} -m envsolve", help="the command to diagnose with")
    parser.add_argument("--keep", type=Path, help="directory for the programs, their words and the answers")
    given = parser.parse_args()
    root = given.keep or Path(tempfile.mkdtemp(prefix="failures-"))
    root.mkdir(parents=True, exist_ok=True)
    rows = []
    for failure in FAILURES:
        if not given.names or failure.name in given.names:
            rows.append(Trial(failure, root / failure.name, shlex.split(given.envsolve)).row())
            print(" | ".join(rows[-1]), flush=True)
    failed = [row for row in rows if row[1] != "did not fail"]
    named = sum(row[2] == "right" for row in failed)
    carried = [row for row in failed if row[3] in ("works", "fails")]
    works = sum(row[3] == "works" for row in carried)
    print(f"\n{len(failed)} of {len(rows)} programs failed as meant; first cause right: {named} of {len(failed)}")
    print(f"fix carried out: {len(carried)}; the program works afterwards: {works} of {len(carried)}; files: {root}")


class Trial:
    """One program in its directory."""

    def __init__(self, failure: Failure, place: Path, envsolve: Sequence[str]) -> None:
        self.failure, self.place, self.envsolve = failure, place, envsolve
        shutil.rmtree(place, ignore_errors=True)
        for name, text in FILES.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
        tools = place / "tools"
        tools.mkdir()
        # Not a link: reached through one, the interpreter of a virtual environment does not find its packages.
        (tools / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
        (tools / "python").chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not _FOREIGN.search(name)}
        path = f"{tools}:{Path(sys.executable).parent}:{kept['PATH']}:/usr/local/cuda/bin"
        self.environ = {**kept, "PATH": path, "BLAS": _cublas(), "TRITON_CACHE_DIR": str(place / "triton")}

    def row(self) -> tuple[str, ...]:
        """Name, what was diagnosed, whether it is right, what became of the fix, and the command."""
        failure = self.failure
        rc, text = self.shell(f"{failure.broken}\n{failure.program}")
        if rc == 0 and "WORKS" in text:
            return failure.name, "did not fail", "", "", ""
        found = self.diagnosed(text)
        if not found:
            return failure.name, "nothing", "wrong", "no fix", ""
        first = found[0]
        label, fixes = f"{first['cause']} ({first['certainty']})", first["remedies"]
        right = "right" if first["cause"] in failure.causes else "wrong"
        left = "no command"
        for command in (fix["command"] for fix in fixes if fix["command"]):
            shell = self.carried(command)
            if shell is None:
                left = "needs a network or root"
                continue
            rc, after = self.shell(shell, "after")
            if rc == 0 and "WORKS" in after:
                return failure.name, label, right, "works", command
            left = "fails"
            if not re.match(r"(?:which|ldconfig|nvidia-smi|pip list|LD_DEBUG)", command):
                return failure.name, label, right, "fails", command
        return failure.name, label, right, left, next((fix["command"] or fix["text"] for fix in fixes), "")

    def carried(self, command: str) -> str | None:
        """The shell lines of a fix and of the program after it; None if it needs a network, root or an answer."""
        failure = self.failure
        rest = _OFFLINE_PIP.sub("", command)
        if _NEEDS_MORE.search(rest) or "/path/to" in command:
            return None
        if "python ..." in command:
            return f"{failure.broken}\n{command.replace('python ...', failure.program)}"
        if "..." in command:
            return f"{failure.broken}\n{command.replace('...', failure.slot)}\n{failure.after}"
        if failure.after and "pip install" in command:
            return f"{failure.broken}\n(cd twice && {command})\n{failure.after}"
        return f"{failure.broken}\n{command}\n{failure.program}"

    def shell(self, lines: str, name: str = "words") -> tuple[int, str]:
        """Run lines; the exit status, and what they printed after the lines themselves."""
        try:
            done = subprocess.run(
                ["bash", "-c", lines], cwd=self.place, env=self.environ, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_TIME, check=False,
            )  # fmt: skip
            rc, text = done.returncode, done.stdout
        except subprocess.TimeoutExpired as error:
            rc, text = 124, f"{error.output or ''}\nno end after {_TIME} s"
        shown = "\n".join(f"$ {line}" for line in lines.strip().splitlines())
        (self.place / f"{name}.txt").write_text(f"{shown}\n{text}", encoding="utf-8")
        return rc, f"{shown}\n{text}"

    def diagnosed(self, text: str) -> list[dict[str, Any]]:
        report = f"{_machine('torch' in text or 'python' in text)}\n{text}"
        (self.place / "report.txt").write_text(report, encoding="utf-8")
        command = [*self.envsolve, "diagnose", "--log", "-", "--format", "json"]
        done = subprocess.run(command, input=report, stdout=subprocess.PIPE, text=True, check=False)
        (self.place / "answer.json").write_text(done.stdout, encoding="utf-8")
        found: list[dict[str, Any]] = json.loads(done.stdout)["diagnoses"] if done.returncode == 0 else []
        return found


def _cublas() -> str:
    """The cuBLAS of torch's wheels, or of the toolkit."""
    places = [Path(entry) / "nvidia" for entry in sys.path if entry] + [Path("/usr/local")]
    found = (path for place in places if place.is_dir() for path in place.glob("*/lib*/libcublas.so.1[0-9]"))
    return str(next(found, ""))


def _machine(with_torch: bool) -> str:
    """What people put before an error: the driver and the GPUs, the toolkit, torch."""
    commands = ["nvidia-smi", "nvidia-smi -L", "nvcc --version"]
    if with_torch:
        code = "import torch; print('torch', torch.__version__)"
        commands.append(f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}")
    told = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
        told.append(f"$ {command if 'torch' not in command else 'python -c torch.__version__'}\n{done.stdout.strip()}")
    return "\n".join(told)


if __name__ == "__main__":
    main()

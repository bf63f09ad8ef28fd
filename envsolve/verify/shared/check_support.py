"""Shared by the checks: how each is declared, exact comparisons, and the compilers that ran."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

PTXAS_VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
NVRTC = re.compile(r"(?:lib)?nvrtc(?:64_|-[0-9a-f]+\.so\.|\.so\.)(\d\d)[\d._]*(?:\.dll)?")
NVCC = "nvcc.exe" if sys.platform == "win32" else "nvcc"
# Of NVIDIA's wheels for CUDA 12 and 13, of torch's own wheels that bundle CUDA; and of conda (the prefix).
WHEEL_DIRECTORIES = ("nvidia/*/lib", "nvidia/*/bin", "nvidia/*/bin/*", "torch/lib")
PREFIX_DIRECTORIES = ("lib", "Library/bin")
# The problem of attention: keys are the rows of a unit matrix. A query of the first half is a multiple of one key, so
# large that softmax leaves only that key: its row of the answer is a row of the values. A query of the second half is
# zero: its row is the mean of all values, over a power of two. Both are exact in float32, and so is their rounding to
# the kernel's type.
LENGTH = WIDTH = 64
HEADS = 4
# By softmax's scale of 1/8 this is a score of 128 against zeros, and exp(-128) is zero in float32.
LARGE = 1024.0


def check(name, **declared):
    """Declare a function as a check; the arguments are literals, because they are read without importing the script.

    Args:
        name: In reports.
        declared: ``runs_on``, ``order``, ``needs``, ``variables``, ``quick`` and ``builds``; see ``Script`` in
            ``scripts.py``.
    """

    def declare(function):
        function.declared = dict(declared, name=name)
        return function

    return declare


def expect_equal(found, expected, what):
    """Fail unless a tensor of the GPU holds exactly the values of one on the CPU, rounded to its own type.

    Args:
        found: On the GPU, of any type.
        expected: On the CPU, float64, exact.
        what: Names the computation in the error.
    """
    right = expected.to(found.dtype).double()
    wrong = int((found.cpu().double() != right).sum())  # NaN equals nothing, so it is wrong.
    if wrong or found.shape != expected.shape:
        raise ArithmeticError("{}: {} of {} values differ from the CPU's".format(what, wrong, expected.numel()))


def attention_problem(torch):
    """Queries, keys, values and the answer, float64 on the CPU, of shape (1, heads, length, width)."""
    torch.manual_seed(0)
    half = LENGTH // 2
    unit = torch.eye(LENGTH, WIDTH, dtype=torch.float64)
    chosen = torch.stack([torch.randperm(LENGTH)[:half] for _ in range(HEADS)])
    queries = torch.zeros(1, HEADS, LENGTH, WIDTH, dtype=torch.float64)
    queries[0, :, :half] = LARGE * unit[chosen]
    keys = unit.expand(1, HEADS, LENGTH, WIDTH).contiguous()
    values = torch.randint(-8, 8, (1, HEADS, LENGTH, WIDTH)).double()
    answer = values.mean(2, keepdim=True).expand_as(values).clone()
    for head in range(HEADS):
        answer[0, head, :half] = values[0, head, chosen[head]]
    return queries, keys, values, answer


def assemblers():
    """A list that grows with the program of every ptxas that this process starts from now on."""
    found = []
    sys.addaudithook(lambda event, arguments: found.extend(assembler(event, arguments)))
    return found


def assembler(event, arguments):
    """Yield the program of a started ``... --gpu-name=...`` process; Triton 3.0 starts it through a shell."""
    if event != "subprocess.Popen":
        return
    words = [os.fspath(word) for word in arguments[1]]
    if len(words) == 3 and words[1] == "-c":
        words = shlex.split(words[2])
    if any(word.startswith("--gpu-name=") for word in words):
        yield words[0]


def ptxas_seen(found):
    """The last ptxas that ran, to be compared with a plan; nothing if none did."""
    cuda = release(found[-1]) if found else None
    return {**({"ptxas": found[-1]} if found else {}), **({"ptxas_cuda": cuda} if cuda else {})}


def release(program):
    """The release of a ptxas or an nvcc, ``12.9.86``; None if it does not print one."""
    text = subprocess.run([str(program), "--version"], stdout=subprocess.PIPE, check=True).stdout.decode()
    match = re.search(r"\bV(\d+\.\d+\.\d+)", text)
    return match.group(1) if match else None


def ptxas_version(program):
    """Say which ptxas it is: ``ptxas-blackwell 12.9.86``."""
    return "{} {}".format(Path(program).name, release(program) or "of an unknown release")


def nvrtc_path():
    """Find the environment's own NVRTC, that of torch's CUDA if torch is installed; None if there is none."""
    major = torch_cuda_major()
    candidates = (path for directory in library_directories() for path in sorted(directory.glob("*nvrtc*")))
    found = [path for path in candidates if NVRTC.fullmatch(path.name)]
    return next((path for path in found if major in (None, NVRTC.fullmatch(path.name).group(1))), None)


def library_directories():
    """Yield the directories in which an environment keeps CUDA libraries, in the order of its path."""
    for entry in sys.path:
        for pattern in WHEEL_DIRECTORIES:
            yield from sorted(Path(entry or ".").glob(pattern))
    for name in PREFIX_DIRECTORIES:
        yield Path(sys.prefix) / name


def torch_cuda_major():
    """Read the CUDA major of torch out of its ``version.py``, without importing it; None without a CUDA build."""
    for entry in sys.path:
        try:
            text = (Path(entry or ".") / "torch" / "version.py").read_text(encoding="utf-8")
        except OSError:
            continue
        match = re.search(r"(?m)^cuda\b[^=\n]*= *'(\d+)\.", text)
        return match.group(1) if match else None
    return None


def nvcc_path():
    """Find the nvcc that a user of the environment would start, and whether it is the environment's or named for it.

    A toolkit of the system that nobody named may be of any age, and is nothing that the environment answers for.
    """
    for name in ("CUDA_HOME", "CUDA_PATH"):
        path = Path(os.environ.get(name) or "/nonexistent") / "bin" / NVCC
        if path.is_file():
            return path, True
    own = [Path(sys.prefix) / "bin" / NVCC, Path(sys.prefix) / "Library" / "bin" / NVCC]
    own += [folder / NVCC for entry in sys.path for folder in sorted(Path(entry or ".").glob("nvidia/*/bin"))]
    found = next((path for path in own if path.is_file()), None)
    if found:
        return found, True
    for text in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if text and Path(text).is_file():
            return Path(text), False
    return None, False


def nvcc_seen(nvcc):
    """The nvcc that compiled, to be compared with a plan."""
    cuda = release(nvcc)
    return {"nvcc": str(nvcc), "cuda_home": str(Path(nvcc).parent.parent), **({"nvcc_cuda": cuda} if cuda else {})}

from __future__ import annotations

import io

import pytest

from envsolve.binaries.tools import is_ptxas, read_ptxas
from envsolve.errors import UsageError

# The strings that every ptxas has, in no file format that any host runs.
STRINGS = b"\0sm_11\0compute_90\0compute_90a\0compute_75\0Cuda compilation tools, release 12.8, V12.8.93\0compute_12"


@pytest.mark.parametrize(
    ("name", "yes"),
    [
        ("triton/backends/nvidia/bin/ptxas", True),
        ("triton/backends/nvidia/bin/ptxas-blackwell", True),
        ("ptxas.exe", True),
        ("triton/ptxas.py", False),
        ("bin/nvcc", False),
    ],
)
def test_names(name: str, yes: bool) -> None:
    assert is_ptxas(name) is yes


def test_a_program_that_cannot_run_here_is_read() -> None:
    found = read_ptxas(io.BytesIO(STRINGS), "bin/ptxas")
    assert (found.cuda, found.version, found.ran, found.ptx_isa) == ("12.8", "12.8.93", False, None)
    assert found.archs == ("sm_75", "sm_90", "sm_90a")


def test_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="not a ptxas"):
        read_ptxas(io.BytesIO(b"#!/bin/sh\necho release 12.8\n"), "bin/ptxas")

"""Triton compiles a kernel to a cubin for a named card; needs neither GPU nor driver.

Triton itself chooses the ptxas. Which one it ran is read off the process that it started, not guessed from its version.
"""

from __future__ import annotations

import os
from pathlib import Path

from check_cubin import expect_architecture
from check_ptxas import VARIABLES as PTXAS_VARIABLES
from check_ptxas import assemblers, seen, version_of

NAME = "triton-compile"
RUNS_ON = "architecture"
ORDER = 60
NEEDS = ("triton",)
VARIABLES = ("TRITON_INTERPRET", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")

# Triton compiles simple kernels for older cards too, yet serves none of them: PyTorch's inductor refuses them in these
# words ("Triton only supports devices of CUDA Capability >= 7.0", torch/_inductor/exc.py).
OLDEST = 70


def check(capability):
    """Compile for ``capability`` (``9.0``) and look at what came out."""
    major, minor = (int(part) for part in capability.split("."))
    arch = 10 * major + minor
    if arch < OLDEST:
        raise RuntimeError("Triton supports devices of compute capability 7.0 and newer, not {}".format(capability))
    if os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y"):
        raise RuntimeError("with TRITON_INTERPRET set, Triton compiles nothing: it interprets kernels on the CPU")
    ran = assemblers()
    import triton

    for cubin in compiled(triton, arch):
        expect_architecture(cubin, arch)
    if not ran:
        raise RuntimeError("Triton {} made a cubin without running a ptxas".format(triton.__version__))
    detail = "Triton {}: cubins for sm_{} by {}".format(triton.__version__, arch, version_of(ran[-1]))
    return {"detail": "; ".join([detail, *without_effect(ran[-1])]), "seen": seen(ran)}


def without_effect(program):
    """Say it where the user names a ptxas and Triton ran another: it passes over one that it cannot use in silence."""
    named = {name: os.environ[name] for name in PTXAS_VARIABLES if os.environ.get(name)}
    if not any(Path(path).resolve() == Path(program).resolve() for path in named.values()):
        for name, path in named.items():
            yield "{}={} had no effect: Triton ran {}".format(name, path, program)


def compiled(triton, arch):
    """Compile ahead of time: an element-wise kernel, and one for the matrix units, which may be known for fewer cards.

    They have no constants, whose spelling differs between Tritons.
    """
    global tl
    import triton.language as tl

    try:
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError:
        from unittest import SkipTest

        raise SkipTest(
            "Triton {} cannot compile for a card that is not there; 3.0 and newer can".format(triton.__version__)
        ) from None

    @triton.jit
    def multiply_add(x, y, out, count):
        at = tl.program_id(0) * 256 + tl.arange(0, 256)
        inside = at < count
        tl.store(out + at, tl.load(x + at, mask=inside) * tl.load(y + at, mask=inside) + 1.0, mask=inside)

    @triton.jit
    def multiply(left, right, out):
        rows, columns = tl.arange(0, 32), tl.arange(0, 32)
        at = rows[:, None] * 32 + columns[None, :]
        tl.store(out + at, tl.dot(tl.load(left + at), tl.load(right + at)))

    for kernel, signature in (
        (multiply_add, {"x": "*fp32", "y": "*fp32", "out": "*fp32", "count": "i32"}),
        (multiply, {"left": "*fp16", "right": "*fp16", "out": "*fp32"}),
    ):
        yield triton.compile(ASTSource(kernel, signature), target=GPUTarget("cuda", arch, 32)).asm["cubin"]

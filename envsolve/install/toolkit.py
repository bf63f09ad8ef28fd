"""The CUDA toolkit that packages of an environment make up, with what they leave out for linking.

NVIDIA's wheels hold ``lib/libcudart.so.13`` and no ``libcudart.so``, no ``lib64``, and no stub of the driver's library;
a linker asks for the first, builds of old for the second, and what calls the driver itself for the third. (Measured:
the packages of CUDA 13.0 and 13.2 on the default index; a ``CUDAExtension`` fails to link for want of ``-lcudart``.)
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from envsolve.install.errors import InstallError

_LIBRARY = re.compile(r"(?P<name>lib[\w+-]+\.so)(?:\.\d+)+")
_FUNCTION = re.compile(r"\bcu[A-Z]\w*\b")


def complete(home: Path, compiler: str | None) -> None:
    """Give a toolkit of packages the names that linkers and builds look for.

    Args:
        home: ``site-packages/nvidia/cu13``.
        compiler: A C compiler; without one, no stub of the driver's library is made.

    Raises:
        InstallError: The compiler does not run.
    """
    libraries = home / "lib"
    if not (home / "lib64").exists():
        (home / "lib64").symlink_to("lib")
    for library in sorted(libraries.iterdir()):
        match = _LIBRARY.fullmatch(library.name)
        if match and not (libraries / match["name"]).exists():
            (libraries / match["name"]).symlink_to(library.name)
    stub, headers = libraries / "stubs" / "libcuda.so", sorted((home / "include").glob("cuda*.h"))
    if compiler is not None and headers and not stub.exists():
        _write_stub(stub, headers, compiler)


def _write_stub(stub: Path, headers: Sequence[Path], compiler: str) -> None:
    """A library that is linked against in place of the driver's: it has every name of its headers, and does nothing.

    What is linked so asks for ``libcuda.so.1``, which is the driver's own where it runs.
    """
    stub.parent.mkdir(exist_ok=True)
    texts = (header.read_text(encoding="utf-8", errors="replace") for header in headers)
    names = sorted({name for text in texts for name in _FUNCTION.findall(text)})
    source = stub.with_suffix(".c")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names), encoding="ascii")
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(stub), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(
            f"{compiler} does not run: {error}", hint="install a C compiler, or name one in CC"
        ) from error
    source.unlink()
    if done.returncode != 0:
        raise InstallError(f"{compiler} cannot link a library:\n{done.stderr.strip()}", hint="see that it is whole")

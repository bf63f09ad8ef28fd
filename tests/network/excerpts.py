"""Wheels cut out of real ones: the real files that tell what a build is, and few of the megabytes beside them.

Members are read in ranges from the default index. METADATA is the real one; of its requirements those stay whose
libraries the members that were kept need.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence

from envsolve.packages.client import IndexClient
from tests.indexserver import Index

TORCH = (
    "torch/__init__.py",
    "torch/version.py",
    "torch/lib/libc10.so",
    "torch/lib/libc10_cuda.so",
    "torch/lib/libshm.so",
    "torch/lib/libtorch.so",
    "torch/lib/libtorch_global_deps.so",
    "torch/lib/libtorch_python.so",
)
CUDNN = "nvidia/cudnn/lib/libcudnn.so.9", "nvidia/cudnn/lib/libcudnn_graph.so.9"


def add_excerpt(
    ours: Index,
    published: IndexClient,
    package: str,
    version: str,
    members: Sequence[str],
    *,
    requires: str = "(?!)",
    platform: str = "x86_64",
    local: str = "",
) -> None:
    """Serve a wheel with some members of a published one, for any platform.

    Args:
        ours: The index that serves it.
        published: The index that it is cut from.
        requires: Pattern of the requirements that stay.
        platform: Part of the file name of the wheel that is cut.
        local: A local part for its version, ``+cpu``, as PyTorch's own index has it.
    """
    start = f"{package.replace('-', '_')}-{version}-"
    file = next(f for f in published.project(package) if f.filename.startswith(start) and platform in f.filename)
    with published.open(file) as stream, zipfile.ZipFile(stream) as wheel:
        names = wheel.namelist()
        files = {name: wheel.read(name) for name in members if name in names}
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"(?m)^Requires-Dist: (.+)$", wheel.read(info).decode())
    ours.wheel(package, version + local, requires=[line for line in lines if re.match(requires, line)], files=files)

"""Ask the interpreter of an environment about torch, CUDA and Triton; run by verify's ``harness.py``.

Imports nothing of envsolve and keeps to what Python 3.8 understands. Each step prints to stderr what it does before it
does it, in the words of ``collect_env`` if that has some: a process that crashes leaves no result, but these lines
remain.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import site
import sys
from unittest import SkipTest

# As in envsolve.binaries.library, which cannot be imported here.
LIBRARY = re.compile(r"lib(?:cu(?:da|blas|dnn|fft|rand|solver|sparse|pti|file|dss|tensor)|nv|nccl)[\w-]*\.so[\d.]*$")
#: Where each line of Triton keeps its choice of a ptxas, newest first, and what it is asked with; None is the GPU.
CHOICES = (
    ("triton.backends.nvidia.compiler", "get_ptxas", None),  # 3.3 and newer, by the GPU
    ("triton.backends.nvidia.compiler", "get_ptxas", ()),  # 3.4 and 3.5, which have one for all
    ("triton.backends.nvidia.compiler", "_path_to_binary", ("ptxas",)),  # 3.0 to 3.2
    ("triton.common.backend", "path_to_ptxas", ()),  # 2.1 to 2.3
    ("triton.compiler", "path_to_ptxas", ()),  # 2.0
)


def torch_import():
    """Import torch, and say from where, and which CUDA libraries came with it."""
    spec = there("torch")
    say("sys.path: " + os.pathsep.join(sys.path))
    say("the user's own packages: {}".format("looked at" if site.ENABLE_USER_SITE else "not looked at"))
    say(f"torch is found at {spec.origin}")
    import torch

    say(f"PyTorch version: {torch.__version__}")
    say(f"CUDA used to build PyTorch: {torch.version.cuda}")
    found = {"file": os.path.realpath(torch.__file__), "version": str(torch.__version__)}
    detail = f"torch {torch.__version__}, CUDA {torch.version.cuda}, from {torch.__file__}"
    return {"detail": detail, "seen": {**found, "mapped": "\n".join(mapped())}}


def torch_cuda():
    """Start CUDA through torch, and say which GPUs it sees."""
    import torch

    if torch.version.cuda is None and getattr(torch.version, "hip", None):
        raise SkipTest(f"torch {torch.__version__} is a build for ROCm")
    say(f"CUDA driver version: {driver_version()}")
    torch.cuda.init()  # Unlike is_available(), this says what is wrong.
    count = torch.cuda.device_count()
    cards = []
    for ordinal in range(count):
        name, (major, minor) = torch.cuda.get_device_name(ordinal), torch.cuda.get_device_capability(ordinal)
        cards.append(f"{name} (cc {major}.{minor})")
        say(f"GPU {ordinal}: {cards[-1]}")
    codes = " ".join(torch.cuda.get_arch_list())
    say(f"torch.cuda.get_arch_list(): {codes}")
    torch.zeros(1, device="cuda")  # The context: libcuda has loaded all that it will.
    detail = "{} GPU(s): {}; code for {}".format(count, ", ".join(cards), codes)
    return {"detail": detail, "seen": {"mapped": "\n".join(mapped()), "codes": codes}}


def triton_ptxas(capability):
    """Say which ptxas Triton chooses for a compute capability, ``9.0``."""
    there("triton")
    import triton

    say(f"triton is imported from {triton.__file__}")
    path, version = chosen(int(capability.replace(".", "")))
    if path is None:
        raise SkipTest(f"Triton {triton.__version__} does not report which ptxas it uses")
    return {"detail": f"Triton {triton.__version__} takes {path} ({version})", "seen": {"ptxas": path}}


def there(name):
    """Find a package without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise SkipTest(f"{name} is not installed in this environment")
    return spec


def chosen(number):
    """Path and version of the ptxas that Triton uses, as its own function reports it; None if it has none."""
    for module, name, arguments in CHOICES:
        try:
            answer = getattr(importlib.import_module(module), name)(*((number,) if arguments is None else arguments))
        except (ImportError, AttributeError, TypeError):
            continue
        return (str(answer[0]), str(answer[1])) if isinstance(answer, tuple) else (answer.path, str(answer.version))
    return None, None


def mapped():
    """The files of CUDA libraries in this process, links followed; empty if the system does not list them."""
    try:
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            places = {line.split(None, 5)[5].rstrip("\n") for line in maps if line.count("/")}
    except OSError:
        return []
    found = sorted(place for place in places if LIBRARY.match(os.path.basename(place)))  # noqa: PTH119
    for place in found:
        say("mapped: " + place)
    return found


def driver_version():
    """The version that ``libcuda`` reports, as the number that CUDA uses: ``12080``; None if it cannot be loaded."""
    version = ctypes.c_int()
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:  # What torch says of that comes next.
        return None
    cuda.cuDriverGetVersion(ctypes.byref(version))
    return version.value


def say(text):
    """Report now: the next step may end the process."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()

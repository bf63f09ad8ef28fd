"""The environment's own NVRTC compiles a kernel: to machine code for a card, and to PTX that its driver compiles.

torch compiles its fused element-wise kernels (and CuPy all of its own) with it, at run time.
"""

from __future__ import annotations

import ctypes
import re
from unittest import SkipTest

from check_cubin import expect_architecture
from check_driver import UNSUPPORTED_PTX_VERSION, Driver, DriverError
from check_toolkit import nvrtc_path

NAME = "nvrtc"
RUNS_ON = "gpu"
ORDER = 22
NEEDS = ()
QUICK = True
VARIABLES = ("LD_LIBRARY_PATH",)

BUILTINS = "*nvrtc-builtins*[0-9]*"
SOURCE = b"""
extern "C" __global__ void scale_and_add(int *values, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = 3 * values[i] + i;
}
"""


def check(ordinal):
    """Compile for the GPU, launch, and compare every value; then the same by way of PTX."""
    nvrtc = Nvrtc()
    driver = Driver(ordinal)
    major, minor = driver.capability
    driver.prove(driver.load(nvrtc.cubin(10 * major + minor)))
    return {"detail": "{}: cubin, {}; all values are right".format(nvrtc.name, through_ptx(nvrtc, driver))}


def compile_for(capability):
    """Compile for ``capability`` (``9.0``) and look at what came out."""
    nvrtc = Nvrtc()
    arch = int(capability.replace(".", ""))
    expect_architecture(nvrtc.cubin(arch), arch)
    return {"detail": "{}: cubin for sm_{}".format(nvrtc.name, arch)}


def through_ptx(nvrtc, driver):
    """Say how the driver takes the PTX of this NVRTC; minor-version compatibility of CUDA does not promise it."""
    major, minor = driver.capability
    ptx = nvrtc.ptx(10 * major + minor)
    version = re.search(rb"(?m)^\.version (\S+)", ptx).group(1).decode()
    try:
        module = driver.load(ptx)
    except DriverError as error:
        promised = driver.cuda_version >= nvrtc.version
        if error.status != UNSUPPORTED_PTX_VERSION or promised:
            raise
        return "but the driver is for CUDA {}.{} and takes no PTX {}".format(*driver.cuda_version, version)
    driver.prove(module)
    return "PTX {}".format(version)


class Nvrtc:
    """The library, through its C interface."""

    def __init__(self):
        path = nvrtc_path()
        if path is None:
            raise SkipTest("there is no NVRTC in this environment")
        for builtins in sorted(path.parent.glob(BUILTINS)):
            ctypes.CDLL(str(builtins))  # NVRTC 13 looks for it on the loader's path alone; torch loads it in this way.
        self.library = ctypes.CDLL(str(path))
        numbers = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", *map(ctypes.byref, numbers))
        self.version = numbers[0].value, numbers[1].value
        self.name = "NVRTC {}.{}".format(*self.version)

    def cubin(self, arch):
        """Machine code for ``sm_<arch>``."""
        return self.compiled("sm_{}".format(arch), "CUBIN")

    def ptx(self, arch):
        """PTX for ``compute_<arch>``."""
        return self.compiled("compute_{}".format(arch), "PTX")

    def compiled(self, arch, form):
        """Compile the source; NVRTC's own words are in the error."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.call("nvrtcCreateProgram", ctypes.byref(program), SOURCE, b"kernel.cu", 0, None, None)
        options = (ctypes.c_char_p * 1)("--gpu-architecture={}".format(arch).encode())
        try:
            self.call("nvrtcCompileProgram", program, 1, options)
        except RuntimeError as error:
            raise RuntimeError("{} for {}\n{}".format(error, arch, self.log(program)).strip()) from None
        self.call("nvrtcGet{}Size".format(form), program, ctypes.byref(size))
        content = ctypes.create_string_buffer(size.value)
        self.call("nvrtcGet{}".format(form), program, content)
        return content.raw

    def log(self, program):
        """What the compiler said of a program."""
        size = ctypes.c_size_t()
        self.call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value + 1)
        self.call("nvrtcGetProgramLog", program, text)
        return text.value.decode(errors="replace")

    def call(self, name, *arguments):
        """Call NVRTC; fail in its own words."""
        status = getattr(self.library, name)(*arguments)
        if status:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            words = self.library.nvrtcGetErrorString(status).decode()
            raise RuntimeError("{} of NVRTC failed: {}".format(name, words))

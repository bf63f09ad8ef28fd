"""The compilers of an environment: its NVRTC, and the nvcc that its user would start."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from unittest import SkipTest

from check_driver import UNSUPPORTED_PTX_VERSION, Driver, DriverError, expect_architecture
from check_support import check, nvcc_path, nvcc_seen, nvrtc_path

BUILTINS = "*nvrtc-builtins*[0-9]*"
NVRTC_SOURCE = b"""
extern "C" __global__ void scale_and_add(int *values, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = 3 * values[i] + i;
}
"""
COUNT = 1000
NVCC_SOURCE = """
#include <cstdio>
#include <cstdlib>

__global__ void scale_and_add(int *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = 3 * values[i] + i;
}

static void expect(cudaError_t status)
{
    if (status != cudaSuccess) {
        fprintf(stderr, "CUDA error: %s\\n", cudaGetErrorString(status));
        exit(1);
    }
}

int main(int, char **arguments)
{
    const int count = 1000;
    int host[count], *device;
    for (int i = 0; i < count; i++)
        host[i] = i;
    expect(cudaSetDevice(atoi(arguments[1])));
    expect(cudaMalloc(&device, sizeof host));
    expect(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
    scale_and_add<<<8, 128>>>(device, count);
    expect(cudaGetLastError());
    expect(cudaDeviceSynchronize());
    expect(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    for (int value : host)
        printf("%d\\n", value);
}
"""


# torch compiles its fused element-wise kernels, and CuPy all of its own, with NVRTC at run time.
@check("nvrtc", runs_on="gpu", order=22, quick=True, variables=("LD_LIBRARY_PATH",))
def nvrtc(ordinal):
    """Compile for the GPU, launch, and compare every value; then the same by way of PTX."""
    compiler = Nvrtc()
    driver = Driver(ordinal)
    major, minor = driver.capability
    driver.prove(driver.load(compiler.cubin(10 * major + minor)))
    return {"detail": "{}: cubin, {}; all values are right".format(compiler.name, through_ptx(compiler, driver))}


@check("nvrtc", runs_on="architecture", order=22, variables=("LD_LIBRARY_PATH",))
def nvrtc_for(capability):
    """Compile for ``capability`` (``9.0``) and look at what came out."""
    compiler = Nvrtc()
    arch = int(capability.replace(".", ""))
    expect_architecture(compiler.cubin(arch), arch)
    return {"detail": "{}: cubin for sm_{}".format(compiler.name, arch)}


def through_ptx(nvrtc, driver):
    """Say how the driver handles the PTX of this NVRTC; minor-version compatibility of CUDA does not promise it."""
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
            raise SkipTest("NVRTC is not installed in this environment")
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
        self.call("nvrtcCreateProgram", ctypes.byref(program), NVRTC_SOURCE, b"kernel.cu", 0, None, None)
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
        """The compiler's messages on a program."""
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


# An nvcc that is neither the environment's nor named for it (CUDA_HOME) is the system's affair: that it fails is said,
# and is not a failure of the environment.
@check(
    "nvcc",
    runs_on="gpu",
    order=26,
    builds=True,
    variables=("CUDA_HOME", "CUDA_PATH", "CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
)
def nvcc(ordinal):
    """Compile for the GPU, run the program, and compare every value that it prints."""
    driver = Driver(ordinal)
    major, minor = driver.capability
    what = compiled(10 * major + minor, Path("program"), [])
    found = run([str(Path("program").absolute()), str(ordinal)]).split()
    wrong = [i for i in range(COUNT) if found[i : i + 1] != [str(4 * i)]]
    if wrong or len(found) != COUNT:
        raise ArithmeticError("{} of {} values are wrong".format(len(wrong), COUNT))
    return {"detail": "{}: program for sm_{}{}; all values are right".format(name(what), major, minor), "seen": what}


def name(what):
    """The nvcc in words: its version and path."""
    return "nvcc {}".format(what.get("nvcc_cuda", what["nvcc"]))


@check(
    "nvcc",
    runs_on="architecture",
    order=26,
    builds=True,
    variables=("CUDA_HOME", "CUDA_PATH", "CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
)
def nvcc_for(capability):
    """Compile for ``capability`` (``9.0``) and look at what came out."""
    program, answered_for = nvcc_path()
    if program and not answered_for:
        raise SkipTest("{} belongs to the system, so it proves nothing about this environment".format(program))
    arch = int(capability.replace(".", ""))
    what = compiled(arch, Path("kernel.cubin"), ["--cubin"])
    expect_architecture(Path("kernel.cubin").read_bytes(), arch)
    return {"detail": "{}: cubin for sm_{}".format(name(what), arch), "seen": what}


def compiled(arch, result, options):
    """Compile the source in the working directory, which is this check's own; say by which nvcc."""
    program, answered_for = nvcc_path()
    if program is None:
        raise SkipTest("nvcc is neither in this environment nor in CUDA_HOME, nor on PATH")
    Path("kernel.cu").write_text(NVCC_SOURCE, encoding="utf-8")
    target = "--generate-code=arch=compute_{0},code=sm_{0}".format(arch)
    try:
        run([str(program), *options, target, "--output-file", str(result), "kernel.cu"])
    except RuntimeError as error:
        if answered_for:
            raise
        raise SkipTest("{} belongs to the system, and does not support this GPU: {}".format(program, error)) from None
    return nvcc_seen(program)


def run(command):
    """Return what a command prints; fail in its own words."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ended.returncode:
        words = (ended.stdout + ended.stderr).decode(errors="replace").strip()
        raise RuntimeError("{} ended with exit code {}\n{}".format(command[0], ended.returncode, words))
    return ended.stdout.decode()

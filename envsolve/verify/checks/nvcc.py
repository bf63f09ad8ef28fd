"""nvcc, where there is one, compiles a program for the card, and the program computes the right values.

An nvcc that is neither the environment's nor named for it (``CUDA_HOME``) is the system's affair: that it fails is
said, and is no failure of the environment.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest import SkipTest

from check_cubin import expect_architecture
from check_driver import Driver
from check_toolkit import nvcc_path, seen

NAME = "nvcc"
RUNS_ON = "gpu"
ORDER = 26
NEEDS = ()
BUILDS = True
VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CC", "NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")

COUNT = 1000
SOURCE = """
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


def check(ordinal):
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
    """Which nvcc it is, in words."""
    return "nvcc {}".format(what.get("nvcc_cuda", what["nvcc"]))


def compile_for(capability):
    """Compile for ``capability`` (``9.0``) and look at what came out."""
    nvcc, answered_for = nvcc_path()
    if nvcc and not answered_for:
        raise SkipTest("{} is the system's, and proves nothing of this environment".format(nvcc))
    arch = int(capability.replace(".", ""))
    what = compiled(arch, Path("kernel.cubin"), ["--cubin"])
    expect_architecture(Path("kernel.cubin").read_bytes(), arch)
    return {"detail": "{}: cubin for sm_{}".format(name(what), arch), "seen": what}


def compiled(arch, result, options):
    """Compile the source in the working folder, which is this check's own; say by which nvcc."""
    nvcc, answered_for = nvcc_path()
    if nvcc is None:
        raise SkipTest("there is no nvcc: neither in this environment nor in CUDA_HOME, nor on PATH")
    Path("kernel.cu").write_text(SOURCE, encoding="utf-8")
    target = "--generate-code=arch=compute_{0},code=sm_{0}".format(arch)
    try:
        run([str(nvcc), *options, target, "--output-file", str(result), "kernel.cu"])
    except RuntimeError as error:
        if answered_for:
            raise
        raise SkipTest("{} is the system's, and does not serve this card: {}".format(nvcc, error)) from None
    return seen(nvcc)


def run(command):
    """Return what a command prints; fail in its own words."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ended.returncode:
        words = (ended.stdout + ended.stderr).decode(errors="replace").strip()
        raise RuntimeError("{} ended with exit code {}\n{}".format(command[0], ended.returncode, words))
    return ended.stdout.decode()

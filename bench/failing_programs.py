"""The programs of ``bench/failures.py``: what makes each fail, its causes, and the files that it reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """One program.

    Attributes:
        causes: Any of these is right.
        program: Shell lines; prints WORKS at its end.
        broken: Shell lines that set what makes it fail; the fix runs after them.
        slot: What ``...`` of a printed command stands for.
        after: What runs after a command with ``...``; for one that starts the program itself, nothing.
    """

    name: str
    causes: tuple[str, ...]
    program: str
    broken: str = ""
    slot: str = ""
    after: str = ""


USE = "python use.py"
MASK = ("gpu-not-visible", "no-driver")
ARCH = ("nvcc-arch-unknown",)
PTXAS = ("triton-ptxas-lacks-arch", "triton-ptxas-too-old")
COMPILER = ("host-compiler-missing",)
LIBRARY = ("library-shadowed", "library-mismatch")
INLINE = "export TORCH_EXTENSIONS_DIR=$PWD/extensions\npython inline.py"
FAKE = "mkdir -p fake && echo 'int nothing;' > fake/none.c && gcc -shared -fPIC -Wl,-soname,{0} -o fake/{0} fake/none.c"
OLD_PTXAS = "mkdir -p old && cp ptxas-{0} old/ptxas && chmod +x old/ptxas\nexport TRITON_PTXAS_PATH=$PWD/old/ptxas"
BLAS = 'gcc -o blas blas.c "$BLAS" -Wl,--enable-new-dtags,-rpath,"$(dirname "$BLAS")"'
VENV = "python make_venv.py venv && export PATH=$PWD/venv/bin:$PATH"

FAILURES = (
    Failure(
        "wrong-sass",
        ("no-kernel-for-gpu",),
        "nvcc -gencode arch=compute_75,code=sm_75 fill.cu -o fill && ./fill",
        slot="fill.cu -o fill",
        after="./fill",
    ),
    Failure("dropped-arch", ARCH, "nvcc -arch=sm_60 fill.cu -o fill && ./fill", slot="fill.cu -o fill", after="./fill"),
    Failure(
        "cubin-of-ampere",
        ("no-kernel-for-gpu",),
        "nvcc -cubin -arch=sm_86 kernel.cu -o kernel.bin && python load.py kernel.bin",
        slot="-cubin kernel.cu -o kernel.bin",
        after="python load.py kernel.bin",
    ),
    Failure(
        "new-ptx",
        ("ptx-newer-than-driver",),
        "nvcc -ptx -arch=compute_75 kernel.cu -o kernel.bin && sed -i 's/^.version .*/.version 9.9/' kernel.bin\n"
        "python load.py kernel.bin",
        slot="-cubin kernel.cu -o kernel.bin",
        after="python load.py kernel.bin",
    ),
    Failure(
        "ptx-forced",
        ("no-kernel-for-gpu",),
        "nvcc -gencode arch=compute_90,code=sm_90 fill.cu -o fill && ./fill",
        "export CUDA_FORCE_PTX_JIT=1",
        slot="fill.cu -o fill",
        after="./fill",
    ),
    Failure(
        "ptx-disabled",
        ("no-kernel-for-gpu",),
        "nvcc -gencode arch=compute_80,code=compute_80 fill.cu -o fill && ./fill",
        "export CUDA_DISABLE_PTX_JIT=1",
        slot="fill.cu -o fill",
        after="./fill",
    ),
    Failure(
        "hidden-from-cupy",
        MASK,
        "python -c 'import cupy; cupy.arange(3); print(\"WORKS\")'",
        "export CUDA_VISIBLE_DEVICES=-1",
    ),
    Failure("hidden-gpu", MASK, USE, "export CUDA_VISIBLE_DEVICES="),
    Failure("mask-beyond", MASK, USE, "export CUDA_VISIBLE_DEVICES=7"),
    Failure("mask-none", MASK, USE, "export CUDA_VISIBLE_DEVICES=NoDevFiles"),
    Failure("mask-mig", MASK, USE, "export CUDA_VISIBLE_DEVICES=MIG-3f0d5c27-0c6e-5b9a-8a3e-2f6b1f0f7d11"),
    Failure("mask-uuid", MASK, USE, "export CUDA_VISIBLE_DEVICES=GPU-00000000-1111-2222-3333-444444444444"),
    Failure(
        "stub-libcuda",
        ("no-driver",),
        USE,
        "mkdir -p stubs && ln -sf $(ls /usr/local/cuda*/lib64/stubs/libcuda.so | head -n 1) stubs/libcuda.so.1\n"
        "export LD_LIBRARY_PATH=$PWD/stubs",
    ),
    Failure("old-ptxas", PTXAS, "python add.py", OLD_PTXAS.format("11.7")),
    Failure("old-ptxas-version", PTXAS, "python add.py", OLD_PTXAS.format("12.0")),
    Failure("compiler-gone", COMPILER, "python add.py", "export CC=/opt/none/bin/gcc"),
    Failure("nvcc-compiler-gone", COMPILER, "nvcc fill.cu -o fill && ./fill", "export NVCC_CCBIN=/opt/none/bin/g++"),
    Failure("cxx-gone", COMPILER, INLINE, "export CXX=/opt/none/bin/g++"),
    Failure("cuda-home-gone", ("cuda-home-elsewhere", "nvcc-missing"), INLINE, "export CUDA_HOME=/opt/none"),
    Failure("list-unknown", ARCH, INLINE, "export TORCH_CUDA_ARCH_LIST=13.7"),
    Failure(
        "extension-wrong-arch",
        ("no-kernel-for-gpu", "arch-list-unset"),
        "(cd twice && pip install -q --no-build-isolation --no-deps .) && python use_twice.py",
        f'{VENV}\nexport TORCH_CUDA_ARCH_LIST="8.0"',
        after="python use_twice.py",
    ),
    Failure(
        "extension-other-torch",
        ("mixed-flavours",),
        "python -c 'import other._C; print(\"WORKS\")'",
        f"{VENV}\n(cd tree && OTHER=1 pip install -q --no-build-isolation --no-deps -e .)",
    ),
    Failure(
        "shadowed-cublas",
        LIBRARY,
        "./blas",
        f"{BLAS}\n{FAKE.format('$(basename $BLAS)')}\nexport LD_LIBRARY_PATH=$PWD/fake",
    ),
    Failure("other-nccl", LIBRARY, USE, f"{FAKE.format('libnccl.so.2')}\nexport LD_PRELOAD=$PWD/fake/libnccl.so.2"),
    Failure("other-cudnn", LIBRARY, USE, f"{FAKE.format('libcudnn.so.9')}\nexport LD_PRELOAD=$PWD/fake/libcudnn.so.9"),
    Failure("jax-platform", ("cpu-build", "gpu-not-visible"), "python use_jax.py", "export JAX_PLATFORMS=cpu"),
    Failure(
        "jax-without-plugin",
        ("cpu-build",),
        "python use_jax.py",
        "mkdir -p hide/jax_plugins && touch hide/jax_plugins/__init__.py\nexport PYTHONPATH=$PWD/hide",
    ),
    Failure("two-ranks-one-gpu", ("gpu-not-visible",), "torchrun --nproc-per-node=2 reduce.py", slot="reduce.py"),
    Failure("python-headers", ("python-headers-missing",), "gcc -shared -fPIC -o headers.so headers.c && echo WORKS"),
    Failure(
        "too-large",
        ("out-of-memory",),
        'python -c \'import torch; torch.empty(10**13, device="cuda"); print("WORKS")\'',
    ),
)

# The files of the programs.

_KERNEL = 'extern "C" __global__ void fill(int *out) { out[threadIdx.x] = threadIdx.x; }\n'
_EXTENSION = """
#include <torch/extension.h>
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
void run(torch::Tensor x) { twice<<<1, 32>>>(x.data_ptr<float>()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
_OLD = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release {release}, V{release}.99"; exit 0;; esac
echo "{error}" >&2
exit 255
"""
FILES = {
    "fill.cu": f"""#include <cstdio>
{_KERNEL}
int main() {{
  int *out, host[32] = {{0}};
  cudaError_t error = cudaMalloc(&out, sizeof host);
  if (!error) {{ fill<<<1, 32>>>(out); error = cudaGetLastError(); }}
  if (!error) error = cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  if (error) {{ printf("CUDA error: %s\\n", cudaGetErrorString(error)); return 1; }}
  puts(host[31] == 31 ? "WORKS" : "wrong result");
}}
""",
    "kernel.cu": _KERNEL,
    "load.py": """import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
log = ctypes.create_string_buffer(4096)
keys = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 4096)
image, by = open(sys.argv[1], "rb").read(), ctypes.byref
for call in (
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDeviceGet(by(device), 0),
    lambda: cuda.cuDevicePrimaryCtxRetain(by(context), device),
    lambda: cuda.cuCtxSetCurrent(context),
    lambda: cuda.cuModuleLoadDataEx(by(module), image, 2, keys, values),
):
    if code := call():
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(code, ctypes.byref(text))
        sys.exit(f"CUDA error {code}: {text.value.decode()}\\n{log.value.decode()}")
print("WORKS")
""",
    "use.py": """import torch
x = torch.ones(64, 64, device="cuda")
assert (x @ x).sum().item() == 64**3
y = torch.nn.functional.conv2d(x.view(1, 1, 64, 64), torch.ones(1, 1, 3, 3, device="cuda"))
assert y.max().item() == 9
print("WORKS")
""",
    "add.py": """import torch, triton, triton.language as tl
@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, at < n) + 1, at < n)
x = torch.zeros(64, device="cuda")
add[(1,)](x, 64, BLOCK=64)
assert x.sum().item() == 64
print("WORKS")
""",
    "inline.py": """import torch
from torch.utils.cpp_extension import load_inline
module = load_inline("inline_twice", cpp_sources="void run(torch::Tensor x);", cuda_sources='''
__global__ void twice(float *x) { x[threadIdx.x] *= 2; }
void run(torch::Tensor x) { twice<<<1, 32>>>(x.data_ptr<float>()); }''', functions=["run"])
x = torch.ones(32, device="cuda")
module.run(x)
assert x.sum().item() == 64
print("WORKS")
""",
    "twice/twice.cu": _EXTENSION,
    "twice/setup.py": """from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension
modules = [CUDAExtension("twice", ["twice.cu"])]
setup(name="twice", version="1", ext_modules=modules, cmdclass={"build_ext": BuildExtension})
""",
    "use_twice.py": """import torch, twice
x = torch.ones(32, device="cuda")
twice.run(x)
torch.cuda.synchronize()
assert x.sum().item() == 64
print("WORKS")
""",
    "tree/other/__init__.py": "",
    "tree/other/_C.c": """#include <Python.h>
#ifdef OTHER
extern void _ZN3c105ErrorC2ENS_14SourceLocationESs(void);
void *needed = (void *)_ZN3c105ErrorC2ENS_14SourceLocationESs;
#endif
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", 0, -1, 0};
PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
""",
    "tree/setup.py": """import os
from setuptools import Extension, setup
macros = [("OTHER", "1")] if os.environ.get("OTHER") else []
modules = [Extension("other._C", ["other/_C.c"], define_macros=macros)]
setup(name="other", version="1", packages=["other"], ext_modules=modules)
""",
    "tree/pyproject.toml": """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
""",
    "make_venv.py": """import sys, sysconfig, venv, pathlib
place = pathlib.Path(sys.argv[1])
venv.create(place, with_pip=False)
site = next(place.glob("lib/python*/site-packages"))
(site / "base.pth").write_text(sysconfig.get_path("purelib") + "\\n")
pip = place / "bin" / "pip"
pip.write_text(f"#!/bin/sh\\nexec {place.resolve()}/bin/python -m pip \\"$@\\"\\n")
pip.chmod(0o755)
""",
    "blas.c": """#include <stdio.h>
extern int cublasCreate_v2(void **);
int main(void) { void *handle; puts(cublasCreate_v2(&handle) ? "cublas failed" : "WORKS"); }
""",
    "headers.c": "#include <Python.h>\n",
    "reduce.py": """import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(1, device="cuda:0")
dist.all_reduce(x)
if dist.get_rank() == 0:
    print("WORKS")
dist.destroy_process_group()
""",
    "use_jax.py": "import jax\nassert jax.devices('gpu')\nprint('WORKS')\n",
    "ptxas-11.7": _OLD.format(
        release="11.7", error="ptxas fatal   : Value 'sm_90a' is not defined for option 'gpu-name'"
    ),
    "ptxas-12.0": _OLD.format(
        release="12.0", error="ptxas k.ptx, line 5; fatal   : Unsupported .version 8.7; current version is '8.0'"
    ),
}

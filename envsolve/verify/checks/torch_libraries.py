"""Every library of the toolkit that torch can use is used once, by the call that loads it.

torch loads most of them at first use. A library that is missing, or that the loader takes from a toolkit of the
system, shows only there. So each check also looks at which file is mapped.
"""

from __future__ import annotations

import ctypes
import os
import re
from unittest import SkipTest

from check_libraries import device_of, expect_own, mapped, stem_of, used
from check_support import check, expect_equal, library_directories

COUNT = 64
#: Modules of other libraries: a transport of NVSHMEM needs its network, cuFile's RDMA the drivers of an adapter.
PLUGINS = re.compile(r"(?:libcufile_rdma|nvshmem_(?:bootstrap|transport)_\w+|libnvshmem_device)\b")
FUNCTIONS = ("matmul", "mm", "bmm", "addmm", "conv2d", "add", "mul", "sum", "softmax")
METHODS = ("matmul", "__matmul__", "__add__", "add", "mul", "sum", "to", "cpu", "cuda", "item", "tolist", "double")


@check("lib-nvrtc", runs_on="gpu", order=38, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def nvrtc(ordinal):
    """torch compiles a function from source by NVRTC, which opens its builtins; without it torch.special fails."""
    device = device_of(ordinal)
    import torch

    jit = getattr(getattr(torch.cuda, "jiterator", None), "_create_jit_fn", None)
    if jit is None:
        raise SkipTest("torch {} has no jiterator".format(torch.__version__))
    os.environ["PYTORCH_KERNEL_CACHE_PATH"] = os.environ.get("TMPDIR", "/tmp")
    values = torch.arange(COUNT)
    found = jit("template <typename T> T triple(T x) { return 3 * x + 1; }")(values.to(device, torch.float32))
    expect_equal(found, (3 * values + 1).double(), "function compiled by NVRTC")
    return used("a function compiled from source is exact", "libnvrtc", "libnvrtc-builtins")


@check("lib-cublas", runs_on="gpu", order=41, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cublas(ordinal):
    """cuBLAS and cuBLASLt: products in all precisions, TF32, complex, int8, batched, with bias."""
    device = device_of(ordinal)
    import torch

    left, right = (torch.randint(-1, 2, (4, COUNT, COUNT)) for _ in range(2))
    expected = (left @ right).double()
    done = []
    types = [torch.float64, torch.float32, torch.float16]
    types += [torch.bfloat16] if torch.cuda.get_device_capability(device) >= (8, 0) else []
    for dtype in types:
        a, b = left.to(device, dtype), right.to(device, dtype)
        expect_equal(a @ b, expected, "batched product in {}".format(dtype))
        expect_equal(
            torch.addmm(b[0, 0], a[0], b[0]), expected[0] + right[0, 0], "product with bias in {}".format(dtype)
        )
        done.append(str(dtype).split(".")[-1])
    torch.backends.cuda.matmul.allow_tf32 = True
    expect_equal(left.to(device).float() @ right.to(device).float(), expected, "product in TF32")
    complex_ = left.to(device, torch.complex64) @ right.to(device, torch.complex64)
    expect_equal(complex_.real, expected, "product in complex64")
    if hasattr(torch, "_int_mm") and torch.cuda.get_device_capability(device) >= (7, 5):
        whole = torch._int_mm(left[0].to(device, torch.int8), right[0].to(device, torch.int8).t().contiguous().t())
        expect_equal(whole, expected[0], "product in int8")
        done.append("int8")
    done += ["TF32", "complex64"]
    return used("products in {} are exact".format(", ".join(done)), "libcublas", "libcublasLt")


@check("lib-cudnn", runs_on="gpu", order=43, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cudnn(ordinal):
    """cuDNN's parts: convolution forward and backward, transposed and 3-D; RNN; batch norm; CTC is left out."""
    device = device_of(ordinal)
    import torch

    if not torch.backends.cudnn.is_available():
        raise SkipTest("torch {} has no cuDNN".format(torch.__version__))
    functional = torch.nn.functional
    torch.backends.cudnn.allow_tf32 = False
    for name, shape, kernel in (("conv2d", (2, 8, 16, 16), (8, 8, 3, 3)), ("conv3d", (1, 4, 8, 8, 8), (4, 4, 3, 3, 3))):
        images, filters = torch.randint(-4, 5, shape).double(), torch.randint(-1, 2, kernel).double()
        for operation in (name, name.replace("conv", "conv_transpose")):
            compute = getattr(functional, operation)
            grads = []
            for place, dtype in ((torch.device("cpu"), torch.float64), (device, torch.float32)):
                x = images.to(place, dtype, copy=True).requires_grad_()
                w = filters.to(place, dtype, copy=True).requires_grad_()
                y = compute(x, w, padding=1)
                y.backward(torch.ones_like(y))
                grads.append([y.detach(), x.grad, w.grad])
            for at, what in enumerate(("forward", "data gradient", "filter gradient")):
                expect_equal(grads[1][at].round(), grads[0][at], "{} of {}".format(what, operation))
    torch.manual_seed(0)
    rnn = torch.nn.GRU(16, 32, batch_first=True)
    sequence = torch.randn(4, 10, 16)
    expect_close(rnn.to(device)(sequence.to(device))[0], rnn.cpu()(sequence)[0], "GRU")
    images = torch.randint(-4, 5, (8, 16, 8, 8)).float()
    norm = torch.nn.BatchNorm2d(16)
    layout = torch.channels_last
    expect_close(norm.to(device)(images.to(device, memory_format=layout)), norm.cpu()(images), "batch norm")
    parts = ("graph", "ops", "cnn", "adv", "heuristic", "engines_precompiled", "engines_runtime_compiled")
    stems = ["libcudnn"] + ["libcudnn_" + part for part in parts]
    return used("convolution and its gradients, GRU and batch norm are right", *stems)


def expect_close(found, expected, what):
    """Compare values that no type holds exactly: an error of 1e-3 is twenty times what TF32 would cause."""
    found, expected = found.detach().cpu().double(), expected.detach().double()
    wrong = int(((found - expected).abs() > 2e-3 * (1 + expected.abs())).sum()) + int(found.isnan().sum())
    if wrong or found.shape != expected.shape:
        raise ArithmeticError("{}: {} of {} values differ from the CPU's".format(what, wrong, expected.numel()))


@check("lib-cusparse", runs_on="gpu", order=45, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cusparse(ordinal):
    """cuSPARSE multiplies a sparse by a dense matrix; nvJitLink comes with it."""
    device = device_of(ordinal)
    import torch

    dense = torch.randint(-3, 4, (COUNT, COUNT)) * (torch.rand(COUNT, COUNT) < 0.1)
    other = torch.randint(-3, 4, (COUNT, COUNT))
    expected = (dense @ other).double()
    sparse = dense.to(device, torch.float32).to_sparse_csr()
    expect_equal(sparse @ other.to(device, torch.float32), expected, "sparse by dense product")
    expect_equal((sparse @ sparse).to_dense(), (dense @ dense).double(), "sparse by sparse product")
    return used("sparse products are exact", "libcusparse", "libnvJitLink")


@check("lib-cusolver", runs_on="gpu", order=46, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cusolver(ordinal):
    """cuSOLVER factors and solves."""
    device = device_of(ordinal)
    import torch

    if hasattr(torch.backends.cuda, "preferred_linalg_library"):
        torch.backends.cuda.preferred_linalg_library("cusolver")
    matrix = torch.randint(-3, 4, (COUNT, COUNT)).double() + 4 * COUNT * torch.eye(COUNT, dtype=torch.float64)
    answer = torch.randint(-9, 10, (COUNT, 3)).double()
    there = matrix.to(device)
    expect_equal(torch.linalg.solve(there, (matrix @ answer).to(device)).round(), answer, "solution")
    symmetric = matrix @ matrix.t()
    root = torch.linalg.cholesky(symmetric.to(device))
    expect_equal((root @ root.t()).round(), symmetric, "square of the Cholesky factor")
    expect_close(torch.linalg.eigvalsh(symmetric.to(device)), torch.linalg.eigvalsh(symmetric), "eigenvalues")
    expect_close(torch.linalg.svdvals(there), torch.linalg.svdvals(matrix), "singular values")
    q, r = torch.linalg.qr(there)
    expect_equal((q @ r).round(), matrix, "product of QR")
    return used("solve, Cholesky, eigenvalues, SVD and QR are right", "libcusolver", "libcusolverMg")


@check("lib-cufft", runs_on="gpu", order=47, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cufft(ordinal):
    """cuFFT transforms there and back."""
    device = device_of(ordinal)
    import torch

    values = torch.randint(-9, 10, (8, 360)).double()  # 360 has the factors 2, 3 and 5
    there = values.to(device)
    expect_close(torch.view_as_real(torch.fft.fft(there)), torch.view_as_real(torch.fft.fft(values)), "transform")
    expect_equal(torch.fft.irfft(torch.fft.rfft(there), 360).round(), values, "transform there and back")
    prime = values[:, :101]
    two = torch.fft.ifft2(torch.fft.fft2(prime.to(device))).real.round()
    expect_equal(two, prime, "two-dimensional transform of a prime length")
    return used("transforms are right", "libcufft")


@check("lib-curand", runs_on="gpu", order=48, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def curand(ordinal):
    """cuRAND's own generator, whose first numbers for a seed are the same on every GPU; torch only links it."""
    device = device_of(ordinal)
    import torch

    values = torch.rand(100000, device=device)
    if not (0.49 < values.mean().item() < 0.51 and values.min().item() >= 0 and values.max().item() <= 1):
        raise ArithmeticError("torch's random numbers are not uniform: mean {}".format(values.mean().item()))
    paths = mapped().get("libcurand")
    if not paths:
        raise SkipTest("torch {} does not load cuRAND".format(torch.__version__))
    path = paths[0]
    library = ctypes.CDLL(path)
    runs = []
    for _ in range(2):
        generator = ctypes.c_void_p()
        out = torch.zeros(COUNT * COUNT, device=device)
        steps = (
            library.curandCreateGenerator(ctypes.byref(generator), 161),  # CURAND_RNG_PSEUDO_PHILOX4_32_10 of curand.h
            library.curandSetPseudoRandomGeneratorSeed(generator, ctypes.c_ulonglong(7)),
            library.curandGenerateUniform(generator, ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(out.numel())),
        )
        torch.cuda.synchronize(device)
        library.curandDestroyGenerator(generator)
        if any(steps):
            raise RuntimeError("{} failed: status {}".format(path, max(steps)))
        runs.append(out)
    if not torch.equal(*runs) or not 0.45 < runs[0].mean().item() < 0.55 or runs[0].unique().numel() < 4000:
        raise ArithmeticError("{}: the numbers of one seed are not random, or not the same".format(path))
    return used("one seed gives the same uniform numbers twice", "libcurand")


@check("lib-cusparselt", runs_on="gpu", order=49, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cusparselt(ordinal):
    """cuSPARSELt multiplies a matrix with two zeros in each four."""
    device = device_of(ordinal)
    import torch

    backend = getattr(torch.backends, "cusparselt", None)
    if backend is None or not backend.is_available() or torch.cuda.get_device_capability(device) < (8, 0):
        raise SkipTest("torch {} has no cuSPARSELt for this GPU".format(torch.__version__))
    from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

    SparseSemiStructuredTensor._FORCE_CUTLASS = False
    pattern = torch.tensor([0, 0, 1, 1]).tile(128, 32)
    left, right = torch.randint(-2, 3, (128, 128)) * pattern, torch.randint(-2, 3, (128, 128))
    found = to_sparse_semi_structured(left.to(device).half()) @ right.to(device).half()
    expect_equal(found, (left @ right).double(), "structured sparse product")
    return used("a 2:4 sparse product is exact", "libcusparseLt")


@check("lib-nccl", runs_on="gpu", order=58, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def nccl(ordinal):
    """NCCL starts a group of one process and reduces in it."""
    device = device_of(ordinal)
    import torch
    import torch.distributed as distributed

    if not distributed.is_available() or not distributed.is_nccl_available():
        raise SkipTest("torch {} has no NCCL".format(torch.__version__))
    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    values = torch.arange(COUNT, device=device)
    distributed.all_reduce(values)
    gathered = torch.zeros(COUNT, dtype=values.dtype, device=device)
    distributed.all_gather_into_tensor(gathered, values)
    torch.cuda.synchronize(device)
    expect_equal(gathered, torch.arange(COUNT).double(), "sum over one process")
    version = ".".join(map(str, torch.cuda.nccl.version()))
    distributed.destroy_process_group()
    return used("NCCL {}: the sum over one process is exact".format(version), "libnccl")


@check("lib-cupti", runs_on="gpu", order=59, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def cupti(ordinal):
    """torch's profiler records a kernel by CUPTI; without it, or without the right to, times are silently empty."""
    device = device_of(ordinal)
    import torch
    from torch.profiler import ProfilerActivity, profile

    left = torch.ones(COUNT, COUNT, device=device)
    left @ left
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as session:
        left @ left
        torch.cuda.synchronize(device)
    on_gpu = [event.name for event in session.events() if "CUDA" in str(event.device_type)]
    if not on_gpu:
        raise RuntimeError(
            "torch's profiler recorded no kernel; CUPTI is {}".format(mapped().get("libcupti", ["absent"])[0])
        )
    return used("the profiler recorded {} kernel(s)".format(len(on_gpu)), "libcupti")


@check("lib-loads", runs_on="host", order=31, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def loads():
    """Every library of the toolkit that the environment has loads, with all its symbols.

    NVSHMEM, cuFile and the profiler's parts need several GPUs, a file system or rights; immediate binding shows what
    one machine can show of them.
    """
    import torch

    if torch.version.cuda is None:
        raise SkipTest("torch {} is not for CUDA".format(torch.__version__))
    done = {}
    for directory in library_directories():
        wanted = directory.is_dir() and directory.parent.parent.name == "nvidia"
        for path in sorted(directory.glob("lib*.so*")) if wanted else ():
            name = stem_of(path.name)
            if name and name not in done and not PLUGINS.match(path.name):
                ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
                done[name] = path
    if not done:
        raise SkipTest("the environment has no packages with libraries of the toolkit")
    expect_own()
    return {"detail": "{} libraries load: {}".format(len(done), ", ".join(done))}


@check("torch-operators", runs_on="host", order=32, needs=("torch",))
def operators():
    """torch's operators are those that its library defines: a module that replaces one may return anything."""
    import torch

    functional = torch.nn.functional
    named = [("torch." + name, getattr(torch, name)) for name in FUNCTIONS]
    named += [("torch.Tensor." + name, getattr(torch.Tensor, name)) for name in METHODS]
    named += [("torch.nn.functional." + name, getattr(functional, name)) for name in ("conv2d", "linear")]
    for name, function in named:
        code = getattr(function, "__code__", None)
        if code is not None:
            raise RuntimeError("{} is replaced by {} of {}".format(name, code.co_name, code.co_filename))
    home = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep  # noqa: PTH120
    if not os.path.realpath(torch._C.__file__).startswith(home):
        raise RuntimeError("torch is in {}, and its library is {}".format(home, torch._C.__file__))
    if torch.get_default_dtype() != torch.float32:
        raise RuntimeError("the default type is {}, not torch.float32".format(torch.get_default_dtype()))
    modes = getattr(torch._C, "_len_torch_function_stack", lambda: 0)()
    modes += getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)()
    if modes:
        raise RuntimeError("{} mode(s) that replace operators are active before any program starts".format(modes))
    return {"detail": "{} operators are those of torch's own library".format(len(named))}

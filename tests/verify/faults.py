"""A fault for each check: its kernel or its comparison broken in a copy, and the words with which it then fails."""

from __future__ import annotations

from pathlib import Path

from envsolve.verify.scripts import find_scripts

#: Check, what stands in its file, what is put there, words of the failure, its cause.
Fault = tuple[str, str, str, str, str | None]
ENDLESS = ("@%p bra done;", "forever: bra forever;")

ON_A_GPU: list[Fault] = [
    ("driver", '"cuInit", 0', '"cuInit", 1', "cuInit failed: invalid argument", None),
    ("driver-cubin", "arch // 10 == major and arch % 10 <= minor", "arch == 120", "error 209", "no-kernel-for-gpu"),
    ("driver-jit", 'OLDEST = "6.0"', 'OLDEST = "99.0"', "Unsupported .version 99.0", "ptx-newer-than-driver"),
    ("driver-jit", "%value, 3, %i", "%value, 5, %i", "999 of 1000 values are wrong", None),
    ("driver-jit", "add.s64 %at, %base, %at;", "mov.u64 %at, 64;", "cuCtxSynchronize failed", None),
    ("driver-jit", *ENDLESS, "did not end within 15 s and was killed", None),
    ("nvrtc", "3 * values[i]", "5 * values[i]", "999 of 1000 values are wrong", None),
    ("nvrtc", '"sm_{}".format(arch)', '"sm_{}".format(120)', "no kernel image", "no-kernel-for-gpu"),
    ("nvcc", "3 * values[i]", "5 * values[i]", "999 of 1000 values are wrong", None),
    ("nvcc", "arch=compute_{0},code=sm_{0}", "arch=compute_120,code=sm_120", "no kernel image", "no-kernel-for-gpu"),
    ("torch-import", "seen != there", "seen == there", "GPU(s), and the driver lists", None),
    ("torch-elementwise", "left * right + 1", "left * right + 2", "product in torch.float32", None),
    ("torch-code", "* 3 + 1\n", "* 3 + 2\n", "wrong values", None),
    ("torch-matmul", "left.to(device, dtype) @", "left.t().to(device, dtype) @", "product in torch.float32", None),
    ("torch-matmul", "right.t().contiguous()", "right.contiguous()", "product in float8_e4m3fn", None),
    (
        "lib-loads",
        "ctypes.CDLL(str(path), mode",
        'ctypes.CDLL(str(path) + ".lost", mode',
        "cannot open shared object file",
        None,
    ),
    ("torch-operators", "code is not None", "code is None", "has no attribute 'co_name'", None),
    ("lib-nvrtc", "return 3 * x + 1", "return 3 * x + 2", "function compiled by NVRTC", None),
    ("lib-cublas", "(a @ b, expected", "(b @ a, expected", "batched product in torch.float64", None),
    ("lib-cudnn", "(grads[1][at].round()", "(-grads[1][at].round()", "forward of conv2d", None),
    ("lib-cusparse", "sparse @ other", "sparse @ -other", "sparse by dense product", None),
    ("lib-cusolver", "solve(there,", "solve(2 * there,", "solution", None),
    ("lib-cufft", "fft.rfft(there)", "fft.rfft(2 * there)", "transform there and back", None),
    ("lib-curand", "(generator), 161)", "(generator), 999)", "failed: status", None),
    ("lib-cusparselt", "(found, (left @ right)", "(found, (right @ left)", "structured sparse product", None),
    ("lib-nccl", "all_reduce(values)", "all_reduce(values.add_(1))", "sum over one process", None),
    ("lib-cupti", "if not on_gpu", "if on_gpu", "recorded no kernel", None),
    ("lib-nvshmem", "(sent, ctypes.c_void_p(values", "(sent, ctypes.c_void_p(arrived", "sum over one process", None),
    ("lib-cufile", '"cuFileRead", arrived)', '"cuFileRead", arrived.clone())', "file that cuFile read", None),
    ("torch-convolution", "filters.to(device", "-filters.to(device", "convolution in torch.float32", None),
    (
        "torch-attention",
        "found = compute(*inputs)",
        "found = compute(*inputs, is_causal=True)",
        "by flash",
        None,
    ),
    ("triton-kernel", "+ 1.0", "+ 2.0", "10007 of 10007 values differ", None),
    ("triton-dot", "total += tl.dot", "total -= tl.dot", "tl.dot in torch.float16", None),
    ("torch-compile", "found = torch.compile(function", "found = torch.compile(torch.add", "values differ", None),
    ("torch-compile", "torch.compile(function, fullgraph=True)", "function", "without compiling it", None),
    ("torch-extension", "3 * values[i]", "5 * values[i]", "999 of 1000 values differ", None),
    ("torchvision-nms", ", 0.5)", ", 0.9)", "nms kept 1000 boxes", None),
    ("flash-attn", "flash_attn_func(*by_length)", "flash_attn_func(*by_length, causal=True)", "differ", None),
    (
        "xformers-attention",
        "memory_efficient_attention(*by_length)",
        "memory_efficient_attention(*by_length, scale=1e-9)",
        "values differ",
        None,
    ),
    ("bitsandbytes", 'quant_type="nf4"', 'quant_type="fp4"', "differ from the level", None),
    ("peer-copy", "arrived.copy_(sent)", "arrived.copy_(sent + 1)", "copy from GPU 0 to GPU 1", None),
    ("nccl-all-reduce", "(rank + 1)", "(rank + 2)", "0 of 2 processes computed the right sum", None),
]

#: The same for what compiles without a GPU; the architecture is that of 9.0.
COMPILING: list[Fault] = [
    ("triton-compile", 'GPUTarget("cuda", arch, 32)', 'GPUTarget("cuda", 80, 32)', "the cubin is for sm_80", None),
    ("torch-extension", "arch=compute_{0},code=sm_{0}", "arch=compute_80,code=sm_80", "the cubin is for sm_80", None),
    ("nvrtc", '"sm_{}".format(arch)', '"sm_{}".format(80)', "the cubin is for sm_80", None),
    ("nvcc", "arch=compute_{0},code=sm_{0}", "arch=compute_80,code=sm_80", "the cubin is for sm_80", None),
]

#: Of what the checks share: module, what stands in it, what is put there, and a check that then fails.
OF_COMPARISONS = [
    ("check_driver.py", "found[i] != 4 * i", "found[i] != 5 * i", "driver-cubin"),
    ("check_support.py", "right = expected.to", "right = 1 + expected.to", "torch-matmul"),
    ("check_support.py", "values[0, head, chosen[head]]", "values[0, head, :LENGTH // 2]", "torch-attention"),
]


def file_of(name: str) -> Path:
    """The script that declares a check."""
    return next(script.path for script in find_scripts() if script.name == name)

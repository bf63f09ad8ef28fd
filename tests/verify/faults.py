"""A fault for each check: its kernel or its comparison broken in a copy, and the words with which it then fails."""

from __future__ import annotations

#: File, what stands in it, what is put there, words of the failure, its cause.
Fault = tuple[str, str, str, str, str | None]
ENDLESS = ("@%p bra done;", "forever: bra forever;")

ON_A_GPU: list[Fault] = [
    ("driver.py", "cuInit(0)", "cuInit(1)", "cuInit failed: invalid argument", None),
    ("driver_cubin.py", "arch // 10 == major and arch % 10 <= minor", "arch == 120", "error 209", "no-kernel-for-gpu"),
    ("driver_jit.py", 'OLDEST = "6.0"', 'OLDEST = "99.0"', "Unsupported .version 99.0", "ptx-newer-than-driver"),
    ("driver_jit.py", "%value, 3, %i", "%value, 5, %i", "999 of 1000 values are wrong", None),
    ("driver_jit.py", "add.s64 %at, %base, %at;", "mov.u64 %at, 64;", "cuCtxSynchronize failed", None),
    ("driver_jit.py", *ENDLESS, "did not end within 15 s and was killed", None),
    ("nvrtc.py", "3 * values[i]", "5 * values[i]", "999 of 1000 values are wrong", None),
    ("nvrtc.py", '"sm_{}".format(arch)', '"sm_{}".format(120)', "no kernel image", "no-kernel-for-gpu"),
    ("nvcc.py", "3 * values[i]", "5 * values[i]", "999 of 1000 values are wrong", None),
    ("nvcc.py", "arch=compute_{0},code=sm_{0}", "arch=compute_120,code=sm_120", "no kernel image", "no-kernel-for-gpu"),
    ("torch_import.py", "seen != there", "seen == there", "GPU(s), and the driver lists", None),
    ("torch_elementwise.py", "left * right + 1", "left * right + 2", "product in torch.float32", None),
    ("torch_code.py", "* 3 + 1\n", "* 3 + 2\n", "wrong values", None),
    ("torch_matmul.py", "left.to(device, dtype) @", "left.t().to(device, dtype) @", "product in torch.float32", None),
    ("torch_matmul.py", "right.t().contiguous()", "right.contiguous()", "product in float8_e4m3fn", None),
    ("torch_convolution.py", "filters.to(device", "-filters.to(device", "convolution in torch.float32", None),
    (
        "torch_attention.py",
        "found = attention(*inputs)",
        "found = attention(*inputs, is_causal=True)",
        "by flash",
        None,
    ),
    ("triton_kernel.py", "+ 1.0", "+ 2.0", "10007 of 10007 values differ", None),
    ("triton_dot.py", "total += tl.dot", "total -= tl.dot", "tl.dot in torch.float16", None),
    ("torch_compile.py", "found = torch.compile(function", "found = torch.compile(torch.add", "values differ", None),
    ("torch_compile.py", "torch.compile(function, fullgraph=True)", "function", "without compiling it", None),
    ("torch_extension.py", "3 * values[i]", "5 * values[i]", "999 of 1000 values differ", None),
    ("torchvision_nms.py", ", 0.5)", ", 0.9)", "nms kept 1000 boxes", None),
    ("flash_attention.py", "flash_attn_func(*by_length)", "flash_attn_func(*by_length, causal=True)", "differ", None),
    (
        "xformers_attention.py",
        "memory_efficient_attention(*by_length)",
        "memory_efficient_attention(*by_length, scale=1e-9)",
        "values differ",
        None,
    ),
    ("bitsandbytes_4bit.py", 'quant_type="nf4"', 'quant_type="fp4"', "differ from the level", None),
    ("peer_copy.py", "arrived.copy_(sent)", "arrived.copy_(sent + 1)", "copy from GPU 0 to GPU 1", None),
    ("nccl_all_reduce.py", "(rank + 1)", "(rank + 2)", "0 of 2 processes found their sums right", None),
]
COMPANIONS = ("flash_attention.py", "xformers_attention.py", "bitsandbytes_4bit.py")

#: The same for what compiles without a GPU; the architecture is that of 9.0.
COMPILING: list[Fault] = [
    ("triton_compile.py", 'GPUTarget("cuda", arch, 32)', 'GPUTarget("cuda", 80, 32)', "the cubin is for sm_80", None),
    ("nvrtc.py", '"sm_{}".format(arch)', '"sm_{}".format(80)', "the cubin is for sm_80", None),
    ("nvcc.py", "arch=compute_{0},code=sm_{0}", "arch=compute_80,code=sm_80", "the cubin is for sm_80", None),
]

#: Of what the checks share: module, what stands in it, what is put there, and a check that then fails.
OF_COMPARISONS = [
    ("check_driver.py", "found[i] != 4 * i", "found[i] != 5 * i", "driver-cubin"),
    ("check_values.py", "right = expected.to", "right = 1 + expected.to", "torch-matmul"),
    ("check_attention.py", "values[0, head, chosen[head]]", "values[0, head, :LENGTH // 2]", "torch-attention"),
]

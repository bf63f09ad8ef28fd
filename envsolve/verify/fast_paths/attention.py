"""Attention by each kernel that the stack has: compared with exact values, and measured."""

from __future__ import annotations

from check_measuring import attention, need, optional, prepared
from check_support import check


def by_backend(ordinal, name):
    """torch's attention by one of its kernels."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "bfloat16 on matrix units")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend, compute = getattr(SDPBackend, name), torch.nn.functional.scaled_dot_product_attention

    def run(*inputs):
        with sdpa_kernel(backend):
            return compute(*inputs)

    return attention(torch, device, "attention by {}".format(name.lower()), run)


@check("sdpa-flash", runs_on="gpu", order=30, needs=("torch",))
@optional
def flash(ordinal):
    """FlashAttention 2 inside torch."""
    return by_backend(ordinal, "FLASH_ATTENTION")


@check("sdpa-cudnn", runs_on="gpu", order=31, needs=("torch",))
@optional
def cudnn(ordinal):
    """cuDNN's attention."""
    return by_backend(ordinal, "CUDNN_ATTENTION")


@check("sdpa-efficient", runs_on="gpu", order=32, needs=("torch",))
@optional
def efficient(ordinal):
    """The memory-efficient attention inside torch."""
    return by_backend(ordinal, "EFFICIENT_ATTENTION")


@check("sdpa-choice", runs_on="gpu", order=33, needs=("torch",))
@optional
def choice(ordinal):
    """Run the kernel that torch itself chooses."""
    torch, device, capability = prepared(ordinal)
    need(capability, (8, 0), "bfloat16 on matrix units")
    return attention(torch, device, "attention by torch's choice", torch.nn.functional.scaled_dot_product_attention)


def by_length(function):
    """A function of queries, keys and values that has the heads after the length."""

    def run(*inputs):
        found = function(*[tensor.transpose(1, 2).contiguous() for tensor in inputs])
        return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

    return run


@check("flash-attention-2", runs_on="gpu", order=35, needs=("torch", "flash_attn"))
@optional
def flash_2(ordinal):
    """The package flash-attn."""
    torch, device, _ = prepared(ordinal)
    from flash_attn import flash_attn_func

    return attention(torch, device, "flash-attn", by_length(flash_attn_func))


@check("flash-attention-3", runs_on="gpu", order=36, needs=("torch", "flash_attn_interface"))
@optional
def flash_3(ordinal):
    """The package flash-attn-3, for 9.0."""
    torch, device, _ = prepared(ordinal)
    from flash_attn_interface import flash_attn_func

    return attention(torch, device, "FlashAttention 3", by_length(flash_attn_func))


@check("flash-attention-4", runs_on="gpu", order=37, needs=("torch", "flash_attn", "cutlass"))
@optional
def flash_4(ordinal):
    """The package flash-attn-4, written in CuTe's Python."""
    torch, device, _ = prepared(ordinal)
    from flash_attn.cute import flash_attn_func

    return attention(torch, device, "FlashAttention 4", by_length(flash_attn_func))

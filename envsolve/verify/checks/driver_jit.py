"""The driver compiles a small PTX for the GPU, and the kernel computes the right values.

The PTX is of an old ISA that every supported driver takes and holds no machine code, so the driver must compile it.
"""

from __future__ import annotations

import ctypes
import os
import sys

NAME = "driver-jit"
RUNS_ON = "gpu"
ORDER = 20
NEEDS = ()

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# CUjit_option of cuda.h.
ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6
COUNT, BLOCK = 1000, 128

# values[i] = 3 * values[i] + i
PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry scale_and_add(.param .u64 values, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %block, %width, %thread, %i, %count, %value;
    .reg .b64 %base, %at;

    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.s32 %i, %block, %width, %thread;
    ld.param.u32 %count, [count];
    setp.ge.u32 %p, %i, %count;
    @%p bra done;
    ld.param.u64 %base, [values];
    cvta.to.global.u64 %base, %base;
    mul.wide.u32 %at, %i, 4;
    add.s64 %at, %base, %at;
    ld.global.u32 %value, [%at];
    mad.lo.s32 %value, %value, 3, %i;
    st.global.u32 [%at], %value;
done:
    ret;
}
"""


def check(ordinal):
    """Compile, launch, and compare every value."""
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # An old compilation must not stand in for a new one.
    cuda = ctypes.CDLL(LIBRARY)
    call(cuda, "cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call(cuda, "cuDeviceGet", ctypes.byref(device), int(ordinal))
    call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call(cuda, "cuCtxSetCurrent", context)
    function = compiled(cuda)
    found = launched(cuda, function, list(range(COUNT)))
    wrong = [i for i in range(COUNT) if found[i] != 4 * i]
    if wrong:
        first = wrong[0]
        raise ArithmeticError(
            "{} of {} values are wrong; value {} is {}, not {}".format(
                len(wrong), COUNT, first, found[first], 4 * first
            )
        )
    return {"detail": "the driver compiled PTX, and all {} values are right".format(COUNT)}


def compiled(cuda):
    """Have the driver compile the PTX; its compiler's own words are in the error."""
    log = ctypes.create_string_buffer(8192)
    options = (ctypes.c_int * 2)(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES)
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        call(cuda, "cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(PTX), 2, options, values)
    except RuntimeError as error:
        raise RuntimeError("{}\n{}".format(error, log.value.decode(errors="replace")).strip()) from None
    call(cuda, "cuModuleGetFunction", ctypes.byref(function), module, b"scale_and_add")
    return function


def launched(cuda, function, numbers):
    """Run the kernel over ``numbers`` and return what it left in the GPU's memory."""
    host = (ctypes.c_int32 * len(numbers))(*numbers)
    memory, count = ctypes.c_uint64(), ctypes.c_uint32(len(numbers))
    call(cuda, "cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(ctypes.sizeof(host)))
    call(cuda, "cuMemcpyHtoD_v2", memory, host, ctypes.c_size_t(ctypes.sizeof(host)))
    parameters = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(count))
    blocks = -(-len(numbers) // BLOCK)
    call(cuda, "cuLaunchKernel", function, blocks, 1, 1, BLOCK, 1, 1, 0, None, parameters, None)
    call(cuda, "cuCtxSynchronize")
    call(cuda, "cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(ctypes.sizeof(host)))
    call(cuda, "cuMemFree_v2", memory)
    return list(host)


def call(cuda, name, *arguments):
    """Call the driver; fail in its own words."""
    status = getattr(cuda, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        words = (text.value or b"unknown error").decode()
        raise RuntimeError("{} failed: {} (error {})".format(name, words, status))

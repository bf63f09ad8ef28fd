"""The driver API through ctypes, as far as the checks need it: a context, a module, one kernel, and what it left."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
# CUjit_option of cuda.h.
ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6
# CUdevice_attribute of cuda.h.
CC_MAJOR, CC_MINOR = 75, 76
# CUresult of cuda.h.
OUT_OF_MEMORY, UNSUPPORTED_PTX_VERSION = 2, 222
EM_CUDA = 190

KERNEL = b"scale_and_add"
COUNT, BLOCK = 1000, 128


class DriverError(RuntimeError):
    """A call that failed, in the driver's own words; ``status`` is its CUresult."""

    def __init__(self, words, status):
        super().__init__(words)
        self.status = status


def call(cuda, name, *arguments):
    """Call the driver; fail in its own words."""
    status = getattr(cuda, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        words = (text.value or b"unknown error").decode(errors="replace")
        raise DriverError("{} failed: {} (error {})".format(name, words, status), status)


def number(cuda, name, *arguments):
    """The integer that a call of the driver returns by its first argument."""
    value = ctypes.c_int()
    call(cuda, name, ctypes.byref(value), *arguments)
    return value.value


def version_of(cuda):
    """The CUDA version of the driver, ``(13, 0)``."""
    version = number(cuda, "cuDriverGetVersion")
    return version // 1000, version % 1000 // 10


def capability_of(cuda, device):
    """The compute capability of a GPU, ``(9, 0)``."""
    return tuple(number(cuda, "cuDeviceGetAttribute", attribute, device) for attribute in (CC_MAJOR, CC_MINOR))


class Driver:
    """The primary context of one GPU."""

    def __init__(self, ordinal):
        os.environ["CUDA_CACHE_DISABLE"] = "1"  # An old compilation must not stand in for a new one.
        self.cuda = ctypes.CDLL(LIBRARY)
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.device = number(self.cuda, "cuDeviceGet", int(ordinal))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.call("cuCtxSetCurrent", context)
        self.cuda_version = version_of(self.cuda)
        self.capability = capability_of(self.cuda, self.device)

    def call(self, name, *arguments):
        """Call the driver; fail in its own words."""
        call(self.cuda, name, *arguments)

    def load(self, image):
        """Load a cubin, or compile PTX; the words of the driver's own compiler are in the error."""
        log = ctypes.create_string_buffer(8192)
        options = (ctypes.c_int * 2)(ERROR_LOG_BUFFER, ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        module = ctypes.c_void_p()
        try:
            self.call("cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(image), 2, options, values)
        except DriverError as error:
            words = "{}\n{}".format(error, log.value.decode(errors="replace")).strip()
            raise DriverError(words, error.status) from None
        return module

    def prove(self, module):
        """Launch ``values[i] = 3 * values[i] + i`` of a module over ``values[i] == i``, and compare every value."""
        found = self.launch(module, list(range(COUNT)))
        wrong = [i for i in range(COUNT) if found[i] != 4 * i]
        if wrong:
            first = wrong[0]
            raise ArithmeticError(
                "{} of {} values are wrong; value {} is {}, not {}".format(
                    len(wrong), COUNT, first, found[first], 4 * first
                )
            )

    def launch(self, module, numbers):
        """Run the kernel of a module over ``numbers``; return what it left in the GPU's memory."""
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, KERNEL)
        host = (ctypes.c_int32 * len(numbers))(*numbers)
        size = ctypes.c_size_t(ctypes.sizeof(host))
        memory, count = ctypes.c_uint64(), ctypes.c_uint32(len(numbers))
        self.call("cuMemAlloc_v2", ctypes.byref(memory), size)
        self.call("cuMemcpyHtoD_v2", memory, host, size)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(count))
        blocks = -(-len(numbers) // BLOCK)
        self.call("cuLaunchKernel", function, blocks, 1, 1, BLOCK, 1, 1, 0, None, parameters, None)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", host, memory, size)
        self.call("cuMemFree_v2", memory)
        return list(host)


def free_memory(ordinal):
    """Free memory of a GPU, in MiB; none if it is too full for another context."""
    try:
        driver = Driver(ordinal)
    except DriverError as error:
        if error.status != OUT_OF_MEMORY:
            raise
        return 0
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value >> 20


def architecture_of(cubin):
    """Read the SM number out of the header: low byte of e_flags up to ABI 7, the next byte from ABI 8 on."""
    if cubin[:4] != b"\x7fELF" or struct.unpack_from("<H", cubin, 18)[0] != EM_CUDA:
        raise RuntimeError("the compiled code is not a CUDA ELF file: it starts with {!r}".format(cubin[:20]))
    abi, flags = cubin[8], struct.unpack_from("<I", cubin, 48)[0]
    return (flags >> 8 if abi >= 8 else flags) & 0xFF


def expect_architecture(cubin, wanted):
    """Fail unless a cubin is for ``sm_<wanted>``."""
    found = architecture_of(cubin)
    if found != wanted:
        raise RuntimeError("asked for sm_{}, and the cubin is for sm_{}".format(wanted, found))

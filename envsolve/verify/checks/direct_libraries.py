"""NVSHMEM and cuFile, used through their own C interfaces.

torch calls them only in programs of several GPUs, or that read files past the CPU: a fault would show there first.
"""

from __future__ import annotations

import ctypes
import os
from unittest import SkipTest

from check_libraries import device_of, own_libraries, provider_of, used
from check_support import check, expect_equal

COUNT = 4096
#: NVSHMEMX_INIT_WITH_UNIQUEID of nvshmemx_api.h.
WITH_UNIQUE_ID = 1 << 3
#: The first version of a structure in nvshmem_types.h is this plus its size; newer releases still read it.
VERSION_1 = 1 << 16
#: CU_FILE_HANDLE_TYPE_OPAQUE_FD of cufile.h.
BY_DESCRIPTOR = 1
#: CUfileOpError of cufile.h: what the machine or the file system does not offer, although the library is sound.
NOT_OFFERED = {
    5001: "nvidia-fs is not loaded, and the settings forbid the compatibility mode",
    5004: "the version of nvidia-fs does not fit",
    5005: "the version of nvidia-fs cannot be read",
    5007: "the platform is not supported",
    5008: "the file system is not supported",
    5009: "the GPU is not supported",
    5018: "the file system is not supported",
    5025: "access is denied",
    5027: "the file was not registered: its file system is not supported",
    5034: "the settings forbid it for this file",
}


def library_of(stem):
    """The environment's own library of that name, opened; skip the check if no package provides one."""
    paths = own_libraries().get(stem)
    if not paths:
        provider = provider_of(stem)
        if provider:
            raise RuntimeError("{1} of {0} is missing".format(*provider))
        raise SkipTest("this environment has no {}".format(stem))
    return ctypes.CDLL(paths[0], mode=os.RTLD_NOW | os.RTLD_GLOBAL)


class UniqueId(ctypes.Structure):
    """``nvshmemx_uniqueid_v1``."""

    _fields_ = [("version", ctypes.c_int), ("internal", ctypes.c_char * 124)]


class IdArguments(ctypes.Structure):
    """``nvshmemx_uniqueid_args_v1``."""

    _fields_ = [("version", ctypes.c_int), ("id", ctypes.c_void_p), ("rank", ctypes.c_int), ("ranks", ctypes.c_int)]


class Arguments(ctypes.Structure):
    """``nvshmemx_init_args_v1``, which has 128 bytes."""

    _fields_ = [("version", ctypes.c_int), ("by_id", IdArguments), ("padding", ctypes.c_char * 96)]


class Attributes(ctypes.Structure):
    """``nvshmemx_init_attr_v1``."""

    _fields_ = [("version", ctypes.c_int), ("mpi", ctypes.c_void_p), ("arguments", Arguments)]


def version_1(kind):
    """An empty structure of its first version."""
    return kind(version=VERSION_1 + ctypes.sizeof(kind))


def started(library):
    """Start NVSHMEM with this process alone; a failure there ends the process, with NVSHMEM's words on stderr."""
    # One process needs neither a network nor a large heap.
    os.environ.update(NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME="lo", NVSHMEM_REMOTE_TRANSPORT="none")
    os.environ.update(NVSHMEM_SYMMETRIC_SIZE="64M")
    identity, attributes = version_1(UniqueId), version_1(Attributes)
    attributes.arguments.version = VERSION_1 + ctypes.sizeof(Arguments)
    attributes.arguments.by_id.version = VERSION_1 + ctypes.sizeof(IdArguments)
    steps = (
        ("nvshmemx_get_uniqueid", (ctypes.byref(identity),)),
        ("nvshmemx_set_attr_uniqueid_args", (0, 1, ctypes.byref(identity), ctypes.byref(attributes))),
        ("nvshmemx_hostlib_init_attr", (WITH_UNIQUE_ID, ctypes.byref(attributes))),
    )
    for name, arguments in steps:
        status = getattr(library, name)(*arguments)
        if status:
            raise RuntimeError("{} failed: status {}".format(name, status))


@check("lib-nvshmem", runs_on="gpu", order=59, needs=("torch",), variables=("LD_LIBRARY_PATH",))
def nvshmem(ordinal):
    """NVSHMEM starts with one process, copies into its symmetric memory and back, and sums there."""
    device = device_of(ordinal)
    import torch

    library = library_of("libnvshmem_host")
    if not hasattr(library, "nvshmemx_hostlib_init_attr"):
        raise SkipTest("only the device library can start this NVSHMEM")
    release = [ctypes.c_int() for _ in range(3)]
    library.nvshmemx_vendor_get_version_info(*map(ctypes.byref, release))
    values = torch.arange(COUNT, dtype=torch.int32, device=device)
    arrived = torch.zeros_like(values)
    torch.cuda.synchronize(device)
    started(library)
    if (library.nvshmem_my_pe(), library.nvshmem_n_pes()) != (0, 1):
        raise RuntimeError("NVSHMEM counts {} processes, not 1".format(library.nvshmem_n_pes()))
    library.nvshmem_malloc.restype = ctypes.c_void_p
    size = ctypes.c_size_t(4 * COUNT)
    sent, summed = (ctypes.c_void_p(library.nvshmem_malloc(size)) for _ in range(2))
    if not sent or not summed:
        raise RuntimeError("nvshmem_malloc returned no memory")
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    library.nvshmemx_putmem_on_stream(sent, ctypes.c_void_p(values.data_ptr()), size, 0, stream)
    # The sum over all processes is launched as a kernel of the library's own; the first team holds all of them.
    library.nvshmemx_int32_sum_reduce_on_stream(0, summed, sent, ctypes.c_size_t(COUNT), stream)
    library.nvshmemx_getmem_on_stream(ctypes.c_void_p(arrived.data_ptr()), summed, size, 0, stream)
    library.nvshmemx_barrier_all_on_stream(stream)
    torch.cuda.synchronize(device)
    expect_equal(arrived, torch.arange(COUNT).double(), "sum over one process")
    library.nvshmem_free(sent)
    library.nvshmem_free(summed)
    library.nvshmemx_hostlib_finalize()
    named = ".".join(str(part.value) for part in release)
    return used("NVSHMEM {}: the sum over one process is exact".format(named), "libnvshmem_host")


class Status(ctypes.Structure):
    """``CUfileError_t``."""

    _fields_ = [("code", ctypes.c_int), ("driver", ctypes.c_int)]


class Descriptor(ctypes.Structure):
    """``CUfileDescr_t``; the handle is a union as large as a pointer."""

    _fields_ = [("kind", ctypes.c_int), ("handle", ctypes.c_void_p), ("operations", ctypes.c_void_p)]


def done(library, name, *arguments):
    """Call cuFile; skip what the machine does not offer."""
    function = getattr(library, name)
    function.restype = Status
    status = function(*arguments)
    if status.code in NOT_OFFERED:
        raise not_offered(name, status.code)
    if status.code:
        raise RuntimeError("{} failed: cuFile error {}, driver error {}".format(name, status.code, status.driver))


def not_offered(name, code):
    """A skip with the last line of cuFile's own log, which names the device or the file system."""
    try:
        with open("cufile.log", encoding="utf-8", errors="replace") as log:  # noqa: PTH123
            said = [line.strip() for line in log if "ERROR" in line][-1:]
    except OSError:
        said = []
    return SkipTest("; ".join(["{}: {} (cuFile error {})".format(name, NOT_OFFERED[code], code), *said]))


def registered(library):
    """A descriptor and a handle of a new file, past the page cache if that is offered: before 1.7 cuFile needs it."""
    ways = [getattr(os, "O_DIRECT", 0), 0]
    for number, flags in enumerate(ways):
        handle, file = ctypes.c_void_p(), None
        try:
            file = os.open("values", os.O_CREAT | os.O_RDWR | flags, 0o600)  # The directory is that of this check.
            described = Descriptor(kind=BY_DESCRIPTOR, handle=file)
            done(library, "cuFileHandleRegister", ctypes.byref(handle), ctypes.byref(described))
            return file, handle
        except (OSError, SkipTest):
            if file is not None:
                os.close(file)
            if number == len(ways) - 1:
                raise
    raise AssertionError("a call returned an error or raised")


@check("lib-cufile", runs_on="gpu", order=59, needs=("torch",), variables=("LD_LIBRARY_PATH", "CUFILE_ENV_PATH_JSON"))
def cufile(ordinal):
    """cuFile writes the GPU's memory to a file and reads it back, through the CPU's if nvidia-fs is not loaded."""
    device = device_of(ordinal)
    import torch

    library = library_of("libcufile")
    values = torch.arange(COUNT, dtype=torch.int32, device=device)
    arrived = torch.zeros_like(values)
    torch.cuda.synchronize(device)
    done(library, "cuFileDriverOpen")
    file, handle = registered(library)
    size = 4 * COUNT
    for name, tensor in (("cuFileWrite", values), ("cuFileRead", arrived)):
        function = getattr(library, name)
        function.restype = ctypes.c_ssize_t
        memory, offset = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_long(0)
        moved = function(handle, memory, ctypes.c_size_t(size), offset, offset)
        if -moved in NOT_OFFERED:
            raise not_offered(name, -moved)
        if moved != size:
            raise RuntimeError("{} moved {} of {} bytes".format(name, moved, size))
    library.cuFileHandleDeregister(handle)
    os.close(file)
    library.cuFileDriverClose()
    with open("values", "rb") as written:  # noqa: PTH123
        found = torch.frombuffer(bytearray(written.read()), dtype=torch.int32)
    expect_equal(found, torch.arange(COUNT).double(), "file that cuFile wrote")
    expect_equal(arrived, torch.arange(COUNT).double(), "file that cuFile read")
    way = "nvidia-fs" if os.path.isdir("/proc/driver/nvidia-fs") else "the CPU's memory"  # noqa: PTH112
    return used("a file written and read through {} is exact".format(way), "libcufile")

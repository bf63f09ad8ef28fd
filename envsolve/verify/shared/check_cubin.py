"""What an ELF cubin says of itself."""

from __future__ import annotations

import struct

EM_CUDA = 190


def architecture_of(cubin):
    """Read the SM number out of the header: low byte of e_flags up to ABI 7, the next byte from ABI 8 on."""
    if cubin[:4] != b"\x7fELF" or struct.unpack_from("<H", cubin, 18)[0] != EM_CUDA:
        raise RuntimeError("what was compiled is no CUDA ELF file: it starts with {!r}".format(cubin[:20]))
    abi, flags = cubin[8], struct.unpack_from("<I", cubin, 48)[0]
    return (flags >> 8 if abi >= 8 else flags) & 0xFF


def expect_architecture(cubin, wanted):
    """Fail unless a cubin is for ``sm_<wanted>``."""
    found = architecture_of(cubin)
    if found != wanted:
        raise RuntimeError("asked for sm_{}, and the cubin is for sm_{}".format(wanted, found))

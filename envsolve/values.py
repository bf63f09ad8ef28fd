"""Value types of the domain: versions, variants, compute capabilities and code architectures.

They parse the texts of drivers, wheels and JSON, compare in the order that vendors define, and print the same text.
The standard library is enough to import this module, so that every package may use it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

# Python refuses to convert 4,300 digits, as a damaged pyvenv.cfg may have them.
_NUMBERS = re.compile(r"\s*(\d{1,40}(?!\d)(?:\.\d{1,40}(?!\d))*)")
_VARIANT = re.compile(r"cu(?P<cuda>\d{2,3})|rocm(?P<rocm>\d+(?:\.\d+)*)|(?P<plain>cpu|xpu|mps)")
_CC = re.compile(r"^(?:(?:sm|compute)_?)?(?P<digits>\d{2,3})[af]?$|^(?P<major>\d{1,2})\.(?P<minor>\d)$", re.IGNORECASE)
_ARCH = re.compile(r"^(sm|compute)_(\d+)(\d)([af]?)$")
_VENDORS = {"cuda": "nvidia", "rocm": "amd", "xpu": "intel", "mps": "apple"}
_PROCESSORS = {"amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}


# `builds torch` for one machine parses 27 different CUDA versions 6,600 times; hence the caches in this module.
@lru_cache(maxsize=4096)
def _numbers(text: str) -> tuple[int, ...]:
    match = _NUMBERS.match(text)
    return tuple(map(int, match[1].split("."))) if match else ()


class CudaVersion(NamedTuple):
    """A CUDA release, ``12.8``; a patch level (``12.8.1``) never decides compatibility and is dropped."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Read ``12.8`` or ``12.8.1``; a missing minor is 0, and so is a text that does not begin with a number."""
        return _cuda(text)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def variant(self) -> str:
        """The variant of builds for this release, ``cu128``."""
        return f"cu{self.major}{self.minor}"


@lru_cache(maxsize=1024)
def _cuda(text: str) -> CudaVersion:
    parts = (*_numbers(text), 0, 0)
    return CudaVersion(parts[0], parts[1])


class PythonVersion(NamedTuple):
    """A Python feature release, ``3.12``."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> PythonVersion:
        """Read ``3.12``, ``3.12.4`` or ``3.13.0rc1``; a missing minor is 0."""
        parts = (*_numbers(text), 0, 0)
        return cls(parts[0], parts[1])

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def tag(self) -> str:
        """The interpreter tag of wheels, ``cp312``."""
        return f"cp{self.major}{self.minor}"


class DriverVersion(tuple[int, ...]):
    """A dotted version of a driver, ``550.54.15``, or only its branch, ``550``.

    It orders like a tuple; use :meth:`reaches` to compare with a requirement, because a branch may be too imprecise.
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> DriverVersion:
        """Read the leading digits and dots; anything after them is ignored."""
        return _driver(text)

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @property
    def branch(self) -> int:
        """The branch, ``550`` of ``550.54.15``; 0 if the version is unknown."""
        return self[0] if self else 0

    def reaches(self, need: str) -> bool | None:
        """Return whether this is ``need`` or newer; None if it is too imprecise (``580`` for ``580.65``)."""
        # "550" may be 550.40 or 550.163: a branch meets a requirement within itself only if that ends in zeros.
        wanted = _numbers(need)
        if not self or not wanted:
            return None
        shared = min(len(self), len(wanted))
        if self[:shared] != wanted[:shared]:
            return self > wanted
        return None if len(self) < len(wanted) and any(wanted[shared:]) else True


@lru_cache(maxsize=4096)
def _driver(text: str) -> DriverVersion:
    return DriverVersion(_numbers(text))


class Variant(NamedTuple):
    """The accelerator variant of a build.

    Attributes:
        kind: ``cuda``, ``rocm``, ``xpu``, ``mps`` or ``cpu``.
        version: Of the platform, ``12.6`` for ``cu126``; None for kinds that carry none.
    """

    kind: Literal["cuda", "rocm", "xpu", "mps", "cpu"]
    version: str | None = None

    @classmethod
    def parse(cls, text: str) -> Variant | None:
        """Read ``cu126``, ``rocm6.4``, ``xpu`` or ``cpu``; None for any other text."""
        match = _VARIANT.fullmatch(text)
        if match is None:
            return None
        # Only the last digit is the minor: cu92 is 9.2, cu102 is 10.2. No CUDA release has had a minor above 9.
        if digits := match["cuda"]:
            return cls("cuda", f"{digits[:-1]}.{digits[-1]}")
        return cls("rocm", match["rocm"]) if match["rocm"] else cls(match["plain"])  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.kind == "cuda":
            return CudaVersion.parse(self.version or "").variant
        return f"{self.kind}{self.version or ''}"

    @property
    def vendor(self) -> str | None:
        """The vendor whose accelerators run the code, ``nvidia``; None for ``cpu``."""
        return _VENDORS.get(self.kind)

    @property
    def cuda(self) -> CudaVersion | None:
        """The CUDA release of the variant; None unless it is CUDA's."""
        return CudaVersion.parse(self.version) if self.kind == "cuda" and self.version else None


class ComputeCapability(NamedTuple):
    """A GPU's compute capability, ``8.9`` as ``(8, 9)``; orders as CUDA orders them."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read ``8.9``, ``89``, ``sm_89``, ``compute_89`` or ``sm_90a``.

        Raises:
            ValueError: ``text`` is in none of these forms.
        """
        return _capability(text)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def sm(self) -> str:
        """The SASS name, ``sm_89``."""
        return f"sm_{self.major}{self.minor}"


@lru_cache(maxsize=256)
def _capability(text: str) -> ComputeCapability:
    match = _CC.match(text.strip())
    if match is None:
        raise ValueError(f"not a compute capability: {text!r}")
    # As in sm_120, which is 12.0: only the last digit is the minor.
    if match["digits"]:
        return ComputeCapability(int(match["digits"][:-1]), int(match["digits"][-1]))
    return ComputeCapability(int(match["major"]), int(match["minor"]))


class Arch(NamedTuple):
    """One piece of GPU code in a build: ``sm_90a`` is SASS (machine code), ``compute_90`` is PTX.

    Attributes:
        kind: ``sass`` (a cubin) or ``ptx``.
        cc: The compute capability it was made for.
        suffix: ``a`` (exactly that GPU), ``f`` (its family), or empty.
        name: The text that was parsed.
    """

    kind: Literal["sass", "ptx"]
    cc: ComputeCapability
    suffix: str
    name: str

    @classmethod
    def parse(cls, name: str) -> Arch:
        """Read ``sm_90``, ``sm_90a``, ``sm_100f`` or ``compute_90``.

        Raises:
            ValueError: ``name`` does not have that form.
        """
        return _arch(name)


@lru_cache(maxsize=512)
def _arch(name: str) -> Arch:
    match = _ARCH.match(name)
    if match is None:
        raise ValueError(f"not the name of GPU code such as sm_90: {name!r}")
    kind: Literal["sass", "ptx"] = "sass" if match[1] == "sm" else "ptx"
    return Arch(kind, ComputeCapability(int(match[2]), int(match[3])), match[4], name)


def processor(name: str) -> str:
    """Return a processor architecture as Linux wheels spell it: ``AMD64`` is ``x86_64``, ``arm64`` is ``aarch64``."""
    return _PROCESSORS.get(name.lower(), name.lower())

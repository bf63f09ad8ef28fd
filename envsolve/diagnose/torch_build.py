"""The torch of a report: what the report says of it, and what the catalogue knows of that build."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envsolve.diagnose.model import ReportFacts, public, shown
from envsolve.facts.builds import Build
from envsolve.solve.preferences import DEFAULT
from envsolve.values import CudaVersion, Variant

#: Names under which torch is installed, the most telling first; ``libtorch`` is its C++ distribution.
_NAMES = ("torch", "pytorch", "pytorch-gpu", "libtorch", "pytorch-cpu")
_VARIANT = re.compile(r"cpu|cu\d{2,3}|xpu|rocm\d[\d.]*")
_MINOR = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch of a report.

    Attributes:
        version: Public version; None if only its CUDA or its code is known.
        variant: ``cu126`` or ``cpu``; None if unknown.
        cuda: The toolkit inside, ``12.6``.
        code: GPU code that it contains.
        code_from: Where ``code`` is known from.
        build: The catalogue's record of it.
        evidence: Where the report shows it.
    """

    version: str | None
    variant: str | None
    cuda: str | None
    code: tuple[str, ...] | None
    code_from: str | None
    build: Build | None
    evidence: tuple[str, ...]

    @property
    def label(self) -> str:
        """``torch 2.8.0 [cu128]``."""
        return f"torch {self.version or ''}".rstrip() + (f" [{self.variant}]" if self.variant else "")


def torch_of(report: ReportFacts, published: Sequence[Build]) -> Torch | None:
    """The torch of a report, and which of the published builds it is; None if the report does not mention one."""
    name = next((n for n in _NAMES if n in report.installed), None)
    seen = report.installed[name] if name else None
    if seen is None and report.cuda is None and report.arch_list is None:
        return None
    local = seen.value.partition("+")[2] if seen else ""
    version = public(report.installed, name) if name else None
    stated = _VARIANT.match(local)
    variant = stated[0] if stated else _variant_of(report, name) or _variant_of_major(report, version, published)
    build = _build(version, variant, bool(local), published) if version and name != "libtorch" else None
    if build is not None:
        variant = variant or build.variant
    code, code_from = _code(report, build)
    if code is None and version is None and variant is not None:
        code, code_from = _code_of_variant(variant, published)
    evidence = tuple(shown(fact) for fact in (seen, report.cuda, report.arch_list) if fact is not None)
    return Torch(version, variant, _cuda(report, build, variant), code, code_from, build, evidence)


def _cuda(report: ReportFacts, build: Build | None, variant: str | None) -> str | None:
    """The toolkit of torch: as reported, otherwise of the build, otherwise of its variant."""
    reported = _MINOR.match(report.cuda.value) if report.cuda else None
    if reported or build:
        return reported[0] if reported else build.cuda if build else None
    parsed = Variant.parse(variant) if variant else None
    return parsed.version if parsed and parsed.cuda else None


def _variant_of(report: ReportFacts, name: str | None) -> str | None:
    toolkit = report.cuda or (report.installed.get("pytorch-cuda") if name != "torch" else None)
    match = _MINOR.match(toolkit.value) if toolkit else None
    if match:
        return CudaVersion.parse(match[0]).variant
    return "cpu" if name == "pytorch-cpu" or (toolkit is not None and toolkit.value == "none") else None


def _variant_of_major(report: ReportFacts, version: str | None, published: Sequence[Build]) -> str | None:
    """The variant of a version that people call by its CUDA major only: "pytorch 2.9 with CUDA 13"."""
    if report.cuda is None or not report.cuda.value.isdigit() or version is None:
        return None
    builds = [b for b in _of_version(version, published) if b.cuda and b.cuda.partition(".")[0] == report.cuda.value]
    # Otherwise the newest of the major: all of them have code for about the same GPUs.
    best = max(builds, key=lambda b: (b.index == DEFAULT, CudaVersion.parse(b.cuda or "0")), default=None)
    return best.variant if best else None


def _of_version(version: str, published: Sequence[Build]) -> list[Build]:
    builds = [b for b in published if b.version == version]
    if not builds and version.count(".") == 1:  # people say 2.8 and mean 2.8.0
        builds = [b for b in published if b.version == f"{version}.0"]
    return builds


def _build(version: str, variant: str | None, local: bool, published: Sequence[Build]) -> Build | None:
    """The catalogue's build; a version without a local part that names no variant is the default index's."""
    builds = _of_version(version, published)
    if variant is None:
        return next((b for b in builds if b.index == DEFAULT), None)
    # The default index and PyTorch's own may both have the variant; only the latter's versions have a local part.
    return min((b for b in builds if b.variant == variant), key=lambda b: (b.index == DEFAULT) is local, default=None)


def _code_of_variant(variant: str, published: Sequence[Build]) -> tuple[tuple[str, ...] | None, str | None]:
    """All code that builds of a variant contain: no version of the variant has other code."""
    builds = [b for b in published if b.variant == variant]
    if not builds or any(not build.code for build in builds):
        return None, None
    every = tuple(dict.fromkeys(code for build in builds for code in build.code or ()))
    return every, f"the catalogue: no torch build of {variant} contains more than {' '.join(every)}"


def _code(report: ReportFacts, build: Build | None) -> tuple[tuple[str, ...] | None, str | None]:
    # The list that torch prints is of the very binary in use, which may be compiled from source.
    if report.arch_list is not None:
        return report.arch_list.value, shown(report.arch_list)
    if build is not None and build.code is not None:
        return build.code, f"the catalogue: torch {build.version} [{build.variant}] carries {' '.join(build.code)}"
    return None, None

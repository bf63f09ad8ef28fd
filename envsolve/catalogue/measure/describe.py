"""A measurement in words, for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.catalogue.measure.model import Assembler, Library, Measurement


def describe(found: Measurement) -> str:
    """What an artefact is, then what it carries."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Measurement) -> Iterator[str]:
    name = f"{found.package} {found.version}" if found.package else found.name
    yield f"{name}  ({found.kind}{f' {found.name}' if found.package else ''})"
    if found.arch_flags is not None:
        yield f"  CUDA       {found.cuda or 'none: a CPU build'}"
    if found.arch_flags:
        yield f"  code       {' '.join(found.arch_flags)}  (as torch.cuda.get_arch_list() has it)"
    if found.cxx11_abi is not None:
        yield f"  C++11 ABI  {_yes(found.cxx11_abi)}"
    for assembler in found.assemblers:
        yield from _assembler(assembler)
    asked = {assembler.file for assembler in found.assemblers}
    for tool in (path for path in found.tools if path not in asked):
        yield f"  tool       {tool}"
    for library in found.libraries:
        yield from _library(library)
    if found.requires:
        wanted = [line for line in found.requires if line.startswith(("torch", "triton", "nvidia-", "cuda-", "jax"))]
        for line in wanted:
            yield f"  requires   {line}"
        if others := len(found.requires) - len(wanted):
            yield f"  requires   {others} more, see --format json"
    for part in found.parts:
        yield ""
        yield from _lines(part)


def _assembler(found: Assembler) -> Iterator[str]:
    isa = f"PTX up to {found.ptx_isa}" if found.ptx_isa else "its newest PTX is not known: it does not run here"
    yield f"  assembler  {found.file}: CUDA {found.version}, {isa}"
    yield f"             {' '.join(found.archs)}"


def _library(found: Library) -> Iterator[str]:
    yield f"  library    {found.file}" + (f"  ({found.machine})" if found.machine else "")
    if found.code:
        yield f"    code       {' '.join(found.code)}"
    if rare := [arch for arch in (*found.sass, *found.ptx) if arch not in found.code]:
        yield f"    and        {' '.join(rare)}, in some kernels alone"
    if found.ptx_isas:
        yield f"    PTX        {', '.join(f'{arch} in version {isa}' for arch, isa in found.ptx_isas.items())}"
    if found.cuda_major is not None:
        yield f"    CUDA       {found.cuda_major}"
    if found.cxx11_abi is not None:
        yield f"    C++11 ABI  {_yes(found.cxx11_abi)}"
    if found.needed:
        yield f"    needs      {' '.join(found.needed)}"
    elif found.code:
        yield "    needs      no NVIDIA library: its runtime is linked in"


def _yes(value: bool) -> str:
    return "yes" if value else "no"

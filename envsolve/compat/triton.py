"""Rule 6: whether kernels that Triton compiles run on a card."""

from __future__ import annotations

from collections.abc import Sequence

from envsolve.catalogue.model import Floor, Ptxas, Toolkit, TritonRelease
from envsolve.compat.driver import driver_runs
from envsolve.compat.verdict import Reason
from envsolve.machine.cc import ComputeCapability
from envsolve.machine.model import Driver

TRITON = "triton"


def chosen_ptxas(release: TritonRelease, cc: ComputeCapability) -> Ptxas | None:
    """The assembler that a Triton release runs for a card."""
    for ptxas in release.ptxas:
        first = ComputeCapability.parse(ptxas.min_cc)
        end = ComputeCapability.parse(ptxas.max_cc) if ptxas.max_cc else None
        if first <= cc and (end is None or cc < end):
            return ptxas
    return None


def arch_asked(release: TritonRelease, cc: ComputeCapability) -> str:
    """The GPU name that a Triton release gives its ptxas for a card: ``sm_90a``."""
    specific = release.arch_specific_from
    return cc.sm + ("a" if specific and cc >= ComputeCapability.parse(specific) else "")


def triton_runs(
    release: TritonRelease,
    cc: ComputeCapability,
    driver: Driver | None,
    os: str | None,
    toolkits: Sequence[Toolkit],
    floors: Sequence[Floor],
) -> Reason:
    """Rule 6: Triton compiles for the card, its ptxas knows the arch, and the driver loads that ptxas's cubins.

    A cubin needs the driver family of the ptxas that made it, even where torch's own variant is older. The reason's
    rule is ``triton-gpu`` where the card is below what Triton supports, ``triton-matrix`` where its compiler makes
    simple kernels for it but no matrix product, ``triton-driver`` where the driver is too old for the cubins, else
    ``triton``.
    """

    def say(ok: bool | None, text: str, rule: str = "triton") -> Reason:
        return Reason(rule, ok, f"Triton {release.version} {text}", release.evidence.value, release.source)

    if cc < ComputeCapability.parse(release.min_cc):
        return say(False, f"supports cc {release.min_cc} and newer, not {cc}", "triton-gpu")
    ptxas = chosen_ptxas(release, cc)
    if ptxas is None:
        return say(None, f"has no known assembler for cc {cc}")
    name = arch_asked(release, cc)
    if name not in ptxas.archs:
        return say(False, f"compiles with {ptxas.file} {ptxas.cuda}, which does not know {name}")
    if str(cc) in release.no_matrix_product:
        return say(False, f"compiles no matrix product for cc {cc}, simpler kernels alone", "triton-matrix")
    fit = driver_runs(ptxas.cuda, driver, os, toolkits, floors)
    if fit.reason.ok:
        return say(True, f"compiles {name} with {ptxas.file} {ptxas.cuda}, whose cubins this driver loads")
    if fit.reason.ok is None:
        return say(None, f"compiles {name} with {ptxas.file} {ptxas.cuda}, which needs driver {fit.required}")
    have = (driver.version or f"one for CUDA {driver.cuda}") if driver else None
    text = f"compiles {name} with {ptxas.file} {ptxas.cuda}: its cubins need driver {fit.required}, not {have}"
    return say(False, text, "triton-driver")

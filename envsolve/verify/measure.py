"""Measures of an environment on its GPUs: fast paths, rates beside the documented ones, and long runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.facts.files import PEAKS
from envsolve.facts.hardware import Peak
from envsolve.verify.report import Check, Explain, Kind, Report, unexplained
from envsolve.verify.runner import run_checks

_FOLDERS: Mapping[Kind, str] = {"fast-paths": "fast_paths", "bench": "measures", "soak": "measures"}
_GPU_NAME = re.compile(r"\d+: (.+) \(cc [\d.]+\)")
#: Beside the time of the run itself: importing torch, the first product, the last patterns.
_EXTRA_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class _Rate:
    """A measured rate: its name, its unit, and the share of the documented one below which it is remarkable.

    Sound GPUs reached 70 to 85 % of bfloat16, 65 to 85 % of float8 and 85 to 95 % of memory in public measurements.
    """

    seen: str
    name: str
    unit: str
    low: float


_RATES = (
    _Rate("bf16_tflops", "bf16", "TFLOP/s", 0.6),
    _Rate("fp8_tflops", "fp8", "TFLOP/s", 0.5),
    _Rate("memory_gbs", "memory", "GB/s", 0.75),
)


def measure(
    python: str | os.PathLike[str],
    kind: Kind,
    *,
    minutes: float = 1.0,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    explain: Explain = unexplained,
) -> Report:
    """Measure the performance of an environment on the GPUs of this machine.

    Args:
        python: The environment's interpreter.
        kind: ``fast-paths`` tries every fast path of the GPU and the stack: one that is not offered is a skip with the
            reason. ``bench`` measures rates, about 10 s for each GPU. ``soak`` repeats products and memory patterns.
        minutes: How long ``soak`` runs.
        time_limit: Seconds for each check.
        only: Names of the fast paths to try; all if empty.
        explain: Finds the root cause of a failure in its text.

    Raises:
        UsageError: As :func:`run_checks`, or ``minutes`` is not positive.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    if kind == "soak" and not 0 < minutes < 60 * 24 * 31:
        raise UsageError(f"not a positive number of minutes: {minutes}", hint="10 shows most faults that show at all")
    report = run_checks(
        python,
        time_limit=60 * minutes + _EXTRA_SECONDS if kind == "soak" else time_limit,
        folder=Path(__file__).parent / _FOLDERS[kind],
        only=only if kind == "fast-paths" else [kind],
        explain=explain,
        arguments=(str(minutes),) if kind == "soak" else (),
    )
    checks = report.checks
    if kind == "bench":
        peaks = {name: peak for peak in Catalogue().records(PEAKS) for name in peak.names}
        checks = tuple(judged(check, peaks) for check in checks)
    return replace(report, checks=checks, kind=kind)


def judged(check: Check, peaks: Mapping[str, Peak]) -> Check:
    """A measurement beside the documented rates of its GPU, with a warning if it is far below them."""
    if check.name != "bench" or check.status != "pass":
        return check
    match = _GPU_NAME.fullmatch(check.gpu or "")
    peak = peaks.get(match[1]) if match else None
    if peak is None:
        return replace(check, detail=f"{check.detail}; the catalogue has no documented rates of this GPU")
    shares = {rate: float(check.seen[rate.seen]) / of for rate, of in _documented(check, peak)}
    words = [f"{rate.name} {share:.0%} of {getattr(peak, rate.seen):g} {rate.unit}" for rate, share in shares.items()]
    low = [rate.name for rate, share in shares.items() if share < rate.low]
    detail = f"{check.detail}; compared with the documented rates: {', '.join(words)}"
    if low:
        reasons = "; ".join(_reasons(check.seen)) or "nvidia-smi shows no reason; another program may use the GPU"
        detail += f"\nwarning: {' and '.join(low)} far below what such GPUs reach: {reasons}"
    expected = {rate.seen: f"{getattr(peak, rate.seen):g} {rate.unit} documented" for rate in shares}
    return replace(check, detail=detail, expected=expected)


def _documented(check: Check, peak: Peak) -> Iterator[tuple[_Rate, float]]:
    for rate in _RATES:
        if rate.seen in check.seen and (of := getattr(peak, rate.seen)):
            yield rate, of


def _reasons(seen: Mapping[str, str]) -> Iterator[str]:
    """Return the signs of a slow GPU that ``nvidia-smi`` reports."""

    def number(name: str) -> float | None:
        try:
            return float(seen[name])
        except (KeyError, ValueError):
            return None

    limit, usual = number("power.limit"), number("power.default_limit")
    if limit and usual and limit < usual:
        yield f"the power limit is {limit:g} W instead of {usual:g} W"
    for name, words in (
        ("clocks_event_reasons.sw_power_cap", "clocks are lowered by the power limit"),
        ("clocks_event_reasons.sw_thermal_slowdown", "clocks are lowered because it is hot"),
        ("clocks_event_reasons.hw_slowdown", "clocks are lowered by the hardware (power brake or heat)"),
    ):
        if seen.get(name) == "Active":
            temperature = seen.get("temperature.gpu")
            yield f"{words} ({temperature} °C)" if temperature else words
    width, widest = number("pcie.link.width.current"), number("pcie.link.width.max")
    if width and widest and width < widest:
        yield f"PCIe runs with {width:g} of {widest:g} lanes"
    if seen.get("mig.mode.current") == "Enabled":
        yield "MIG divides it"

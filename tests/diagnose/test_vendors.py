"""GPUs of other vendors: they are named, no CUDA build is offered, and the vendor's own route is."""

from __future__ import annotations

import pytest

import envsolve

ASSERT = "AssertionError: Torch not compiled with CUDA enabled"
NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system."


@pytest.mark.parametrize("error", [ASSERT, NO_DRIVER])
@pytest.mark.parametrize(
    ("words", "vendor", "route"),
    [
        ("Ubuntu 24.04, my card is a Radeon RX 7900 XTX.", "AMD", "rocm"),
        ("Windows 11 with an RX 6800.", "AMD", "rocm.docs.amd.com"),
        ("rocminfo shows gfx1100", "AMD", "rocm"),
        ("It has an Intel Arc B580.", "Intel", "whl/xpu"),
        ("MacBook with an Apple M3, macOS 15.", "Apple", "mps"),
    ],
)
def test_another_vendors_gpu_gets_that_vendors_build(error: str, words: str, vendor: str, route: str) -> None:
    first = envsolve.diagnose(f"{words}\n{error}").diagnoses[0]
    assert vendor in first.explanation
    told = " ".join(f"{fix.text} {fix.command or ''}" for fix in first.remedies)
    assert route in told.lower()
    assert "whl/cu" not in told


@pytest.mark.parametrize("words", ["AMD EPYC 7763 and an A100, driver 550.54.15", "Intel Xeon, GeForce RTX 3090"])
def test_a_processor_of_another_vendor_is_no_gpu(words: str) -> None:
    found = envsolve.diagnose(f"{words}\n{ASSERT}")
    told = [fix.command or "" for fix in found.diagnoses[0].remedies]
    assert any("torch==" in command for command in told), told

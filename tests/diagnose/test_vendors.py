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


def test_the_platforms_of_a_list_of_wheels_are_no_gpus() -> None:
    hint = (
        "error: Distribution `torch==2.8.0 @ registry+https://index.example/simple` can't be installed because it"
        " doesn't have a source distribution or wheel for the current platform\n"
        "hint: You're on Linux (`manylinux_2_27_x86_64`), but `torch` (v2.8.0) only has wheels for the following "
        "platforms: `manylinux_2_28_x86_64`, `macosx_11_0_arm64`, `win_amd64`"
    )
    (first, *_) = envsolve.diagnose(hint, None).diagnoses
    assert first.cause == "libc-too-old"
    assert "torch==2.6.0" in (first.remedies[0].command or "")

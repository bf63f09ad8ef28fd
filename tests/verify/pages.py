"""A report with everything that a page shows."""

from __future__ import annotations

from envsolve.machine.model import Driver, Gpu, Machine, Platform
from envsolve.verify.report import Change, Check, Report

HOSTILE = (
    "<script>document.title = 'taken'</script>",
    "<img src=x onerror=alert(1)>",
    '"><b>bold</b>',
    "'; </pre></style> & &amp; &lt;",
    "Zeile mit Umlaut: größer als 2 µs ✓",
)
GPU = "0: NVIDIA H100 80GB HBM3 (cc 9.0)"
REPORT = Report(
    python="/e/bin/python",
    checks=(
        Check("driver", None, "pass", 0.3, "CUDA 13.0 driver", seen={"cuda": "13.0", "mode": "native"}),
        Check(
            "torch-code",
            GPU,
            "pass",
            5.0,
            "torch's kernels are machine code for this card",
            seen={"code": "sass"},
            expected={"code": "machine code (sm_90)"},
            imports=4.3,
        ),
        Check(
            "triton-kernel",
            GPU,
            "fail",
            7.3,
            f"PTXASError: {HOSTILE[0]}\nptxas fatal   : Value 'sm_121a' is not defined\n  and a line that is indented",
            "triton-ptxas-lacks-arch",
            "/e/bin/python harness.py triton_kernel.py check 0",
        ),
        Check("torch-matmul", GPU, "fail", 120.0, f"did not end within 120 s and was killed\n{HOSTILE[4]}"),
        Check("nvcc", GPU, "skip", 0.0, "there is no nvcc"),
    ),
    made="2026-11-28T05:00:00+00:00",
    seconds=31.0,
    machine=Machine(
        platform=Platform("linux", "x86_64", "glibc 2.35", "ubuntu 22.04"),
        driver=Driver("580.95", "13.0"),
        gpus=(Gpu("NVIDIA H100 80GB HBM3", "9.0", 81559),),
    ),
    versions={"python": "3.12.1", "torch": "2.11.0", "nvidia-cublas": "13.0.2", "numpy": "2.4.0", "driver": "580.95"},
    plan="plan.json",
    changes=(Change("version", "torch", None, "2.10.0", "2.11.0"),),
)

"""The main job in one go, through the Python API: read the machine, plan PyTorch for it, show the plan.

Where this machine has no NVIDIA GPU, the plan is made for a sample machine.
"""

from __future__ import annotations

import sys

from envsolve import EnvsolveError, Request, describe, describe_target, detect, plan

SAMPLE = "RTX 4090, driver 580.95.05, python 3.12, linux-x86_64, glibc 2.35"


def main() -> int:
    """Run the demo; returns the exit code."""
    machine = detect()
    print(f"This machine:\n\n{describe(machine)}\n")
    if not machine.gpus:
        print(f"It has no NVIDIA GPU, so the plan is for a sample machine: {SAMPLE}\n")
        machine = describe_target(SAMPLE)
    made = plan(Request(["torch", "torchvision"]), [machine])
    print(made.render("summary"))
    return 0 if made.status == "ok" else 3


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EnvsolveError as error:
        sys.exit(f"{error.message}\n  what to do: {error.hint}")

"""The main job in one go, through the Python API: read the machine, plan PyTorch for it, show the plan.

If this machine has no NVIDIA GPU, the plan is made for a sample machine.
"""

from __future__ import annotations

import shlex
import sys

from envsolve import EnvsolveError, Request, describe, describe_target, detect, plan

REQUIREMENTS = ["torch", "torchvision"]
SAMPLE = "RTX 4090, driver 580.95.05, python 3.12, linux-x86_64, glibc 2.35"


def main() -> int:
    """Run the demo; returns the exit code."""
    machine = detect()
    command = ["envsolve", "plan", *REQUIREMENTS]
    print(f"This machine:\n\n{describe(machine)}\n")
    if not machine.gpus:
        print(f"It has no NVIDIA GPU, so the plan is for a sample machine: {SAMPLE}\n")
        machine = describe_target(SAMPLE)
        command += ["--target", SAMPLE]
    made = plan(Request(REQUIREMENTS), [machine])
    # The last paragraph of a summary is for somebody who typed a command; here nobody did.
    print(made.render("summary").rpartition("\nNext ")[0] or made.render("summary"))
    if made.status != "ok":
        return 3
    print("\nTo make such an environment, on a machine that the plan is for:\n")
    print("    source .venv/bin/activate")
    print(f"    {shlex.join([*command, '-o', 'pylock.toml'])}")
    print("    envsolve install pylock.toml --prefix torch-env")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EnvsolveError as error:
        sys.exit(f"{error.message}\n  what to do: {error.hint}")

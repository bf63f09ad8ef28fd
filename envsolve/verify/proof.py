"""The condition for putting an environment in place: no check of what it runs fails, on any one GPU.

Compilers for CUDA and the ties between GPUs are the machine's affair: an environment is not refused for them.
"""

from __future__ import annotations

from pathlib import Path

from envsolve.errors import VerificationError
from envsolve.verify.describe import describe
from envsolve.verify.interpreter import interpreter_of
from envsolve.verify.runner import run_checks
from envsolve.verify.scripts import find_scripts


def prove(prefix: Path) -> bool:
    """Run the checks; skipped ones (no GPU here) are no failure.

    Returns:
        Whether anything was proved: False where every check was skipped.

    Raises:
        VerificationError: A check failed.
    """
    names = [script.name for script in find_scripts() if script.runs_on in ("host", "gpu") and not script.builds]
    report = run_checks(interpreter_of(prefix), only=names)
    if report.failed:
        raise VerificationError(
            "the environment was made, and does not work:\n" + describe(report),
            hint="nothing was put in place; to install it all the same, add --no-verify",
        )
    return report.passed

"""The condition for putting an environment in place: no check in it fails."""

from __future__ import annotations

from pathlib import Path

from envsolve.errors import VerificationError
from envsolve.verify.describe import describe
from envsolve.verify.interpreter import interpreter_of
from envsolve.verify.runner import run_checks


def prove(prefix: Path) -> bool:
    """Run the checks; skipped ones (no GPU here) are no failure.

    Returns:
        Whether anything was proved: False where every check was skipped.

    Raises:
        VerificationError: A check failed.
    """
    report = run_checks(interpreter_of(prefix))
    if report.failed:
        raise VerificationError(
            "the environment was made, and does not work:\n" + describe(report),
            hint="nothing was put in place; to install it all the same, add --no-verify",
        )
    return report.passed

"""What the formats of a conda plan have in common: its terms, its heading, its pins as match specs."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.errors import UsageError
from envsolve.formats._packages import possible
from envsolve.machine.model import one_line
from envsolve.planning.plan import CondaPin, CondaTerms, Plan
from envsolve.toolchain.model import SITE_PACKAGES

# Where a conda environment lies once it is activated, from its folder of Python packages: PREFIX/lib/python3.12/...
_UP = f"{SITE_PACKAGES}/../../.."


def conda_terms(plan: Plan) -> CondaTerms:
    """What a plan of conda packages was solved from.

    Raises:
        ImpossibleError: Nothing fits.
        UsageError: It is a plan of wheels.
    """
    possible(plan)
    if plan.conda is None:
        raise UsageError("this is a plan of wheels, which conda does not install", hint="plan with --manager conda")
    return plan.conda


def heading(plan: Plan) -> Iterator[str]:
    """Comment lines: what the plan is for."""
    yield f"# envsolve plan for {', '.join(plan.requirements) or 'no packages'}"
    for machine in plan.machines:
        yield f"# machine: {one_line(machine)}"
    yield f"# Python {plan.python or 'none'}, flavour {plan.cuda or 'none'}"


def pin_text(pin: CondaPin) -> str:
    """A pin as environment files have it: ``pytorch=2.7.1=cuda129*``."""
    return "=".join(filter(None, (pin.name, pin.version, pin.build)))


def override(terms: CondaTerms) -> str:
    """The words before a command that solves on a machine that sees no driver, or another; empty without CUDA."""
    cuda = terms.virtual.get("__cuda")
    return f"CONDA_OVERRIDE_CUDA={cuda} " if cuda else ""


def activated(plan: Plan) -> dict[str, str]:
    """The plan's variables as an activated environment has them, in the words of a POSIX shell."""
    return {name: value.replace(_UP, "$CONDA_PREFIX") for name, value in sorted(plan.environment.items())}

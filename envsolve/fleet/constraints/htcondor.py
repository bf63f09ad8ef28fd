"""HTCondor: properties of the GPUs that a job asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.model import Inventory
from envsolve.machine.completed import driver_branch
from envsolve.planning.lock import Assumptions

NAME = "htcondor"


def requirements(assumes: Assumptions, _: Sequence[str], __: Inventory, catalogue: Catalogue) -> tuple[str, ...]:
    """Return lines of a submit file."""
    names = {one.fact: one.name for one in catalogue.job_labels if one.engine == NAME}
    return tuple(_lines(assumes, names, catalogue))


def _lines(assumes: Assumptions, names: Mapping[str, str], catalogue: Catalogue) -> Iterator[str]:
    if not assumes.gpus or not {"gpus", "condition", "capability", "cuda-of-driver"} <= names.keys():
        return
    yield f"{names['gpus']} = 1"
    capability = names["capability"]
    yield f"{names['condition']} = {' || '.join(f'{capability} == {gpu}' for gpu in assumes.gpus)}"
    branch = driver_branch(assumes.driver_required, catalogue) if assumes.driver_required else None
    if branch is not None:
        yield f"{names['cuda-of-driver']} = {branch.cuda}"

"""``triton-torch-mismatch``: not the Triton that the torch at hand pins."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment, needs, pinned, satisfies, torch_distribution

_NAMES = ("triton", "pytorch-triton")

_EXPLANATION = (
    "Torch's compiler uses inner parts of Triton that change with every release, so each torch names the Triton "
    "that it was made with: {torch} requires {pin}, and {have} is installed. torch.compile and packages with Triton "
    "kernels fail with that, while torch's own kernels run. The pinned one must come back."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Hold the Triton that is imported against torch's requirement."""
    own = torch_distribution(environment)
    for name, requirement in needs(environment, own).items():
        have = environment.distribution(name)
        if own is None or name not in _NAMES or have is None or satisfies(have.version, requirement.specifier):
            continue
        text = _EXPLANATION.format(torch=own.label, pin=pinned(requirement), have=have.label)
        evidence = (f"{own.info}: requires {pinned(requirement)}", f"{have.info}: {have.label}")
        command = f"pip install --force-reinstall --no-deps {pinned(requirement)}"
        remedy = Remedy("Put back the Triton that this torch pins.", command)
        yield Finding("triton-torch-mismatch", Grounds.READ, text, evidence, (remedy,))

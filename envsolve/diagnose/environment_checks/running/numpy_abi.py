"""``library-mismatch``: modules compiled against NumPy 1 beside NumPy 2."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Environment, release

_EXPLANATION = (
    "NumPy 2 changed the interface by which compiled modules reach it, and modules compiled against NumPy 1 cannot "
    "use it: {who}. Torch itself still loads, but every step between tensors and arrays fails. NumPy must stay "
    "below 2, or those modules move to releases that were compiled against NumPy 2, which work with both."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare what the headers left in the binaries with the NumPy that is imported."""
    numpy, torch = environment.distribution("numpy"), environment.torch
    if numpy is None or release(numpy.version) < (2,):
        return
    old = [(torch.label, f"{torch.site}/torch/lib")] if torch and torch.numpy == 1 else []
    old += [
        (d.label, f"{d.site}/{e.libraries[0]}")
        for e in environment.extensions or ()
        if e.numpy == 1 and (d := environment.distribution(e.package))
    ]
    if not old:
        return
    text = _EXPLANATION.format(who=f"{', '.join(name for name, _ in old)} beside numpy {numpy.version}")
    evidence = (*(f"{place}: {name} looks for NumPy where NumPy 1 had it" for name, place in old), f"{numpy.info}")
    remedy = Remedy("Keep NumPy below 2; 1.26 is its last release.", 'pip install "numpy<2"')
    yield Finding("library-mismatch", Grounds.READ, text, evidence, (remedy,))

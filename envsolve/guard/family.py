"""Which packages of an environment belong to its torch, and in which versions they are there."""

from __future__ import annotations

from packaging.utils import canonicalize_name

from envsolve.catalogue.load import Catalogue
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.environment.needs import needs, torch_distribution

#: torch itself by its names on package indexes and conda channels.
TORCH = frozenset({"torch", "pytorch"})
#: What decides a conda torch's flavour, or is a part of it.
_CONDA = frozenset({"pytorch", "pytorch-gpu", "pytorch-cpu", "pytorch-cuda", "libtorch", "cuda-version"})


def family_of(environment: Environment, catalogue: Catalogue) -> frozenset[str]:
    """The names of torch, of what must agree with it, and of what it needs of NVIDIA and Triton in this environment."""
    own = needs(environment, torch_distribution(environment))
    bound = {name for name in own if name.startswith(("nvidia-", "triton", "pytorch-triton"))}
    return frozenset({*catalogue.family, *_CONDA, *bound})


def version_of(environment: Environment, name: str, installer: str, *, exact: bool = False) -> str | None:
    """The version of a package that an installer sees in an environment; None where it sees none.

    Args:
        environment: The environment.
        name: Normalised name.
        installer: ``pip`` and ``uv`` see distributions, ``conda`` its own records.
        exact: With the build string, for conda: ``2.7.1=cuda126_py312_200``.
    """
    if installer != "conda":
        return next((d.version for d in environment.named(name) if _is_own(environment, d.site)), None)
    record = next((p for p in environment.conda if canonicalize_name(p.name) == canonicalize_name(name)), None)
    if record is None:
        return None
    return f"{record.version}={record.build}" if exact else record.version


def pins_of(environment: Environment, catalogue: Catalogue, installer: str) -> dict[str, str]:
    """The exact versions of what belongs to the environment's torch, by name; empty where it has no torch."""
    names = sorted(family_of(environment, catalogue))
    found = {name: version for name in names if (version := version_of(environment, name, installer, exact=True))}
    return found if TORCH & found.keys() else {}


def _is_own(environment: Environment, site: str) -> bool:
    found = environment.site(site)
    return found is not None and found.origin in ("environment", "user")

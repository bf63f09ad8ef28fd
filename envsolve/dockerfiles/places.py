"""Where an installer looks for packages: the default index, PyTorch's of a variant, or somewhere unknown. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DEFAULT = "default"
# PyTorch's own indexes and pages of links, and mirrors that keep its layout: /whl/cu126, /whl/torch_stable.html.
_VARIANT = re.compile(r"/(?:whl|pytorch-wheels)/(cu\d+|cpu)(?:/.*)?/?$")
_EVERY_VARIANT = re.compile(r"/(?:whl|pytorch-wheels)(?:/torch_stable\.html)?/?$")
# Mirrors of the default index, which end as its own address does.
_MIRROR = re.compile(r"//[^/]*pypi[^/]*/|/pypi(?:/[\w-]+)*/simple/?$|/pypi/?$")


@dataclass(frozen=True, slots=True)
class Places:
    """Where an installer looks.

    Attributes:
        default: Whether on the default index.
        variants: On PyTorch's indexes of these CUDA variants.
        every: On PyTorch's page of all variants.
        unknown: Somewhere else, too: a nightly index, a company's own, one that a variable names.
        merges: Whether the best version of all places is taken, as pip does; uv takes the first place that has the
            name, those that were added before the default one.
    """

    default: bool = True
    variants: tuple[str, ...] = ()
    every: bool = False
    unknown: bool = False
    merges: bool = True

    @property
    def text(self) -> str:
        """In words."""
        named = [f"the index of {variant}" for variant in self.variants]
        named += ["PyTorch's page of all variants"] if self.every else []
        named += ["the default index"] if self.default else []
        return " or ".join(named)


def places(given: Any, variables: Mapping[str, str], uv: bool) -> Places:
    """Read them from options and variables. An option replaces its variable.

    Args:
        given: Parsed options, lists of addresses.
        variables: In force for the command.
        uv: Whether it is uv, which has names of its own for the variables.
    """
    if uv:
        index = given.index_url or _variable(variables, "UV_DEFAULT_INDEX", "UV_INDEX_URL")
        more = given.extra + (given.index or _variable(variables, "UV_INDEX", "UV_EXTRA_INDEX_URL"))
        links = given.links or _variable(variables, "UV_FIND_LINKS")
        strategy = given.index_strategy or variables.get("UV_INDEX_STRATEGY") or "first-index"
    else:
        index = given.index_url or given.index or _variable(variables, "PIP_INDEX_URL")
        more = given.extra or _variable(variables, "PIP_EXTRA_INDEX_URL")
        links = given.links or _variable(variables, "PIP_FIND_LINKS")
        strategy = ""
    base = () if given.no_index else index or (_DEFAULT,)
    found = [_kind(address.rpartition("=")[2] if "=http" in address else address) for address in (*more, *links, *base)]
    return Places(
        default=_DEFAULT in found,
        variants=tuple(dict.fromkeys(kind for kind in found if kind not in (_DEFAULT, "every", "unknown"))),
        every="every" in found,
        unknown="unknown" in found,
        merges=strategy != "first-index",
    )


def of_backend(backend: str) -> Places:
    """Where uv takes packages of PyTorch from with ``--torch-backend``."""
    known = backend == "cpu" or re.fullmatch(r"cu\d+", backend)
    return Places(default=False, variants=(backend,) if known else (), unknown=not known)


def _variable(variables: Mapping[str, str], *names: str) -> Sequence[str]:
    return next((variables[name].split() for name in names if variables.get(name)), [])


def _kind(address: str) -> str:
    """``default``, a variant, ``every`` or ``unknown``."""
    if address == _DEFAULT or _MIRROR.search(address):
        return _DEFAULT
    if match := _VARIANT.search(address):
        return match[1]
    return "every" if _EVERY_VARIANT.search(address) else "unknown"

"""Helpers of all tests of Dockerfiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from envsolve import describe_target, dockerfile
from envsolve.dockerfile.model import Report
from envsolve.dockerfile.offers import Offer, offers
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.model import Machine


@pytest.fixture(scope="package", autouse=True)
def _offers_once() -> Iterator[None]:
    """Judge every build of a package for a machine once: most tests ask about the same few machines."""
    # The catalogue is kept beside the answer, so that its identity is not given to another one.
    known: dict[tuple[str, str, int], tuple[Catalogue, tuple[Offer, ...]]] = {}

    def kept(package: str, machines: Sequence[Machine], catalogue: Catalogue) -> tuple[Offer, ...]:
        key = (package, repr(machines), id(catalogue))
        if key not in known:
            known[key] = (catalogue, offers(package, machines, catalogue))
        return known[key][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dockerfile, "offers", kept)
        yield


@pytest.fixture(scope="package")
def catalogue() -> Catalogue:
    return Catalogue()


def check(text: str, target: str, catalogue: Catalogue, context: Path | None = None) -> Report:
    """Check a Dockerfile for the machine that a target names."""
    return dockerfile.check_dockerfile(text, (describe_target(target, catalogue),), catalogue, context)

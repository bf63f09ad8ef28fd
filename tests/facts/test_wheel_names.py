"""What names of wheels in public use say that they were compiled for."""

from __future__ import annotations

import pytest

from envsolve.facts.catalogue import Catalogue
from envsolve.facts.evidence import MadeFor, made_for
from envsolve.facts.files import WHEEL_NAMES

NAMES = Catalogue().records(WHEEL_NAMES)
EXAMPLES = [(place, said) for name in NAMES for place, said in name.examples.items()]


@pytest.mark.parametrize(("place", "said"), EXAMPLES, ids=[place.rpartition("/")[2] for place, _ in EXAMPLES])
def test_the_examples(place: str, said: str) -> None:
    assert str(made_for(place, NAMES)) == said


@pytest.mark.parametrize(
    "place",
    ["onnx2torch-1.5.15-py3-none-any.whl", "torch2trt-0.5.0-cp310-cp310-linux_x86_64.whl", "numpy-2.3.4.tar.gz", ""],
)
def test_what_a_name_does_not_say(place: str) -> None:
    assert made_for(place, NAMES) == MadeFor()


def test_every_way_of_writing_has_an_example() -> None:
    assert all(name.examples for name in NAMES)

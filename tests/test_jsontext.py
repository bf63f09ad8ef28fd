"""Values as JSON text."""

from __future__ import annotations

import json
from types import MappingProxyType

import pytest

from envsolve.machine.model import Gpu, Machine
from envsolve.system.files import dump


@pytest.mark.parametrize("value", [{}, {"b": [], "a": {}}, "\x00\x1f\x7f\u2028é😀", [1, 0.25, None, True]])
def test_it_is_written_as_the_standard_library_does(value: object) -> None:
    assert dump(value) == json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def test_fields_keep_their_order_and_mappings_are_sorted() -> None:
    text = dump(Machine(gpus=(Gpu("H100"),), environment=MappingProxyType({"b": "2", "a": "1"})))
    assert text.index('"gpus"') < text.index('"environment"')
    assert text.index('"a"') < text.index('"b"')


def test_a_path_that_is_no_utf_8_can_be_written_to_a_file() -> None:
    text = dump({"path": "/é/\udcff"})
    assert json.loads(text.encode("utf-8")) == {"path": "/é/\udcff"}

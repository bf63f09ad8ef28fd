"""The catalogue's facts, and what measuring found, as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from envsolve.catalogue.check import Checked


def describe_check(found: Checked) -> str:
    """What was checked, and each disagreement with both sides."""
    return "\n".join(_check_lines(found)) + "\n"


def _check_lines(found: Checked) -> Iterator[str]:
    for wrong in found.disagreements:
        yield f"{wrong.file}: {wrong.record}: {wrong.field}"
        yield f"  catalogue  {_value(wrong.catalogue)}"
        yield f"  measured   {_value(wrong.measured)}"
    records = {wrong.record for wrong in found.disagreements}
    agree = f"{len(records)} disagree" if records else "all agree"
    yield f"{len(found.checked)} records checked, {agree} (seed {found.seed})"


def _value(value: Any) -> str:
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)

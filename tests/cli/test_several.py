"""``plan --allow-groups``: where several plans go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.cli.plan import check_place, deliver_plans, is_directory
from envsolve.errors import UsageError
from envsolve.planning.groups import Plans
from tests.formats.plans import GOOD, IMPOSSIBLE

PLANS = Plans(plans=(GOOD,), unserved=(IMPOSSIBLE,))


@pytest.mark.parametrize(
    ("form", "output", "refused"),
    [
        ("summary", None, False),
        ("json", None, False),
        ("pylock", None, False),
        ("pylock", "locks", False),
        ("json", "plans.json", False),
        ("pylock", "pylock.toml", False),
        ("pylock", "lock.toml", True),
        ("requirements", "r.txt", True),
        ("pylock", "no/such/locks", True),
    ],
)
def test_a_format_that_holds_one_plan_needs_a_folder_and_a_lock_its_name(
    form: str, output: str | None, refused: bool, tmp_path: Path
) -> None:
    place = tmp_path / output if output else None
    if refused:
        with pytest.raises(UsageError):
            check_place(form, place)
    else:
        check_place(form, place)


def test_a_folder_gets_a_file_for_each_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    locks = tmp_path / "locks"
    deliver_plans(PLANS, "pylock", locks)
    deliver_plans(PLANS, "pylock", locks)
    assert [path.name for path in locks.iterdir()] == ["pylock.cu126-sm89.toml"]
    told = capsys.readouterr().err
    assert "cu126-sm89: chosen: cu126, torch 2.9.0+cu126, 3 packages" in told
    assert "unserved: nothing fits" in told


def test_json_goes_into_one_file(tmp_path: Path) -> None:
    deliver_plans(PLANS, "json", tmp_path / "plans.json")
    assert json.loads((tmp_path / "plans.json").read_text())["schema"] == "envsolve.plans/1"
    assert is_directory(tmp_path) and not is_directory(tmp_path / "plans.json") and not is_directory(None)

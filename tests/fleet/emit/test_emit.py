"""The command that writes files for other tools."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envsolve.cli import main
from envsolve.fleet.emit import emitted, tools
from envsolve.fleet.plan import FleetPlan, read_plan
from envsolve.system.files import dump


def emit(*words: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main.run(["fleet", "emit", *words])
    assert ended.value.code == code


def test_the_tools_are_the_modules() -> None:
    assert tools() == ("ansible", "kubernetes", "ray", "skypilot", "slurm-nccl", "slurm-prolog")


@pytest.mark.parametrize("tool", tools())
def test_every_tool_gets_a_file(tool: str, fleet: Path, tmp_path: Path) -> None:
    emit(tool, "--fleet", str(fleet), "-o", str(tmp_path / "file"))
    text = (tmp_path / "file").read_text()
    assert text == emitted(tool, fleet, read_plan(fleet), python=sys.executable)
    assert text.endswith("\n") and "\n\n\n" not in text


def test_one_plan_can_be_chosen(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emit("skypilot", "--fleet", str(fleet), "--plan", "cu130-sm90")
    told = capsys.readouterr().out
    assert "H100" in told and "V100" not in told
    emit("skypilot", "--fleet", str(fleet), "--plan", "cu999", code=2)
    assert "plans: cu126-sm70, cu130-sm90" in capsys.readouterr().err


def test_unknown_tools_and_fleets_without_a_plan_are_refused(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emit("puppet", "--fleet", str(fleet), code=2)
    assert "tools: ansible, kubernetes, ray, skypilot, slurm-nccl, slurm-prolog" in capsys.readouterr().err
    (fleet / "plan.json").write_text(dump(FleetPlan()))
    emit("ray", "--fleet", str(fleet), code=2)

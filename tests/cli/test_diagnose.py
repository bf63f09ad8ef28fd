"""``envsolve diagnose`` as a command: what it takes, what it prints, how it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from envsolve.cli.main import run
from tests.commandline import answered

ERROR = "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device\n"
MACHINE = ("--gpu", "GTX 1050", "--driver", "550.163.01")


def diagnose(*arguments: str, text: bytes | str = b"") -> CompletedProcess[str]:
    return answered("diagnose", *arguments, given=text)


def answer(*arguments: str, text: bytes | str = b"") -> dict[str, Any]:
    done = diagnose("--format", "json", *arguments, text=text)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_json_is_the_documented_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(ERROR)
    (tmp_path / "installed").write_text("torch==2.8.0+cu128\n")
    found = answer("--log", str(tmp_path / "log"), "--installed", str(tmp_path / "installed"), *MACHINE)
    assert found["schema"] == "envsolve.diagnosis/1"
    first = found["diagnoses"][0]
    assert set(first) == {"cause", "certainty", "confidence", "explanation", "evidence", "remedies"}
    assert first["cause"] == "no-kernel-for-gpu"
    assert first["remedies"][0] == {
        "text": "Install torch 2.8.0 [cu126]: sm_60 runs on NVIDIA GeForce "
        "GTX 1050; requires driver 525.60.13 or newer.",
        "command": "pip install torch==2.8.0+cu126 --index-url https://download.pytorch.org/whl/cu126",
    }
    assert any(text.startswith("line 1: ") for text in first["evidence"])


def test_the_text_tells_cause_evidence_and_commands() -> None:
    done = diagnose("--log", "-", *MACHINE, text=ERROR + "torch==2.8.0+cu128\n")
    assert done.returncode == 0
    for words in ("no-kernel-for-gpu", "Evidence:", "line 1: ", "the smallest change first:", "pip install"):
        assert words in done.stdout


def test_an_unknown_error_is_answered_with_what_to_run_and_no_cause() -> None:
    found = answer("--log", "-", text="KeyError: 'loss'\n")
    assert found["diagnoses"] == []
    assert "nvidia-smi" in [step["command"] for step in found["next_steps"]]


def test_a_fault_of_the_program_is_told_as_one() -> None:
    found = answer("--log", "-", text="RuntimeError: CUDA error: device-side assert triggered\n")
    assert found["diagnoses"] == []
    assert "fault of the program" in found["meanings"][0]


@pytest.mark.parametrize(
    "noise", [b"", b"\0\xff\xfe" * 1000, bytes(range(256)) * 400, b"a" * 100_000, b"\x1b[31m" * 5000, b"\r\n" * 9999]
)
def test_no_bytes_are_too_strange(noise: bytes) -> None:
    assert answer("--log", "-", *MACHINE, text=noise)["diagnoses"] == []
    assert answer("--log", "-", *MACHINE, text=noise + b"\n" + ERROR.encode() + noise)["diagnoses"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to diagnose"),
        (("--log", "/no/such/file"), "cannot read /no/such/file"),
        (("--log", "/"), "cannot read /"),
        (("--log", "-", "--gpu", "RTX 9999"), "RTX 9999"),
        (("--log", "-", "-o", "/"), "is a directory"),
    ],
)
def test_wrong_usage_leaves_with_2_and_a_way_out(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which has no .venv
    done = diagnose(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "what to do: " in done.stderr


def test_a_file_is_written_and_what_was_found_is_remarked(tmp_path: Path) -> None:
    done = diagnose("--log", "-", "-o", str(tmp_path / "out.txt"), text=ERROR)
    assert done.returncode == 0
    assert "no-kernel-for-gpu" in (tmp_path / "out.txt").read_text()
    assert "causes: no-kernel-for-gpu" in done.stderr


def test_several_machines_are_served_by_one_remedy(tmp_path: Path) -> None:
    for name, gpu in (("a.json", "7.0"), ("b.json", "8.0")):
        machine = {"schema": "envsolve.machine/1", "gpus": [{"compute_capability": gpu}]}
        (tmp_path / name).write_text(json.dumps(machine))
    machines = ("--machine", str(tmp_path / "a.json"), "--machine", str(tmp_path / "b.json"))
    found = answer("--log", "-", *machines, text=ERROR + "torch==2.11.0+cu128\n")
    command = found["diagnoses"][0]["remedies"][0]["command"]
    assert "cu126" in command


@pytest.mark.parametrize("width", [60, 100, 140])
def test_paragraphs_are_as_wide_as_the_terminal_and_commands_stay_whole(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(ERROR + "torch==2.8.0+cu128\n")
    for name, value in {"COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit):
        run(["diagnose", str(log), *MACHINE])
    lines = capsys.readouterr().out.splitlines()
    command = "      pip install torch==2.8.0+cu126 --index-url https://download.pytorch.org/whl/cu126"
    assert command in lines
    longest = max(len(line) for line in lines if not line.startswith("      "))
    assert width - 20 < longest <= width


def test_an_error_that_is_pasted_as_an_argument_is_read() -> None:
    done = diagnose("RuntimeError: operator torchvision::nms does not exist")
    assert (done.returncode, done.stdout.split()[0]) == (0, "mixed-flavours")
    assert diagnose("no-such-file.txt").returncode == 2

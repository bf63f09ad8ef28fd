"""Where results go, and how the command leaves when they cannot get there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envsolve.cli.output import deliver, deliver_text
from tests.commandline import answered

ENVSOLVE = [sys.executable, "-c", "from envsolve.cli.main import run; run()"]
SHOW = ["index", "show", "torch", "2.9.1", "cu126"]


def envsolve(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ENVSOLVE, *arguments], capture_output=True, text=True, timeout=600, **options)  # type: ignore[call-overload,no-any-return]


def in_shell(line: str) -> subprocess.CompletedProcess[str]:
    command = f"{subprocess.list2cmdline(ENVSOLVE[:2])} '{ENVSOLVE[2]}' {line}"
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=600)


def test_a_result_goes_through_a_link_and_leaves_it_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    assert answered("detect", "-o", str(tmp_path / "link.json")).returncode == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["schema"] == "envsolve.machine/2"


def test_a_dash_is_the_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    deliver("a result", Path("-"))
    assert capsys.readouterr() == ("a result\n", "")
    assert not Path("-").exists()


def test_a_device_stays_a_device() -> None:
    assert envsolve("detect", "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    kept = tmp_path / "machine.json"
    kept.write_text("kept")
    done = envsolve("detect", "-o", str(kept), preexec_fn=_no_file_may_grow)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert kept.read_text() == "kept"
    assert list(tmp_path.glob(".machine.json.*")) == []


def _no_file_may_grow() -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (" ".join(SHOW) + " >&-", 1, "standard output is closed"),
        (" ".join(SHOW) + " >/dev/full", 1, "cannot write to the standard output"),
        (" ".join(SHOW) + " | head -1 >/dev/null; exit ${PIPESTATUS[0]}", 0, ""),
        ("index show nothing 2>&-", 2, ""),
    ],
)
def test_streams_that_cannot_take_a_result(line: str, code: int, said: str) -> None:
    done = in_shell(line)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("detect -o /no-such-folder/x.json", 2, "there is no directory"),
        ("plan six -o /tmp", 2, "is a directory"),
        ("plan six --format pylock -o pylock.a.b.toml", 2, "pylock.a.b.toml"),
        ("install other.toml --prefix x", 2, "name of a lock file must be"),
    ],
)
def test_places_that_cannot_take_a_result(line: str, code: int, said: str) -> None:
    done = answered(*line.split())
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_lock_beside_other_requirements_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "pylock.toml"
    lock.touch()
    done = answered("install", str(lock), "--cuda", "cu126", "--prefix", str(tmp_path / "x"))
    assert done.returncode == 2
    assert "already determines what is installed" in done.stderr


def test_names_that_a_terminal_cannot_show_are_escaped(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    machine.write_text(
        json.dumps({"schema": "envsolve.machine/1", "gpus": [{"name": "Größe", "compute_capability": "9.0"}]})
    )
    ascii_only = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "ascii",
    }
    done = envsolve("builds", "torch", "--machine", str(machine), env=ascii_only)
    assert done.returncode == 0
    assert "\\xf6" in done.stdout


def test_an_interrupt_is_said_and_leaves_with_130() -> None:
    stops = 'print("begun", file=sys.stderr, flush=True) or time.sleep(600)'
    script = f"import sys, time, envsolve; envsolve.detect = lambda: {stops}; from envsolve.cli.main import run; run()"
    process = subprocess.Popen([sys.executable, "-c", script, "detect"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stderr.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said


def test_an_interrupt_while_modules_are_imported_shows_no_lines() -> None:
    script = (
        "import os, sys, types; late = types.ModuleType('envsolve.cli.main'); sys.modules['envsolve.cli.main'] = late\n"
        "late.__getattr__ = lambda name: os.kill(os.getpid(), 2) or exit(7)\n"
        "from envsolve.__main__ import program; program()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "envsolve: interrupted\n")


STALLING = """
import sys, time, envsolve
from envsolve.system.processes import signals_raised

def detect():
    with signals_raised(*{signals}):
        try:
            print("begun", file=sys.stderr, flush=True)
            time.sleep(600)
        finally:
            print("cleaning", file=sys.stderr, flush=True)
            time.sleep(0.5)
            print("cleaned", file=sys.stderr, flush=True)

envsolve.detect = detect
from envsolve.cli.main import run
run()
"""


@pytest.mark.parametrize("signals", ["()", "(2,)"])
def test_a_second_interrupt_does_not_stop_the_clean_up(signals: str) -> None:
    script = STALLING.format(signals=signals)
    process = subprocess.Popen([sys.executable, "-c", script, "detect"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line)
        if line.strip() in ("begun", "cleaning", "cleaned"):
            process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130
    assert "cleaned\n" in lines
    assert "interrupted" in lines[-1]
    assert "Traceback" not in "".join(lines)


def test_a_background_job_goes_on_ignoring_interrupts() -> None:
    script = "import os, envsolve; envsolve.detect = lambda: os.kill(os.getpid(), 2) or exit(7)"
    script = f"import signal; signal.signal(2, signal.SIG_IGN); {script}; from envsolve.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", script, "detect"], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert "interrupted" not in done.stderr


TEXT = """For       NVIDIA H100 (cc 9.0), driver 580
Warning   the libc of the machine is not known; glibc 2.28 or newer is assumed [libc-unknown]
          check it on the machine with: ldd --version
torch     2.15.0  cu132  native sm_90 (measured)
Next      envsolve plan torch --target 'H100, driver 580, linux-x86_64, glibc 2.35' -o pylock.toml
"""


def styled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, **variables: str) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "60", **variables}.items():
        monkeypatch.setenv(name, value)
    deliver_text(text, None)
    return capsys.readouterr().out


def test_text_is_plain_and_not_wrapped_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert styled(monkeypatch, capsys, TEXT) == TEXT


def test_text_is_coloured_and_wrapped_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = styled(monkeypatch, capsys, TEXT, FORCE_COLOR="1")
    assert "\x1b[32mnative\x1b[0m" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()
    assert plain[1:3] == [
        "Warning   the libc of the machine is not known; glibc 2.28",
        "          or newer is assumed [libc-unknown]",
    ]
    assert plain[-1] == TEXT.splitlines()[-1]  # a command can be copied whole


HINT = "install driver 580.65.06 or newer (branch R580) and plan again, or ask for torch==2.13.0"


def test_hints_and_reasons_are_wrapped_with_a_hanging_indent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "pip install torch==2.11.0+cu128 --extra-index-url https://example.org/whl/cu128"
    text = f"  because {HINT}\n          {HINT}\n          {command}\n          install it from that index: {command}\n"
    shown = re.sub(r"\x1b\[[\d;]*m", "", styled(monkeypatch, capsys, text, FORCE_COLOR="1")).splitlines()
    assert shown == [
        "  because install driver 580.65.06 or newer (branch R580)",
        "    and plan again, or ask for torch==2.13.0",
        "          install driver 580.65.06 or newer (branch R580)",
        "          and plan again, or ask for torch==2.13.0",
        f"          {command}",
        "          install it from that index:",
        f"            {command}",
    ]


def on_terminal(*words: str, **variables: str) -> str:
    """What the command writes to a terminal."""
    reader, terminal = os.openpty()
    environ = {**os.environ, "TERM": "xterm", **variables}
    process = subprocess.Popen([*ENVSOLVE, *words], env=environ, stdout=terminal, stderr=terminal, text=True)
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(reader, 4096):
            shown += chunk
    except OSError:  # how Linux reports the end
        pass
    os.close(reader)
    process.wait(120)
    return shown.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_an_error_on_a_terminal_is_wrapped_and_coloured() -> None:
    shown = on_terminal("plan", "comfyui", COLUMNS="60", NO_COLOR="")
    assert shown.startswith("\x1b[1;31menvsolve:\x1b[0m comfyui: ")
    lines = shown.replace("\r\n", "\n").splitlines()[1:]
    assert len(lines) > 1 and all(len(line) <= 60 for line in lines)
    assert [line for line in lines if not line.startswith("    ")] == [
        line for line in lines if line.startswith("  what to do: ")
    ]
    assert "\x1b" not in on_terminal("plan", "comfyui", NO_COLOR="1")
    assert "\x1b" not in on_terminal("plan", "comfyui", NO_COLOR="", TERM="dumb")


def test_a_skipped_check_is_dim_to_its_end_and_empty_lines_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = styled(monkeypatch, capsys, f"pass  a\n\nskip  {'word ' * 20}\n", FORCE_COLOR="1").splitlines()
    assert shown[1] == ""
    assert len(shown) == 4 and all(line.startswith("\x1b[2m") for line in shown[2:])


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = styled(monkeypatch, capsys, TEXT, FORCE_COLOR="1", NO_COLOR="1")
    assert "[32m" not in shown
    assert "native" in shown


def test_control_characters_do_not_reach_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "\x1b[2J" not in styled(monkeypatch, capsys, "a\x1b[2Jb", FORCE_COLOR="1")


def test_log_records_and_warnings_do_not_command_a_terminal() -> None:
    """Of libraries, too: urllib3 logs what an index answered."""
    code = (
        "import logging, warnings; from envsolve.cli.main import _prepare_streams; _prepare_streams()\n"
        "text = 'a\\x1b]0;pwned\\x07b\\r\\x9b'\n"
        "logging.getLogger('urllib3').warning('%s', text); warnings.warn(text); raise ValueError(text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.stderr.count(rb"a\x1b]0;pwned\x07b\r") >= 3
    assert not set(done.stderr.decode()) & set("\x1b\x07\r\x9b")

"""The runner against real child processes: whatever a check does, the report tells it, and nothing survives."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from envsolve.errors import EnvsolveError, UsageError
from envsolve.system import processes
from envsolve.values import ComputeCapability
from envsolve.verify.report import Check
from envsolve.verify.runner import run_checks, run_compile_checks
from envsolve.verify.scripts import remove_abandoned, scratch_folder
from envsolve.verify.target import find_target
from tests.verify.clock import LIMIT, pass_limit_once

PYTHON = Path(sys.executable)
#: The same, asked only once what it is.
target = functools.cache(lambda: find_target(PYTHON, 120.0, None))


def write_check(folder: Path, body: str, *, name: str = "probe", runs_on: str = "host", needs: str = "()") -> Path:
    path = folder / f"{name}.py"
    declared = f"@check({name!r}, runs_on={runs_on!r}, order=1, needs={needs})\n"
    arguments = "" if runs_on == "host" else "argument"
    head = f"from check_support import check\n{declared}def step({arguments}):\n"
    path.write_text(head + textwrap.indent(textwrap.dedent(body), "    "))
    return path


def run_one(folder: Path, body: str, *, time_limit: float = 120.0, needs: str = "()") -> Check:
    write_check(folder, body, needs=needs)
    (check,) = run_checks(replace(target(), time_limit=time_limit), folder=folder).checks
    return check


def hanging(mark: Path) -> str:
    """What a check does that writes a file and then hangs."""
    return f"import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(600)"


SEGFAULT = "import ctypes; ctypes.string_at(0)"
C_STACK = "import os; os.write(2, b'x\\nCurrent thread\\'s C stack trace' + b'\\nat' * 40); os.abort()"
OUTCOMES = [
    ("pass", "return {'detail': 'fine'}", "pass", "fine"),
    ("skip", "import unittest; raise unittest.SkipTest('no card')", "skip", "no card"),
    ("raise", "raise ArithmeticError('3 of 7 values are wrong')", "fail", "ArithmeticError: 3 of 7 values are wrong"),
    ("no detail", "return {}", "fail", "no valid result"),
    ("not a dict", "return 7", "fail", "TypeError"),
    ("chatter", "print('{\"status\": \"fail\"}', flush=True); return {'detail': 'fine'}", "pass", "fine"),
    ("segfault", SEGFAULT, "fail", "was killed by SIGSEGV and left no valid result\nFatal Python error: Segmentation"),
    ("a C stack, as of Python 3.14", C_STACK, "fail", "result\nx"),
    ("killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "fail", "was killed by SIGKILL"),
    ("says what is no text", "return {'detail': 'in \\udcff'}", "pass", r"in \udcff"),
    ("says too much", "raise ImportError('first ' + 'x' * 3_000_000 + ' last')", "fail", "ImportError: first"),
    ("says too much, its end", "raise ImportError('first ' + 'x' * 3_000_000 + ' last')", "fail", "x last"),
    ("without stderr", "import sys; sys.stderr = None; raise ImportError('torch')", "fail", "ImportError: torch"),
    ("stderr closed", "import os; os.closerange(0, 99); raise ImportError('torch')", "fail", "ImportError: torch"),
    ("variables gone", "import os; os.environ.clear(); return {'detail': 'fine'}", "pass", "fine"),
    ("colours", "import os; os.write(2, b'\\x1b[1;35mred\\x1b[0m'); os._exit(1)", "fail", "left no valid result\nred"),
    ("leaves at once", "import os; os._exit(0)", "fail", "ended with exit code 0 and left no valid result"),
    ("exits", "raise SystemExit(0)", "fail", "ended with exit code 0 and left no valid result"),
    ("last words", "import os; os.write(2, b'half a thought'); os._exit(3)", "fail", "half a thought"),
    (
        "crash after its result",
        "import atexit, os; atexit.register(os.abort); return {'detail': 'fine'}",
        "fail",
        "reported pass, yet was killed by SIGABRT",
    ),
    (
        "another's result",
        "import json, os; json.dump({'status': 'pass', 'detail': 'fine', 'token': 'x'}, "
        "open(os.environ['ENVSOLVE_RESULT'], 'w')); os._exit(0)",
        "fail",
        "no valid result",
    ),
    ("a result of another shape", "return {'detail': 'fine', 'devices': 5}", "fail", "no valid result"),
    (
        "garbage in place of a result",
        "import os; open(os.environ['ENVSOLVE_RESULT'], 'wb').write(b'\\xff{'); os._exit(0)",
        "fail",
        "no valid result",
    ),
]


@pytest.mark.parametrize(
    ("body", "status", "words"), [case[1:] for case in OUTCOMES], ids=[case[0] for case in OUTCOMES]
)
def test_every_way_a_check_can_end(tmp_path: Path, body: str, status: str, words: str) -> None:
    write_check(tmp_path, body)
    (check,) = run_checks(target(), folder=tmp_path).checks
    assert check.status == status
    assert words in check.detail


def test_a_check_that_hangs_is_killed_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pass_limit_once(tmp_path / "hangs", monkeypatch)
    started = time.monotonic()
    check = run_one(tmp_path, hanging(tmp_path / "hangs"), time_limit=LIMIT)
    assert (check.status, check.detail) == ("fail", "did not end within 900 s and was killed")
    assert check.seconds >= LIMIT
    assert time.monotonic() - started < 300


def test_a_check_that_ignores_signals_is_killed_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pass_limit_once(tmp_path / "hangs", monkeypatch)
    body = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{hanging(tmp_path / 'hangs')}"
    assert "killed" in run_one(tmp_path, body, time_limit=LIMIT).detail


def test_endless_output_neither_blocks_nor_fills_memory(tmp_path: Path) -> None:
    body = """
        import os
        for _ in range(2000):
            os.write(1, b'o' * 65536)
            os.write(2, b'e' * 65536)
        os.write(2, b'\\nthe end\\n')
        os._exit(9)
    """
    check = run_one(tmp_path, body)
    assert check.status == "fail"
    assert check.detail.endswith("the end")
    assert len(check.detail) < 10_000


def test_what_stays_behind_and_goes_on_writing_is_no_concern(tmp_path: Path) -> None:
    """A process that left the group holds stderr, where it has one, for longer than its check runs."""
    go = tmp_path / "go"
    os.mkfifo(go)
    command = ["sh", "-c", f"read word < {go}; echo one >&2; echo two >&2"]
    body = f"import subprocess\nsubprocess.Popen({command!r}, start_new_session=True)\nreturn {{'detail': 'fine'}}"
    readers = set(threading.enumerate())
    swallowed: list[threading.ExceptHookArgs] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "_DRAIN_SECONDS", 0.0)
        patch.setattr(threading, "excepthook", swallowed.append)
        assert run_one(tmp_path, body).status == "pass"
        go.write_text("go\n")
        for reader in set(threading.enumerate()) - readers:
            reader.join(20)
    assert swallowed == []


@pytest.mark.skipif(sys.platform != "linux", reason="what the child inherits is told there")
def test_a_caller_without_standard_streams(tmp_path: Path) -> None:
    checks = tmp_path / "checks"
    checks.mkdir()
    write_check(checks, "return {'detail': 'fine'}")
    code = f"""
import os
os.closerange(0, 3)
from pathlib import Path
from envsolve.verify.runner import run_checks
(check,) = run_checks({sys.executable!r}, folder=Path({str(checks)!r})).checks
Path({str(tmp_path / "answer")!r}).write_text(check.status + ' ' + check.detail)
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert (tmp_path / "answer").read_text() == "pass fine"


def gone(pid: int) -> bool:
    """Whether a process is no more, or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return gone(pid)


CHILDREN = """
    import subprocess, sys, time
    sleeper = [sys.executable, '-c', 'import time; time.sleep(600)']
    open({place!r}, 'w').write(' '.join(str(subprocess.Popen(sleeper).pid) for _ in range(3)))
    {then}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("then", ["return {'detail': 'fine'}", "import os; os.abort()", "hang"])
def test_children_do_not_outlive_their_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    place = tmp_path / "pids"
    pass_limit_once(tmp_path / "hangs", monkeypatch)
    started = time.monotonic()
    then = hanging(tmp_path / "hangs") if then == "hang" else then
    run_one(tmp_path, CHILDREN.format(place=str(place), then=then), time_limit=LIMIT)
    assert time.monotonic() - started < 300
    pids = [int(word) for word in place.read_text().split()]
    assert len(pids) == 3
    assert all(map(wait_until_gone, pids))


def waiting_run(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A run in a process of its own, whose check waits with three children; their process numbers."""
    place, checks, scratch = folder / "pids", folder / "checks", folder / "scratch"
    checks.mkdir()
    scratch.mkdir()
    write_check(checks, CHILDREN.format(place=str(place), then="time.sleep(600)"))
    # Under nohup a hangup is ignored, and every child inherits that.
    code = f"""
import signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from pathlib import Path
from envsolve.errors import EnvsolveError
from envsolve.verify.runner import run_checks
try:
    run_checks(Path({sys.executable!r}), folder=Path({str(checks)!r}))
except EnvsolveError as error:
    sys.exit(error.exit_code)
"""
    runner = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (place.exists() and len(place.read_text().split()) == 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    return runner, [int(word) for word in place.read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_running_check_its_children_and_its_folder(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    runner, pids = waiting_run(tmp_path)
    runner.send_signal(number)
    runner.communicate(timeout=120)
    assert runner.returncode == code
    assert all(map(wait_until_gone, pids))
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_kill_ends_the_running_check_too_and_the_next_run_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, pids = waiting_run(tmp_path)
    (left,) = (tmp_path / "scratch").iterdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    remove_abandoned()
    assert left.exists()  # its run lives
    runner.kill()
    runner.communicate(timeout=120)
    assert all(map(wait_until_gone, pids))
    with scratch_folder() as other:
        remove_abandoned()
        assert list((tmp_path / "scratch").iterdir()) == [other]


def test_what_is_needed_and_absent_is_a_skip(tmp_path: Path) -> None:
    check = run_one(tmp_path, "return {'detail': 'fine'}", needs="('json', 'no_such_module_here')")
    assert (check.status, check.detail) == ("skip", "no_such_module_here is not installed in this environment")


def test_a_report_of_skips_alone_has_not_passed(tmp_path: Path) -> None:
    write_check(tmp_path, "return {'detail': ''}", needs="('no_such_module_here',)")
    report = run_checks(target(), folder=tmp_path)
    assert not report.passed
    assert not report.failed


def test_checks_of_gpus_run_once_for_each_gpu_that_a_host_check_lists(tmp_path: Path) -> None:
    write_check(tmp_path, "return {'detail': 'two', 'devices': ['A (cc 9.0)', 'B (cc 8.0)']}", name="cards")
    write_check(tmp_path, "return {'detail': argument}", name="each", runs_on="gpu")
    write_check(tmp_path, "return {'detail': argument}", name="ahead", runs_on="architecture")
    checks = run_checks(target(), folder=tmp_path).checks
    assert [(check.name, check.gpu, check.detail) for check in checks] == [
        ("cards", None, "two"),
        ("each", "0: A (cc 9.0)", "0"),
        ("each", "1: B (cc 8.0)", "1"),
    ]


def test_without_a_gpu_its_checks_are_skips(tmp_path: Path) -> None:
    write_check(tmp_path, "raise RuntimeError('cuInit failed')", name="cards")
    write_check(tmp_path, "return {'detail': argument}", name="each", runs_on="gpu")
    report = run_checks(target(), folder=tmp_path)
    assert [check.status for check in report.checks] == ["fail", "skip"]
    assert report.failed


def test_compile_checks_run_once_for_each_architecture_and_no_others_do(tmp_path: Path) -> None:
    write_check(tmp_path, "return {'detail': 'host'}", name="cards")
    write_check(tmp_path, "return {'detail': argument}", name="ahead", runs_on="architecture")
    report = run_compile_checks(PYTHON, [ComputeCapability(9, 0), ComputeCapability(12, 1)], folder=tmp_path)
    assert [(check.name, check.gpu, check.detail) for check in report.checks] == [
        ("ahead", "9.0", "9.0"),
        ("ahead", "12.1", "12.1"),
    ]
    assert report.passed


def test_variables_reach_the_check_and_its_command(tmp_path: Path) -> None:
    write_check(tmp_path, "import os; return {'detail': os.environ['TRITON_PTXAS_PATH']}")
    (check,) = run_checks(PYTHON, folder=tmp_path, environment={"TRITON_PTXAS_PATH": "/a b/ptxas"}).checks
    assert check.detail == "/a b/ptxas"
    assert check.command is not None
    again = subprocess.run(check.command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout) == {"status": "pass", "detail": "/a b/ptxas"}


def test_what_dies_without_a_word_is_told_with_the_variables_that_it_may_come_from(tmp_path: Path) -> None:
    path = write_check(tmp_path, "import os; os.abort()")
    path.write_text(path.read_text().replace("order=1", "order=1, variables=('TRITON_PTXAS_PATH', 'CUDA_HOME')"))
    (check,) = run_checks(PYTHON, folder=tmp_path, environment={"TRITON_PTXAS_PATH": "/old/ptxas"}).checks
    assert check.detail.startswith("was killed by SIGABRT")
    assert check.detail.endswith("\nTRITON_PTXAS_PATH is set to /old/ptxas")


def test_the_command_of_a_failure_fails_again(tmp_path: Path) -> None:
    check = run_one(tmp_path, "raise ValueError('wrong')")
    assert check.command is not None
    again = subprocess.run(check.command, shell=True, capture_output=True, text=True)
    assert again.returncode == 1
    assert json.loads(again.stdout)["detail"] == "ValueError: wrong"


def test_the_environment_is_seen_as_its_user_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "shadowing_module.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(shadow))
    check = run_one(tmp_path, "import shadowing_module; return {'detail': shadowing_module.__file__}")
    assert check.detail == str(shadow / "shadowing_module.py")


def test_a_python_that_is_told_to_stay_at_a_prompt_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONINSPECT", "1")
    assert run_one(tmp_path, "return {'detail': 'fine'}").status == "pass"


def test_relative_paths_lead_where_they_lead_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "shadowing_module.py").write_text("")
    (tmp_path / "ptxas").touch()
    variables = {"PYTHONPATH": "shadow:/else:", "TRITON_PTXAS_PATH": "./ptxas", "CUDA_HOME": "no-such"}
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    write_check(
        tmp_path,
        f"import os, shadowing_module; return {{'detail': ' '.join(os.environ[n] for n in {list(variables)})}}",
    )
    (check,) = run_checks(target(), folder=tmp_path).checks
    assert check.detail == f"{tmp_path}/shadow:/else:{tmp_path} {tmp_path}/ptxas no-such"


def test_envsolve_itself_is_not_before_the_modules_that_are_verified(tmp_path: Path) -> None:
    body = "import importlib.util; return {'detail': str(importlib.util.find_spec('describe'))}"
    assert run_one(tmp_path, body).detail == "None"


def test_no_place_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(EnvsolveError, match="no directory for temporary files") as caught:
        run_checks(PYTHON, folder=tmp_path)
    assert "TMPDIR" in (caught.value.hint or "")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "gone"))
    with pytest.raises(EnvsolveError, match=r"cannot create a directory in .*gone: No such file"):
        run_checks(PYTHON, folder=tmp_path)


def test_scratch_files_are_removed(tmp_path: Path) -> None:
    check = run_one(tmp_path, "import os, tempfile; return {'detail': tempfile.mkdtemp() + os.pathsep + os.getcwd()}")
    made, cwd = check.detail.split(os.pathsep)
    assert Path(made).parent == Path(cwd)
    assert not Path(cwd).exists()


def test_compiling_for_no_card() -> None:
    with pytest.raises(UsageError, match="compute capability"):
        run_compile_checks(PYTHON, [])

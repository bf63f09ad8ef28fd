"""Checks side by side: in whatever order they end, each has its own result, and a failure counts only alone."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from envsolve.errors import InterruptedBySignalError
from envsolve.verify import runner, target
from envsolve.verify.runner import run_checks
from tests.verify.test_runner import write_check

PYTHON = Path(sys.executable)
CARDS = "return {'detail': 'three', 'devices': ['A (cc 9.0)', 'B (cc 9.0)', 'C (cc 8.0)']}"


@pytest.fixture
def three_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "places", lambda gpus: 3)


WAITS_FOR_THE_OTHERS = """
    import pathlib, time
    folder = pathlib.Path({folder!r})
    (folder / ("at" + argument)).touch()
    while len(list(folder.glob("at*"))) < 3:
        time.sleep(0.005)
    return {{'detail': argument}}
"""


@pytest.mark.usefixtures("three_places")
def test_they_run_at_the_same_time_and_are_told_in_their_order(tmp_path: Path) -> None:
    write_check(tmp_path, CARDS, name="cards")
    write_check(tmp_path, WAITS_FOR_THE_OTHERS.format(folder=str(tmp_path)), name="each", runs_on="gpu")
    report = run_checks(PYTHON, folder=tmp_path)
    assert [(check.name, check.status, check.detail) for check in report.checks] == [
        ("cards", "pass", "three"),
        *[("each", "pass", number) for number in "012"],
    ]
    assert report.seconds is not None


# Each waits until all three have tried to take what one alone can have; later runs find the three marks there.
ONLY_ONE_AT_A_TIME = """
    import fcntl, os, pathlib, time
    folder = pathlib.Path({folder!r})
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        (folder / ("at" + argument)).touch()
    while len(list(folder.glob("at*"))) < 3:
        time.sleep(0.005)
    return {{'detail': 'fine'}}
"""


@pytest.mark.usefixtures("three_places")
def test_what_fails_beside_others_and_not_alone_passes_and_says_so(tmp_path: Path) -> None:
    write_check(tmp_path, CARDS, name="cards")
    write_check(tmp_path, ONLY_ONE_AT_A_TIME.format(folder=str(tmp_path)), name="each", runs_on="gpu")
    checks = run_checks(PYTHON, folder=tmp_path).checks[1:]
    assert {check.status for check in checks} == {"pass"}
    noted = [
        check
        for check in checks
        if "passed when run by itself, failed beside other checks (BlockingIOErr" in check.detail
    ]
    assert len(noted) == 2


@pytest.mark.usefixtures("three_places")
def test_what_fails_alone_too_is_told_in_its_own_words(tmp_path: Path) -> None:
    write_check(tmp_path, CARDS, name="cards")
    body = "if argument == '2':\n    raise ArithmeticError('wrong')\nreturn {'detail': 'fine'}"
    write_check(tmp_path, body, name="each", runs_on="gpu")
    checks = run_checks(PYTHON, folder=tmp_path).checks[1:]
    assert [check.status for check in checks] == ["pass", "pass", "fail"]
    assert checks[2].detail == "ArithmeticError: wrong"


@pytest.mark.usefixtures("three_places")
def test_an_interruption_ends_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_check(tmp_path, CARDS, name="cards")
    place = tmp_path / "pid"
    body = f"import os, time; open({str(place)!r} + argument, 'w').write(str(os.getpid())); time.sleep(60)"
    write_check(tmp_path, body, name="each", runs_on="gpu")
    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        sleep(seconds)
        if len([path for path in tmp_path.glob("pid?") if path.read_text()]) == 3:
            raise InterruptedBySignalError(15)

    monkeypatch.setattr(target, "sleep", interrupted)
    with pytest.raises(InterruptedBySignalError):
        run_checks(PYTHON, folder=tmp_path)
    for path in tmp_path.glob("pid?"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)


@pytest.mark.parametrize(("cores", "gpus", "expected"), [(1, 1, 1), (2, 1, 1), (4, 1, 2), (16, 1, 4), (32, 2, 8)])
def test_as_many_as_the_cores_and_the_gpus_bear(cores: int, gpus: int, expected: int) -> None:
    assert target.most_at_once(cores, gpus) == expected

"""Every command that a page shows is run: here, with ``-m network`` against an index, or not, for a reason below."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from envsolve.cli.main import run
from tests.test_docs import PAGES, ROOT, commands

#: Commands that no test runs as they are shown, and why. What they do is tested with stand-ins, in the directory named.
NEVER = {
    r"^(fleet|run --fleet) ": "they need a Slurm or Kubernetes cluster; see tests/fleet",
    r"^verify": "the checks need a GPU or an environment of several GB; see tests/verify and -m gpu",
    r"^install ": "each downloads several GB and compiles or verifies them; see tests/install and -m network there",
    r"^guard ": "they change the environment that is active; see tests/protect",
    r"^diagnose --prefix \.venv|^diagnose error.txt --prefix": "they need a broken environment; see tests/diagnose",
    r"^bundle ": "it downloads all wheels of a plan, several GB; see tests/install",
    r"^index (update|check)": "they download the wheels of new releases; see tests/facts and -m network there",
    r"^index measure ": "they need a wheel of 100 MB or an environment; see tests/binaries",
    r"mirror\.example|/home/me|~/src|~/envs": "the name is an example of your own",
    r"--find-links \./wheels": "the directory of wheels is your own; see tests/packages/test_links.py",
    r"--manager conda|environment\.yml": "they solve with a conda channel; see tests/planning/conda",
}

#: Commands that need the package index.
NETWORK = re.compile(r"^(plan|install)\b")

#: Exit codes of commands that are shown for their refusal, by the command; of all others they are 0.
REFUSED = {
    "plan torch --target 'RTX 4090 driver 550'": 2,
    "builds numpy": 2,
}

#: What "no plan" and "does not run" answer: pages show plans that are impossible for their reasons.
ANSWERS = {0, 3, 4}

REPORT = """RuntimeError: CUDA error: no kernel image is available for execution on the device
torch 2.15.0+cu132, NVIDIA GeForce GTX 1080, driver 580.95.05
"""

LOCK = """lock-version = "1.0"
created-by = "test"
[[packages]]
name = "torch"
version = "2.8.0"
index = "https://download.pytorch.org/whl/cu128"
[[packages.wheels]]
name = "torch-2.8.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl"
url = "https://download.pytorch.org/whl/cu128/torch-2.8.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl"
hashes = {sha256 = "SHA"}
""".replace("SHA", "0" * 64)

UV_LOCK = """version = 1
revision = 3
requires-python = ">=3.12"
[[package]]
name = "mine"
version = "0"
source = { virtual = "." }
dependencies = [{ name = "torch" }]
[[package]]
name = "torch"
version = "2.15.0"
source = { registry = "https://example.org/simple" }
wheels = [
    { url = "https://example.org/torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl", hash = "sha256:SHA" },
]
""".replace("SHA", "0" * 64)

FILES = {
    "error.txt": REPORT,
    "err.txt": REPORT,
    "issue.txt": REPORT,
    "env.build.log": "RuntimeError: The current installed version of g++ (14.2.0) is greater than the maximum",
    "requirements.txt": "torch\ntorchvision\n",
    "pylock.toml": LOCK,
    "uv.lock": UV_LOCK,
    "pyproject.toml": '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.12"\ndependencies = ["torch"]\n',
    "Dockerfile": "FROM python:3.12-slim\nRUN pip install torch\n",
}


def shown() -> dict[str, list[str]]:
    """Return the commands of all pages, each once; synopses of the reference are not commands."""
    found = {}
    for page in PAGES:
        for words in commands(page.read_text()):
            found[shlex.join(words)] = words
    return found


def reason(command: str) -> str | None:
    return next((why for pattern, why in NEVER.items() if re.search(pattern, command)), None)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the files that the pages name, and a report on the standard input."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    recorded = ROOT / "tests" / "recorded" / "h100.json"
    (folder / "machines").mkdir()
    for name in ("machine.json", "a.json", "b.json", "machines/x.json"):
        shutil.copy(recorded, folder / name)
    monkeypatch.chdir(folder)
    with (folder / "err.txt").open() as report:
        monkeypatch.setattr("sys.stdin", report)
        yield folder


def exit_code(words: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        run(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def answer(command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command as it is shown; one that asks before it changes a file gets the answer that a person would give."""
    code = exit_code([*words, "--yes"] if "--write" in words else words)
    captured = capsys.readouterr()
    if code == 5:
        pytest.skip(f"a host cannot be reached from here: {captured.err.splitlines()[0]}")
    allowed = {REFUSED[command]} if command in REFUSED else ANSWERS
    assert code in allowed, captured.err
    assert "Traceback" not in captured.err
    return captured.out + captured.err


OFFLINE = {c: w for c, w in shown().items() if reason(c) is None and not NETWORK.match(c)}
ONLINE = {c: w for c, w in shown().items() if reason(c) is None and NETWORK.match(c) and c not in REFUSED}
OFFLINE |= {c: w for c, w in shown().items() if c in REFUSED}


@pytest.mark.parametrize("command", OFFLINE)
@pytest.mark.usefixtures("work")
def test_a_command_of_the_pages_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(command, OFFLINE[command], capsys)


@pytest.mark.network
@pytest.mark.parametrize("command", ONLINE)
@pytest.mark.usefixtures("work")
def test_a_command_of_the_pages_runs_with_the_index(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(command, ONLINE[command], capsys)


def test_every_reason_not_to_run_a_command_is_needed() -> None:
    assert [pattern for pattern in NEVER if not any(re.search(pattern, command) for command in shown())] == []
    assert set(REFUSED) <= set(shown())


def test_the_reports_of_the_pages_are_read(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other tests accept any answer, so this one shows that a report is not just ignored."""
    assert exit_code(["diagnose", "error.txt", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["diagnoses"][0]["cause"] == "no-kernel-for-gpu"

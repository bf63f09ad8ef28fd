"""``--manager conda`` on the command line: what implies it, what it refuses, and the whole way to an environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from envsolve.cli.main import run as main
from tests.condachannel import CondaChannel

Run = Callable[..., int]
GPU = "RTX 4090, driver 550.54.14, python 3.13, linux-x86_64, glibc 2.35"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def called(*line: str) -> int:
        monkeypatch.setattr("sys.argv", ["envsolve", *line])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0)

    return called


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            ["plan", "torch", "--format", "pixi", "--manager", "uv"],
            "--format pixi is only for conda packages, not for uv",
        ),
        (["plan", "torch", "--channel", "x", "--manager", "pip"], "--channel is only for conda packages, not for pip"),
        (["plan", "torch", "--manager", "brew"], "not one of uv, pip, conda"),
        (["plan", "torch", "--manager", "conda", "--allow-groups"], "do not support conda packages"),
        (["plan", "torch", "--manager", "conda", "--index-url", "https://example.org"], "conda plans do not support"),
    ],
)
def test_what_does_not_go_together(line: list[str], words: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*line, "--target", GPU) == 2
    assert words in capsys.readouterr().err


def test_the_name_of_the_file_chooses_the_format(
    channel: CondaChannel, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    for name, words in (
        ("environment.yml", "- pytorch=2.7.1=cuda129*"),
        ("pixi.toml", "[system-requirements]"),
        ("conda-linux-64.lock", "@EXPLICIT"),
    ):
        path = tmp_path / name
        assert run("plan", "torch", "--channel", channel.url, "--target", GPU, "-o", str(path)) == 0
        assert words in path.read_text()
        assert "chosen: cu129, pytorch 2.7.1" in capsys.readouterr().err


def test_an_impossible_plan_leaves_with_its_exit_code(
    channel: CondaChannel, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    line = ["plan", "torch<1", "--manager", "conda", "--channel", channel.url, "--target", GPU]
    assert run(*line) == 3
    assert "relax pytorch <1" in capsys.readouterr().out


def test_the_exit_code_is_left_with_whatever_rattler_does_as_python_ends(tmp_path: Path) -> None:
    """Its threads may crash while Python takes itself down; here a thing that would speak then stands for them."""
    script = (
        "import sys, types\n"
        "class Late:\n"
        "    def __del__(self): print('taken down')\n"
        "sys.modules['rattler'] = late = types.ModuleType('rattler')\n"
        "late.kept = Late()\n"
        f"sys.argv = ['envsolve', 'plan', '-r', {str(tmp_path / 'none.yml')!r}]\n"
        "from envsolve.__main__ import program\n"
        "program()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.yml" in done.stderr


@pytest.mark.slow
def test_from_the_command_to_the_environment(channel: CondaChannel, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    line = ["install", "numpy", "--manager", "conda", "--channel", channel.url, "--prefix", str(tmp_path / "env")]
    assert run(*line, "--no-verify") == 0
    assert list((tmp_path / "env" / "conda-meta").glob("numpy-*.json"))

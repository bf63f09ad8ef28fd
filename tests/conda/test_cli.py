"""``--manager conda`` on the command line: what implies it, what it refuses, and the whole way to an environment."""

from __future__ import annotations

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
        (["plan", "torch", "--format", "pixi", "--manager", "uv"], "--format pixi is for conda packages, not for uv"),
        (["plan", "torch", "--channel", "x", "--manager", "pip"], "--channel is for conda packages, not for pip"),
        (["plan", "torch", "--manager", "brew"], "not one of uv, pip, conda"),
        (["plan", "torch", "--manager", "conda", "--allow-groups"], "not for conda packages"),
        (["plan", "torch", "--manager", "conda", "--index-url", "https://example.org"], "not for conda packages"),
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


@pytest.mark.slow
def test_from_the_command_to_the_environment(channel: CondaChannel, run: Run, tmp_path: Path) -> None:
    pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")
    line = ["install", "numpy", "--manager", "conda", "--channel", channel.url, "--prefix", str(tmp_path / "env")]
    assert run(*line, "--no-verify") == 0
    assert list((tmp_path / "env" / "conda-meta").glob("numpy-*.json"))

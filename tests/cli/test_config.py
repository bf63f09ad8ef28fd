from __future__ import annotations

import json
from pathlib import Path

import pytest

from envsolve.cli.completion import gpu_values
from envsolve.cli.config import defaults, settings
from envsolve.cli.main import run
from envsolve.errors import UsageError
from envsolve.machine.target import parse_target

PROJECT = """\
[tool.envsolve]
cuda = "cu126"
extra-index-url = ["https://a.example/s"]
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    user = tmp_path / "config" / "envsolve" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text('python = "3.11"\ncuda = "cu118"\npre = true\n')
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path / "project" / "src")
    return tmp_path


def test_variables_win_over_the_project_and_that_over_the_user(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings()["cuda"] == ("cu126", str(project / "project" / "pyproject.toml"))
    assert settings()["python"].value == "3.11"
    monkeypatch.setenv("ENVSOLVE_CUDA", "12.8")
    monkeypatch.setenv("ENVSOLVE_PRE", "no")
    assert settings()["cuda"] == ("12.8", "ENVSOLVE_CUDA")
    assert settings()["pre"] == (False, "ENVSOLVE_PRE")


def test_settings_are_defaults_of_plan_and_install() -> None:
    told = {"python": "3.11", "cuda": "cu126", "pre": True, "extra_index_url": ["https://a.example/s"]}
    assert defaults(["plan", "torch"]) == {"plan": told}
    assert defaults(["install", "torch"]) == {"install": told}
    assert defaults(["install", "pylock.toml"]) == {"install": {"python": "3.11"}}
    assert defaults(["verify"]) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cudda = 1", "unknown setting cudda"),
        ("python = 3.11", "has the wrong type"),
        ("extra-index-url = [1]", "has the wrong type"),
        ("python", "is not TOML"),
    ],
)
def test_faults_name_the_file(project: Path, text: str, message: str) -> None:
    user = project / "config" / "envsolve" / "config.toml"
    user.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        settings()
    assert str(user) in caught.value.message


def test_a_project_does_not_switch_on_what_runs_code(project: Path) -> None:
    for file in (project / "project" / "pyproject.toml", project / "config" / "envsolve" / "config.toml"):
        table = "[tool.envsolve]\n" if file.name == "pyproject.toml" else ""
        file.write_text(f"{table}build-metadata = true\n")
        if table:
            with pytest.raises(UsageError, match="makes packages run their code, so a project file may not set it"):
                settings()
            file.write_text("")
    assert settings()["build-metadata"].value is True


@pytest.mark.parametrize("text", ["tool = 5", "tool.envsolve = 5", "tool = []"])
def test_a_project_whose_table_is_none_is_refused(project: Path, text: str) -> None:
    (project / "project" / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match="is not a table"):
        settings()


def test_a_variable_that_is_neither_true_nor_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVSOLVE_OFFLINE", "perhaps")
    with pytest.raises(UsageError, match="ENVSOLVE_OFFLINE=perhaps"):
        settings()


@pytest.mark.parametrize("words", [["config"], ["config", "--format", "json"]])
def test_passwords_are_not_shown(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENVSOLVE_INDEX_URL", "https://me:secret@a.example/simple")
    with pytest.raises(SystemExit):
        run(words)
    shown = capsys.readouterr().out
    assert "a.example/simple" in shown
    assert "secret" not in shown
    assert "--format" not in words or json.loads(shown)["schema"] == "envsolve.config/1"


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["bash"], ".bash_completions/envsolve.sh"),
        (["--shell", "bash"], ".bash_completions/envsolve.sh"),
        (["zsh"], ".zfunc/_envsolve"),
        (["fish"], ".config/fish/completions/envsolve.fish"),
    ],
)
def test_completion_is_installed_for_a_shell(
    words: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        run(["completion", "install", *words])
    assert ended.value.code == 0
    script = (tmp_path / file).read_text()
    assert "_ENVSOLVE_COMPLETE" in script
    assert script.endswith('_envsolve_completion "$@"; fi\n') == ("zsh" in words)


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("plan --gpu RTX-507", {"RTX-5070", "RTX-5070-Ti"}),
        ("plan --gpu rtx-507", {"rtx-5070-ti"}),
        ("builds torch --target 'RTX 507", {"RTX 5070 Ti"}),
        ("plan --cuda cu13", {"cu130", "cu132"}),
        ("plan --python 3.1", {"3.12"}),
        ("plan --format py", {"pylock"}),
        ("builds torch --format m", {"markdown"}),
        ("builds torchv", {"torchvision"}),
        ("no-such-command ", set()),
    ],
)
def test_a_shell_is_given_values(
    line: str, some: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_ENVSOLVE_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"envsolve {line}")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        run([])
    shown = capsys.readouterr()
    found = set(shown.out.splitlines())
    assert some <= found and bool(some) == bool(found)
    assert shown.err == ""


def test_every_gpu_that_a_shell_is_given_is_understood() -> None:
    every = gpu_values("")
    assert len(every) > 300
    names = [parse_target(name).gpus for name in every]
    assert all(found is not None and len(found) == 1 for found in names)


def test_a_verbose_version_says_what_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["--version", "--verbose"])
    shown = capsys.readouterr().out
    assert "Python 3." in shown
    assert "catalogue of 20" in shown
    assert "packaging " in shown


@pytest.mark.parametrize("name", ["CUDA", "INDEX_URL", "OFFLINE", "FIND_LINKS"])
def test_a_variable_with_control_characters_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"ENVSOLVE_{name}", "\x1b[31mx")
    with pytest.raises(UsageError, match=f"ENVSOLVE_{name} has a line break or another control character"):
        settings()


def test_a_list_may_have_several_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVSOLVE_FIND_LINKS", "/a\n/b")
    assert settings()["find-links"].value == ["/a", "/b"]


@pytest.mark.parametrize("name", ["OFFLINE", "CUDA", "MANAGER", "INDEX_STRATEGY"])
def test_a_password_in_the_wrong_variable_is_in_no_message(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"ENVSOLVE_{name}", "https://bob:s3cret@i.example/simple")
    with pytest.raises(SystemExit) as left:
        run(["plan", "torch", "--gpu", "H100", "--offline"])
    said = capsys.readouterr()
    assert left.value.code == 2
    assert "i.example" in said.err and "s3cret" not in said.err + said.out

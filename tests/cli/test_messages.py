"""The command line's words to a person: usage errors with a way out, help that is whole, remarks beside results."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve import cli
from envsolve.cli.main import HELPERS, run
from envsolve.planning.plan import Plan
from tests.formats.plans import GOOD, IMPOSSIBLE, TORCH

MACHINE = "H100, driver 580.95, python 3.12, linux-x86_64, glibc 2.35"


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


Say = Callable[..., Said]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def call(*words: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            run(list(words))
        captured = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, captured.out, captured.err)

    return call


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (["plan"], "nothing to plan", "name a requirement"),
        (["install", "--prefix", "env"], "nothing to plan", "name a requirement"),
        (["plan", "torch", "--target", ""], "the target is empty", "a target is a list of parts"),
        (["plan", "torch", "--target", "RTX 4090 driver 550"], "cannot read", "separate the parts with commas"),
        (["builds", "torsh"], "the catalogue has no builds of torsh", "did you mean torch?"),
        (["envs", "/not/there"], "/not/there is not a directory", "give a directory"),
        (["builds", "torch", "--platform", "solaris"], "--platform solaris is not a valid platform", "linux-aarch64"),
        (["builds", "torch", "--platform", "H100"], "--platform H100 is not a valid platform", "--target"),
        (["builds", "torch", "--gpu", "H100, driver 550"], "--gpu 'H100, driver 550' is not a valid gpu", "--target"),
        (["builds", "torch", "--driver", "driver 550"], "--driver 'driver 550': cannot read", "--driver 550.54.15"),
        (["builds", "torch", "--driver", ""], "--driver ''", "--driver 550.54.15"),
        (["builds", "torch", "--platform", ""], "--platform ''", "linux-x86_64"),
        (["builds", "torch", "--gpu", ""], "--gpu ''", "RTX 4090"),
        (["builds", "torch", "--target", "MI300X"], "not an NVIDIA GPU", "no gpu"),
        (["verify", "--prefix", "env", "--gpu", "12.1"], "--gpu gives GPUs to compile for", "add --compile-only"),
        (["verify", "--prefix", "env", "--compile-only"], "no GPU to compile for", "add --gpu"),
        (["verify"], "no environment to verify", "--prefix DIR"),
        (["plan", "-r", "missing.txt", "--target", MACHINE], "missing.txt: the file cannot be read", "check the path"),
        (
            ["plan", "-c", "missing.txt", "torch", "--target", MACHINE],
            "missing.txt: the file cannot be read",
            "check the path",
        ),
        (["plan", "./missing", "--target", MACHINE], "file or directory ./missing does not exist", "check the path"),
        (["plan", "torch", "--cuda", "CU126", "--target", MACHINE], "not the name of a variant", "did you mean cu126?"),
        (
            ["install", "torch", "--prefix", "env", "--cuda", "CU126"],
            "not the name of a variant",
            "did you mean cu126?",
        ),
        (
            ["plan", "torch", "--python", "3.99", "--target", MACHINE],
            "Python 3.99 is not in the catalogue",
            "3.6 to 3.",
        ),
        (["builds", "torch", "--python", "abc", "--target", MACHINE], "not a Python version", "write it as 3.12"),
        (["plan", "torch", "--format", "toml"], "unknown plan format", "pylock"),
        (["plan", "torch", "--manager", "npm"], "--manager npm is not one of uv, pip", "leave it out"),
    ],
)
def test_wrong_usage_is_told_with_a_way_out(
    say: Say, line: list[str], message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # which has no .venv
    said = say(*line)
    assert said.code == 2
    first, *rest = said.err.splitlines()
    assert message in first
    assert hint in "\n".join(rest)
    assert "docs/" not in said.err


@pytest.fixture
def no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    return tmp_path


def test_the_suffix_of_a_file_decides_its_format(say: Say, no_environment: Path) -> None:
    (no_environment / "err.txt").write_text("CUDA error: no kernel image is available for execution on the device")
    assert say("diagnose", "err.txt", "-o", "found.json").code == 0
    assert json.loads((no_environment / "found.json").read_text())["schema"] == "envsolve.diagnosis/1"
    refused = say("diagnose", "err.txt", "-o", "found.pdf")
    assert (refused.code, "no output format for files with the suffix .pdf" in refused.err) == (2, True)
    assert say("plan", "torch", "--target", MACHINE, "-o", "plan.pdf").code == 2


def test_the_environment_is_the_active_one_or_that_of_the_directory(
    say: Say, no_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing to diagnose" in say("diagnose").err
    (no_environment / ".venv").mkdir()
    assert "environment: .venv" in say("diagnose").err
    monkeypatch.setenv("CONDA_PREFIX", str(no_environment / "conda"))
    assert "(CONDA_PREFIX)" in say("verify").err
    monkeypatch.setenv("VIRTUAL_ENV", str(no_environment / "active"))
    assert "active (VIRTUAL_ENV)" in say("guard", "--write").err


@pytest.mark.parametrize(
    ("line", "kind", "code"),
    [
        (["plan", "trch", "--format", "json"], "usage", 2),
        (["plan", "--format=json", "trch"], "usage", 2),
        (["builds", "torch", "--format", "json", "--nonsense"], "usage", 2),
        (["plam", "torch", "--format", "json"], "usage", 2),
        (["plan", "six", "--format", "json", "--offline", "--target", MACHINE], "index-unavailable", 5),
    ],
)
def test_an_error_is_json_beside_its_text_if_json_is_requested(
    say: Say, line: list[str], kind: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said = say(*line)
    error = json.loads(said.out)
    assert (error["schema"], error["kind"], error["exit_code"], said.code) == ("envsolve.error/1", kind, code, code)
    assert said.err.startswith(f"envsolve: {error['message']}\n")
    assert error["hint"] in said.err


@pytest.mark.parametrize(
    "command",
    [
        "plan six",
        "builds torch",
        "detect",
        "config",
        "envs",
        "report",
        "diff a b",
        "check-lock a",
        "check-dockerfile a",
        "index show",
    ],
)
def test_an_unknown_suffix_is_refused_by_every_command(say: Say, command: str, tmp_path: Path) -> None:
    said = say(*command.split(), "-o", str(tmp_path / "x.xyz"))
    assert said.code == 2
    assert "suffix .xyz" in said.err


def test_an_error_is_no_json_unless_the_option_is_envsolve_s_own(say: Say) -> None:
    assert say("plan", "trch").out == ""
    assert say("guard", "--dry-run", "--cuda", "cu1", "--", "pip", "install", "--format", "json").out == ""


def test_misspelt_commands_are_suggested(say: Say) -> None:
    assert "did you mean: envsolve plan" in say("plna", "torch").err


def test_a_bad_line_of_a_file_is_told_with_the_lines_that_there_are(say: Say, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("torch --frobnicate\n")
    said = say("plan", "-r", str(tmp_path / "r.txt"), "--target", MACHINE)
    assert said.code == 2
    assert "--extra-index-url" in said.err and "docs/" not in said.err


COMMANDS = (
    *("builds", "detect", "install", "plan", "verify"),
    *("index check", "index measure", "index show", "index update"),
)


def test_every_module_of_the_folder_is_a_command_or_a_helper() -> None:
    for module in pkgutil.iter_modules(cli.__path__):
        found = importlib.import_module(f"envsolve.cli.{module.name}")
        command = hasattr(found, "command") or hasattr(found, "COMMANDS")
        assert command != (module.name in HELPERS or module.name.startswith("_")), module.name


def test_the_list_of_commands_is_not_cut(say: Say) -> None:
    for line in ([], ["index"]):
        said = say(*line, "-h")
        assert said.code == 0
        assert "..." not in said.out.partition("Commands:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_tells_of_the_options_that_all_take_and_shows_no_bare_type(say: Say, command: str) -> None:
    said = say(*command.split(), "-h")
    options = said.out.partition("Options:")[2]
    assert "--quiet (-q), --verbose (-v) and --debug" in options
    assert "<str>" not in options and "<list" not in options


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plan that the command is given in place of making one: what is tried here is what it says of it."""
    plans = [GOOD]
    monkeypatch.setattr("envsolve.planning.plans.plan", lambda *_, **__: plans[0])
    return plans


@pytest.mark.parametrize("form", ["pip", "uv", "pylock", "requirements"])
def test_what_is_chosen_and_the_warnings_stand_beside_a_format_for_machines(
    say: Say, planned: list[Plan], form: str
) -> None:
    said = say("plan", "torch", "--target", MACHINE, "--format", form)
    assert said.err.splitlines()[:2] == [
        "chosen: cu126, torch 2.9.0+cu126, 3 packages",
        "Warning   extensions that ship PTX alone will not run [no-ptx]",
    ]
    assert "Warning" not in said.out
    assert say("plan", "torch", "--target", MACHINE, "--format", form, "--quiet").err == ""


@pytest.mark.parametrize("name", ["pylock.toml", "plan.json", "plan.txt", "plan.md"])
def test_they_stand_on_the_terminal_where_the_plan_goes_to_a_file(
    say: Say, planned: list[Plan], tmp_path: Path, name: str
) -> None:
    said = say("plan", "torch", "--target", MACHINE, "-o", str(tmp_path / name))
    assert said.out == ""
    assert "chosen: cu126" in said.err and "[no-ptx]" in said.err
    assert (tmp_path / name).stat().st_size


@pytest.mark.parametrize("form", ["summary", "json"])
def test_a_plan_that_holds_its_warnings_is_not_repeated(say: Say, planned: list[Plan], form: str) -> None:
    assert say("plan", "torch", "--target", MACHINE, "--format", form).err == ""


def test_an_impossible_plan_in_a_file_is_told_too(say: Say, planned: list[Plan], tmp_path: Path) -> None:
    planned[0] = IMPOSSIBLE
    said = say("plan", "torch", "--target", MACHINE, "-o", str(tmp_path / "plan.json"))
    assert said.code == 3
    assert "nothing fits; because flash-attn 1.0 needs torch<2.1" in said.err


def test_sources_of_a_conflict_are_shown_with_verbose(say: Say, planned: list[Plan]) -> None:
    planned[0] = IMPOSSIBLE
    assert "(source: requirement)" not in say("plan", "torch", "--target", MACHINE).out
    assert "(source: requirement)" in say("plan", "torch", "--target", MACHINE, "--verbose").out


def test_a_refused_lock_names_the_index(say: Say, planned: list[Plan]) -> None:
    planned[0] = replace(GOOD, packages=(replace(TORCH, url=None, hashes={}),))
    said = say("plan", "torch", "--target", MACHINE, "--format", "pylock")
    assert said.code == 5
    assert "cannot be reached, and the catalogue has no sha256 of torch 2.9.0+cu126" in said.err


@pytest.mark.parametrize("words", [(), ("index",), ("completion",)])
def test_a_command_without_its_subcommand_prints_its_help(say: Say, words: tuple[str, ...]) -> None:
    said = say(*words)
    assert said.code == 2
    assert said.err.startswith(f"Usage: {' '.join(['envsolve', *words])}")
    assert "  what to do: " not in said.err


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("install", "torch", "--gpu", "H100"), "has no option --gpu", "envsolve plan torch --gpu ... -o pylock.toml"),
        (("verify", "--targett", "x"), "no such option: --targett", "see envsolve verify --help"),
        (("plan", "torch", "--platform", "wsl", "--gpu", "GTX 9999"), "GTX 9999", "GTX"),
        (("plan", "torch", "--platform", "H100"), "is not a valid platform", "linux-x86_64"),
        (
            ("plan", "torch", "--target", "5070TI driver 591 wsl ubuntu 24.04 py3.12"),
            "cannot read the target part",
            "5070TI, driver 591, wsl, ubuntu 24.04, py3.12",
        ),
    ],
)
def test_words_about_another_machine(say: Say, words: tuple[str, ...], message: str, hint: str) -> None:
    said = say(*words)
    assert said.code == 2
    first, second, *_ = said.err.splitlines()
    assert message in first
    assert hint in second


@pytest.mark.parametrize(("word", "hint"), [("fix", "diagnose --fix"), ("verifi", "verify"), ("lock", "plan REQ")])
def test_a_command_of_another_name_is_suggested(say: Say, word: str, hint: str) -> None:
    said = say(word)
    assert said.code == 2
    assert f"did you mean: envsolve {hint}" in said.err

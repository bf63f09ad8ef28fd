"""What pip and uv commands of a Dockerfile install, from where, and what is left open."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from envsolve.dockerfile.context import Context
from envsolve.dockerfile.installs import Install, installs
from envsolve.dockerfile.model import Command, other_installer
from envsolve.dockerfile.read import read_stages
from envsolve.system.files import is_folder


def command(words: str, **variables: str) -> Command:
    return Command(1, tuple(words.split()), variables)


def install(words: str, **variables: str) -> Install:
    [found] = installs([command(words, **variables)], Context(None))
    return found


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("pip install torch==2.0.0 --index-url https://download.pytorch.org/whl/cu118", ["torch"]),
        ("python3 -m pip --no-cache-dir install -U torch numpy", ["torch", "numpy"]),
        ("/opt/venv/bin/pip3.11 install torch", ["torch"]),
        ("uv pip install --system --torch-backend cu126 torch", ["torch"]),
        ("pip install --target x -i https://download.pytorch.org/whl/cpu torch", ["torch"]),
        ("pip install -r requirements.txt", []),
    ],
)
def test_installs(words: str, names: list[str]) -> None:
    assert [wanted.name for wanted in install(words).wanted] == names


WHL = "https://download.pytorch.org/whl"


@pytest.mark.parametrize(
    ("words", "variables", "default", "variants", "unknown"),
    [
        ("pip install torch", {}, True, (), False),
        (f"pip install torch -i {WHL}/cu118", {}, False, ("cu118",), False),
        (f"pip install torch --extra-index-url {WHL}/cu118", {}, True, ("cu118",), False),
        (f"pip install torch -f {WHL}/cu111/torch_stable.html", {}, True, ("cu111",), False),
        ("pip install torch", {"PIP_EXTRA_INDEX_URL": f"{WHL}/cu121"}, True, ("cu121",), False),
        ("uv pip install torch", {"UV_INDEX": f"pytorch={WHL}/cu128"}, True, ("cu128",), False),
        ("pip install torch -i https://mirror.example/pypi/simple", {}, True, (), False),
        (f"pip install --pre torch -i {WHL}/nightly/cu128", {}, False, (), True),
        (f"pip install torch -i {WHL}/rocm6.4", {}, False, (), True),
        ("pip install torch -i ${INDEX}", {}, False, (), True),
        ("pip install torch --extra-index-url https://own.example/simple", {}, True, (), True),
    ],
)
def test_where_an_installer_looks(
    words: str, variables: dict[str, str], default: bool, variants: tuple[str, ...], unknown: bool
) -> None:
    places = install(words, **variables).places
    assert (places.default, places.variants, places.unknown) == (default, variants, unknown)


def test_uv_takes_the_first_index_and_its_backend_is_for_packages_of_pytorch() -> None:
    found = install(f"uv pip install torch numpy --extra-index-url {WHL}/cu118", UV_TORCH_BACKEND="cu126")
    assert not found.places.merges and install("pip install torch").places.merges
    assert (found.looks(from_pytorch=True).variants, found.looks(from_pytorch=False).variants) == (
        ("cu126",),
        ("cu118",),
    )
    assert install("uv pip install --torch-backend auto torch").looks(from_pytorch=True).unknown


@pytest.mark.parametrize("words", ["pip download torch", "pip", "echo pip install torch", "conda install torch"])
def test_what_installs_nothing_through_pip(words: str) -> None:
    assert not list(installs([command(words)], Context(None)))


def test_what_an_install_leaves_open() -> None:
    plain = install("pip install .")
    held = install("pip install --no-build-isolation -e . -c c.txt")
    by_variable = install("pip install x", PIP_CONSTRAINT="/c.txt", PIP_NO_BUILD_ISOLATION="1")
    assert (plain.sources, plain.constrained, plain.isolated) == ((".",), False, True)
    assert (held.sources, held.constrained, held.isolated) == ((".",), True, False)
    assert (by_variable.constrained, by_variable.isolated) == (True, False)
    assert install("pip install torch==${V} x").unread == {"torch"}


REQUIREMENTS = """\
--extra-index-url https://download.pytorch.org/whl/cu118  # where
torch==2.0.0 \\
    --hash=sha256:aa
-r more/other.txt
-r gone.txt
# nothing
"""


def test_requirement_files_of_the_context(tmp_path: Path) -> None:
    (tmp_path / "src" / "more").mkdir(parents=True)
    (tmp_path / "src" / "req.txt").write_text(REQUIREMENTS)
    (tmp_path / "src" / "more" / "other.txt").write_text("numpy\n-r ../req.txt\n")
    (tmp_path / "secret.txt").symlink_to("/etc/hostname")
    [stage] = read_stages(
        "FROM a\nWORKDIR /app\nCOPY src/ .\nCOPY secret.txt <<EOF /tmp/\nscipy\nEOF\n"
        "RUN pip install -r req.txt\nRUN cd /tmp && pip install -r EOF -r secret.txt\n"
    )
    first, second = installs(stage.commands, Context(tmp_path))
    found = [(wanted.name, wanted.file) for wanted in first.wanted]
    assert found == [("torch", "req.txt:2"), ("numpy", "more/other.txt:1")]
    assert (first.files, first.places.variants) == (("gone.txt",), ("cu118",))
    assert ([w.name for w in second.wanted], second.files) == (["scipy"], ("secret.txt",)), "a link leads out of it"


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("conda install -y pytorch", "conda install"),
        ("micromamba create -n x", "micromamba create"),
        ("uv sync --frozen", "uv sync"),
        ("poetry install", "poetry install"),
        ("uv pip install torch", None),
        ("conda clean -a", None),
    ],
)
def test_installers_that_are_not_read(words: str, other: str | None) -> None:
    assert other_installer(command(words)) == other


def test_files_that_name_each_other_twice_are_read_to_an_end(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"-r {number + 1}.txt\n" * 2)
    [stage] = read_stages("FROM a\nCOPY . .\nRUN pip install -r 0.txt\n")
    [found] = installs(stage.commands, Context(tmp_path))
    assert found.files


def test_what_was_copied_is_looked_up_once_for_all_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    asked = Mock(wraps=is_folder)
    monkeypatch.setattr("envsolve.dockerfile.context.is_folder", asked)
    lines = ["FROM python:3.12", *(f"COPY file{number} /{number}/" for number in range(30)), "COPY requirements.txt ."]
    [stage] = read_stages("\n".join([*lines, *["RUN pip install -r requirements.txt"] * 30]))
    found = list(installs(stage.commands, Context(tmp_path)))
    assert [[wanted.name for wanted in one.wanted] for one in found] == [["numpy"]] * 30
    assert 0 < asked.call_count <= 31

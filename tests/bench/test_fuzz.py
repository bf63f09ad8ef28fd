"""A few mutations of every kind of input that `make fuzz` damages by the thousand."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bench.fuzz import _targets, mutation, tried
from envsolve.errors import UsageError
from envsolve.locks.read import read_lock_file
from envsolve.machine.model import Machine, Platform
from envsolve.packages.conda_inputs import read_asked, yaml_table
from envsolve.packages.project_files import load_project
from envsolve.packages.requirement_files import read_requirements
from envsolve.protect.restore import last
from envsolve.rules.platform import Environment
from envsolve.system.limits import YAML_DEPTH

TARGETS = _targets()
SLOW = {"dockerfile": 5, "log": 5}


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input_ends_in_an_answer_or_an_error_of_envsolve(target: str) -> None:
    reader, seeds = TARGETS[target]
    for seed in seeds[:10]:
        assert tried(reader, seed) is None
    for number in range(SLOW.get(target, 40)):
        assert tried(reader, mutation(target, seeds, number)) is None, number


NINES = b"9" * 5000


@pytest.mark.parametrize(
    ("target", "data"),
    [
        ("machine", b'{"schema": "envsolve.machine/1", "driver": {"version": "' + NINES + b'"}}'),
        ("log", b"dependencies = ['torch==2.4." + NINES + b"']\nCUDA error: no kernel image is available"),
        ("log", b"ptxas fatal   : Value 'sm_" + b"9" * 25 + b"' is not defined for option 'gpu-name'"),
        ("dockerfile", b"FROM python:3.12\nRUN pip install torch==2." + NINES),
        ("metadata", b"Name: demo\nVersion: 1.0\nRequires-Dist: torch==" + NINES),
    ],
)
def test_numbers_that_python_does_not_convert(target: str, data: bytes) -> None:
    first = b"\0" if target == "dockerfile" else b""
    assert tried(TARGETS[target][0], first + data) is None


def test_odd_words_in_files_are_refused_or_read(tmp_path: Path) -> None:
    (path := tmp_path / "requirements.txt").write_text("--find-links ~nobody-of-that-name/wheels\ntorch\n")
    assert [need.requirement.name for need in read_requirements((), (path,)).needs] == ["torch"]
    path.write_text(f"-r {'x' * 5000}\n")
    for read in (lambda one: read_requirements((), (one,)), read_lock_file):
        with pytest.raises(UsageError):
            read(path)
    (path := tmp_path / "pixi.toml").write_text(
        '[workspace]\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n[pypi-dependencies]\ntorch = ""\n'
    )
    environment = Environment.of(Machine(platform=Platform(os="linux", arch="x86_64", libc="glibc 2.28")), "3.12")
    assert [need.requirement.name for need in read_asked((), (path,), (), {}, environment).pip.needs] == ["torch"]


def test_a_long_word_in_a_lock_takes_linear_time(tmp_path: Path) -> None:
    (path := tmp_path / "uv.lock").write_text(f'version = 1\n\n[[package]]\nname = "x"\nsdist = {{u{"9" * 4000}\n')
    before = time.process_time()
    with pytest.raises(UsageError):
        read_lock_file(path)
    assert time.process_time() - before < 2


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000, "a = 1980-13-45"])
def test_toml_that_python_refuses_is_refused_as_such(text: str, tmp_path: Path) -> None:
    for name, read in (("pyproject.toml", load_project), ("uv.lock", read_lock_file), ("poetry.lock", read_lock_file)):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(UsageError):
            read(path)


@pytest.mark.parametrize("text", ["a: " + "[a," * 800 + "]" * 800, "- " * 1000, "a: &a [*a]\nb: 1980-13-45"])
def test_yaml_that_is_deep_is_refused_soon(text: str, tmp_path: Path) -> None:
    pytest.importorskip("ruamel.yaml")
    path = tmp_path / "environment.yml"
    path.write_text(text)
    with pytest.raises(UsageError):
        yaml_table(path)
    path.write_text("a: " + "[" * YAML_DEPTH + "]" * YAML_DEPTH)
    assert yaml_table(path)


def test_a_repository_without_a_host_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("-e git+https://[[[[\n")
    with pytest.raises(UsageError):
        read_requirements((), (path,))


def test_a_part_of_a_lock_that_is_read_late_is_refused_like_the_rest(tmp_path: Path) -> None:
    import envsolve

    path = tmp_path / "uv.lock"
    path.write_text(
        'version = 1\n[[package]]\nname = "a"\nsource = { virtual = "." }\ndependencies = [{ nam = "torch" }]\n'
    )
    with pytest.raises(UsageError, match=r"not a valid uv\.lock"):
        envsolve.check_lock([path], [envsolve.describe_target("RTX 4090, driver 550, python 3.12")])


def test_a_saved_state_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".envsolve").mkdir()
    (tmp_path / ".envsolve" / "state-1.json").write_bytes(b'{"schema": "\xd4"}')
    with pytest.raises(UsageError, match="cannot be read"):
        last(tmp_path)


def test_a_dockerfile_with_a_hundred_builds_is_judged_soon(tmp_path: Path) -> None:
    import envsolve

    path = tmp_path / "Dockerfile"
    builds = "".join(
        f"RUN git clone https://example.org/x{n} && cd x{n} && python setup.py install\n" for n in range(100)
    )
    path.write_text(f"FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install torch==2.6.0\n{builds}")
    start = time.process_time()
    envsolve.check_dockerfile(path, [envsolve.describe_target("RTX 4090, driver 550.54, python 3.12")])
    assert time.process_time() - start < 4


@pytest.mark.parametrize("listed", ["torch 2.11n0\ntorchvision 0.26.0", "torch 2.8.0\ntorchvision 0.2x3"])
def test_a_word_in_the_place_of_a_version_is_none(listed: str) -> None:
    import envsolve

    error = "RuntimeError: operator torchvision::nms does not exist\n"
    machines = [envsolve.describe_target("RTX 4090, driver 550.54, python 3.12")]
    found = envsolve.diagnose(f"{error}Package Version\n------- -------\n{listed}\n", machines).diagnoses
    commands = [fix.command for one in found for fix in one.remedies]
    assert found[0].cause == "mixed-flavours"
    assert not any("2.11n0" in (command or "") or "0.2x3" in (command or "") for command in commands)

"""Environments of conda packages, made by real rattler: whole or not at all, as with pip and uv."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

import envsolve
from envsolve.errors import IndexUnavailableError, UsageError, VerificationError
from envsolve.install.environment import install
from envsolve.install.errors import Step
from envsolve.planning.plan import Plan
from tests.condachannel import PLACEHOLDER, CondaChannel, Package, python_package
from tests.planning.conda.conftest import Planner

pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")

ROOT = Path(__file__).parents[3]
GPU = "RTX 4090, driver 550.54.14, python 3.12, linux-x86_64, glibc 2.28"
HELLO = Package(
    "hello",
    "1.0",
    "h0_0",
    depends=("python", "demo >=1"),
    files={"bin/hello": f"#!/bin/sh\necho {PLACEHOLDER}\n", "share/hello.txt": f"in {PLACEHOLDER}\n"},
)


SMALL = (python_package(), Package("python_abi", "3.12", "0_cp312", subdir="noarch"), HELLO)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CondaChannel]:
    """Four packages, of which one names its prefix."""
    with CondaChannel(tmp_path_factory.mktemp("small")) as served:
        served.add(*SMALL).fill()
        yield served


@pytest.fixture
def made(plan: Planner, small: CondaChannel) -> Plan:
    return plan(GPU, "hello", channels=[small.url])


def beside(prefix: Path) -> list[str]:
    return sorted(path.name for path in prefix.parent.iterdir() if path.name.startswith("."))


def test_an_environment_names_its_prefix_and_not_the_folder_it_was_made_in(made: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    steps: list[Step] = []
    machine = envsolve.describe_target(GPU)
    done = envsolve.install(made, prefix, manager="conda", machine=machine, check=False, progress=steps.append)
    assert (done.changed, done.prefix, done.python_version) == (True, prefix, "3.12")
    assert done.manager.startswith("rattler ")
    assert [step.stage for step in steps if step.stage not in ("output", "download")] == ["packages", "swap", "done"]
    assert any(step.text.endswith(": hello") for step in steps if step.stage == "output")
    assert (prefix / "share" / "hello.txt").read_text() == f"in {prefix}\n"
    assert subprocess.run([prefix / "bin" / "hello"], capture_output=True, text=True).stdout == f"{prefix}\n"
    assert beside(prefix) == []
    meta = {path.name.removesuffix(".json") for path in (prefix / "conda-meta").glob("*.json")}
    assert meta == {str(package.filename).removesuffix(".conda") for package in made.packages}


def test_the_packages_of_a_gpu_plan_are_there_and_triton_is_told_of_its_ptxas(plan: Planner, tmp_path: Path) -> None:
    made = plan(GPU, "torch")
    done = install(made, tmp_path / "env")
    names = {path.name.rsplit("-", 2)[0] for path in (done.prefix / "conda-meta").glob("*.json")}
    assert {"pytorch", "libtorch", "triton", "cuda-version", "cuda-nvcc-tools"} <= names
    [variables] = done.prefix.glob("lib/python3.12/site-packages/envsolve_environment.pth")
    assert "TRITON_PTXAS_PATH" in variables.read_text()


def test_a_build_that_is_named_as_the_channel_pytorch_names_its_builds(plan: Planner, tmp_path: Path) -> None:
    with CondaChannel(tmp_path / "served") as served:
        served.add(*SMALL, Package("odd", "1.0", "py3.12_cuda12.1_cudnn8.9.2_0", depends=("python",))).fill()
        made = plan(GPU, "odd=1.0=py3.12_cuda12.1_cudnn8.9.2_0", channels=[served.url])
        install(made, tmp_path / "env")
    assert list((tmp_path / "env" / "conda-meta").glob("odd-1.0-py3.12_cuda12.1_cudnn8.9.2_0.json"))


def test_a_second_run_changes_nothing_and_damage_is_mended(made: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(made, prefix)
    assert not install(made, prefix).changed
    (prefix / "share" / "hello.txt").write_text("damaged")
    assert install(made, prefix).changed
    assert (prefix / "share" / "hello.txt").read_text() == f"in {prefix}\n"


@pytest.mark.slow
def test_another_plan_takes_the_place_and_files_of_ones_own_are_kept(
    made: Plan, plan: Planner, small: CondaChannel, tmp_path: Path
) -> None:
    prefix = tmp_path / "env"
    install(made, prefix)
    (prefix / "notes.txt").write_text("mine")
    other = plan(GPU, "demo", channels=[small.url])
    with pytest.raises(UsageError, match="also holds other files"):
        install(other, prefix)
    (prefix / "notes.txt").unlink()
    assert install(other, prefix).changed
    assert not (prefix / "bin" / "hello").exists()


def test_a_conda_environment_of_others_is_left_alone(made: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    (prefix / "conda-meta").mkdir(parents=True)
    with pytest.raises(UsageError, match="a conda environment that envsolve did not create"):
        install(made, prefix)


def test_what_fails_its_checks_is_not_put_in_place(made: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"

    def fails(environment: Path) -> bool:
        assert (environment / "bin" / "python").exists()
        raise VerificationError("it does not work")

    with pytest.raises(VerificationError):
        install(made, prefix, verify=fails)
    assert not prefix.exists()
    assert beside(prefix) == []


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param("gone", "the index no longer has a planned file", marks=pytest.mark.slow),
        ("changed", "differs from the planned one"),
    ],
)
def test_a_file_that_is_not_the_planned_one(
    harm: str, words: str, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with CondaChannel(tmp_path / "served") as served:
        served.add(*SMALL).fill()
        made = plan(GPU, "hello", channels=[served.url])
        file = next(served.root.rglob("hello-*.conda"))
        content = file.read_bytes()
        file.unlink()
        if harm == "changed":
            file.write_bytes(content[:-2] + b"xx")
        monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
        with pytest.raises(IndexUnavailableError, match=words):
            install(made, tmp_path / "env")
        assert not (tmp_path / "env").exists()
        file.write_bytes(content)
        assert install(made, tmp_path / "env").changed


def test_a_file_of_another_size_than_planned_is_refused(made: Plan, tmp_path: Path) -> None:
    assert all(one.size for one in made.packages)
    spoilt = tuple(replace(one, size=int(one.size or 0) + (one.name == "hello")) for one in made.packages)
    with pytest.raises(IndexUnavailableError, match="differs from the planned one"):
        install(replace(made, packages=spoilt), tmp_path / "env")
    assert not (tmp_path / "env").exists()


@pytest.mark.parametrize("secret", [{"login": "bob:s3cr%40t"}, {"token": "s3cret"}], ids=["login", "token"])
def test_no_secret_of_a_channel_is_kept_on_disk_or_answered_to_another(
    secret: dict[str, str], plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "rattler"))
    monkeypatch.setenv("ENVSOLVE_CACHE_DIR", str(tmp_path / "cache"))
    sent = {name: value.replace("%40", "@") for name, value in secret.items()}
    with CondaChannel(tmp_path / "served", **sent) as served:
        served.add(*SMALL).fill()
        url = served.url.replace("s3cr@t", "s3cr%40t")
        made = plan(GPU, "hello", channels=[url])
        assert install(made, tmp_path / "env").changed
        with pytest.raises(IndexUnavailableError):
            plan(GPU, "hello", channels=[url.replace("s3c", "wrong")])
    assert plan(GPU, "hello", channels=[url], offline=True).packages == made.packages
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "served" not in path.parts]
    assert any(path.suffix == ".json" for path in files)
    assert [path for path in files if b"s3cr" in path.read_bytes()] == []
    assert (tmp_path / "cache" / "channels").stat().st_mode & 0o77 == 0


def test_pip_and_uv_do_not_install_conda_packages(made: Plan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="uv does not install conda packages"):
        install(made, tmp_path / "env", manager="uv")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_an_install_that_is_stopped_leaves_nothing_and_is_run_again(
    number: signal.Signals, plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "cache"))
    prefix = tmp_path / "place" / "env"
    prefix.parent.mkdir()
    with CondaChannel(tmp_path / "served") as served:
        served.add(*SMALL).fill()
        made = plan(GPU, "hello", channels=[served.url])
        (tmp_path / "plan.json").write_bytes(msgspec.json.encode(made))
        held = served.hold("hello-1.0")
        command = [sys.executable, "-m", "tests.install.child", str(tmp_path / "plan.json"), str(prefix), "conda"]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert held.reached.wait(30)
        os.kill(process.pid, number)
        process.communicate(timeout=120)
        held.release()
        assert process.returncode in (130, -number)
        assert not prefix.exists()
        assert install(made, prefix).changed
    assert beside(prefix) == []

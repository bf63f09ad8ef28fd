"""What envsolve writes for conda, given to real programs: solved, installed, and refused where it must be.

The host has no ``__cuda``, whatever it is; the target has.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

import envsolve
from envsolve import Request
from envsolve.formats import render
from envsolve.planning.plan import Plan
from tests.condachannel import CondaChannel, Package
from tests.planning.conda.clients import Client, installed, published

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the plan is for linux-64"),
]
pytest.importorskip("rattler", reason="pip install 'envsolve[conda]'")

GPU = "RTX 4090, driver 550.54.14, python 3.13, linux-x86_64, glibc 2.28"
CUDA = "12.4"
NAMED = os.environ.get("ENVSOLVE_CONDA")


@pytest.fixture(scope="module")
def stray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CondaChannel]:
    """A channel of the user's own, with a CPU build of a newer torch, and with what no other has."""
    with CondaChannel(tmp_path_factory.mktemp("stray"), "mine") as served:
        served.add(Package("pytorch", "9.0.0", "cpu_py313_h0_0"), Package("only-mine", "1.0", "h0_0")).write()
        yield served


@pytest.fixture(scope="module", params=["published", *([NAMED] if NAMED else [])])
def client(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    channel: CondaChannel,
    stray: CondaChannel,
) -> Client:
    folder = tmp_path_factory.mktemp("client")
    made = published(folder) if request.param == "published" else installed(folder, request.param)
    made.configure(channel, others=stray.url)
    return made


@pytest.fixture(scope="module")
def made(channel: CondaChannel) -> Plan:
    machine = envsolve.describe_target(GPU)
    return envsolve.plan(Request(["torch", "torchvision"], manager="conda", channels=[channel.url]), [machine])


def written(made: Plan, form: str, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(render(made, form))
    return path


def there(prefix: Path) -> set[str]:
    return {path.name.removesuffix(".json") for path in (prefix / "conda-meta").glob("*.json")}


def planned(made: Plan) -> set[str]:
    return {str(package.filename).removesuffix(".conda") for package in made.packages}


def pinned(made: Plan) -> set[str]:
    assert made.conda is not None
    names = {*(pin.name for pin in made.conda.pins), "libtorch"} - {"python"}
    return {str(p.filename).removesuffix(".conda") for p in made.packages if p.name in names}


def test_the_environment_file_gives_the_plan_for_the_driver_that_is_told(
    client: Client, made: Plan, tmp_path: Path
) -> None:
    file = written(made, "environment-yml", tmp_path, "environment.yml")
    done = client.run("env", "create", "-y", "-q", "-p", str(tmp_path / "env"), "-f", str(file), cuda=CUDA)
    assert done.code == 0, done.said
    assert pinned(made) <= there(tmp_path / "env")
    assert {name.rsplit("-", 2)[0] for name in there(tmp_path / "env")} == {package.name for package in made.packages}


def test_where_no_driver_is_seen_it_is_refused_and_does_not_fall_to_the_cpu(
    client: Client, channel: CondaChannel, made: Plan, tmp_path: Path
) -> None:
    file = written(made, "environment-yml", tmp_path, "environment.yml")
    done = client.run("env", "create", "-y", "-q", "-p", str(tmp_path / "env"), "-f", str(file))
    assert done.code != 0
    assert "pytorch" in done.said
    assert there(tmp_path / "env") == set()
    loose = ["--override-channels", "-c", channel.url, "pytorch", "python=3.13"]  # what the pins are for
    assert client.run("create", "-y", "-q", "-p", str(tmp_path / "cpu"), *loose).code == 0
    assert any(name.startswith("pytorch-2.8.0-cpu") for name in there(tmp_path / "cpu"))


def test_no_channel_of_the_users_own_is_read(client: Client, channel: CondaChannel, tmp_path: Path) -> None:
    if client.version >= (26, 7):
        pytest.skip(
            "it takes nodefaults for a channel, as the file's comment says, and reads the user's own all the same"
        )
    made = envsolve.plan(
        Request(["numpy"], manager="conda", channels=[channel.url]), [envsolve.describe_target("no gpu, python 3.13")]
    )
    text = render(made, "environment-yml") + "  - only-mine\n"
    ended: list[int] = []
    for content in (text, text.replace("  - nodefaults\n", "")):
        (tmp_path / "environment.yml").write_text(content)
        line = [
            "env",
            "create",
            "-q",
            "-p",
            str(tmp_path / f"env{len(ended)}"),
            "-f",
            str(tmp_path / "environment.yml"),
        ]
        ended.append(client.run(*line).code)
    assert ended == [1, 0]


def test_the_explicit_lock_is_installed_where_no_driver_is(client: Client, made: Plan, tmp_path: Path) -> None:
    lock = written(made, "conda-lock", tmp_path, "conda-linux-64.lock")
    done = client.run("create", "-y", "-q", "-p", str(tmp_path / "env"), "--file", str(lock))
    if client.version < (24, 9):  # as the lock's own heading says
        assert "Could not parse explicit URL" in done.said
        assert there(tmp_path / "env") == set()
    else:
        assert done.code == 0, done.said
        assert there(tmp_path / "env") == planned(made)


def test_a_package_of_the_lock_with_one_changed_byte_is_refused(
    client: Client, channel: CondaChannel, made: Plan, tmp_path: Path
) -> None:
    if client.version < (24, 9):
        pytest.skip("it does not read sha256")
    [file] = channel.root.rglob("pytorch-2.7.1-cuda129_mkl_py313*.conda")
    whole = file.read_bytes()
    middle = len(whole) // 2
    lock = written(made, "conda-lock", tmp_path, "conda-linux-64.lock")
    other = Client(client.program, tmp_path)  # whose cache has no package yet
    other.configure(channel, others=channel.url)
    try:
        file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        done = other.run("create", "-y", "-q", "-p", str(tmp_path / "env"), "--file", str(lock))
    finally:
        file.write_bytes(whole)
    assert done.code != 0
    assert "ChecksumMismatchError" in done.said
    assert there(tmp_path / "env") == set()


def test_conda_lock_locks_the_environment_file_for_the_driver_that_is_told(
    client: Client, made: Plan, tmp_path: Path
) -> None:
    if client.beside is None:
        pytest.skip("conda-lock came with another")
    file = written(made, "environment-yml", tmp_path, "environment.yml")
    told = tmp_path / "virtual-packages.yml"
    told.write_text(f'subdirs: {{linux-64: {{packages: {{__cuda: "{CUDA}", __glibc: "2.28", __unix: "0"}}}}}}\n')
    line = ["lock", "--conda", str(client.program), "-p", "linux-64", "-f", str(file)]
    done = client.run(*line, "--virtual-package-spec", str(told), program=client.beside, cwd=tmp_path)
    assert done.code == 0, done.said
    assert "pytorch-2.7.1-cuda129_mkl_py313" in (tmp_path / "conda-lock.yml").read_text()


def test_the_pixi_manifest_is_solved_by_what_reads_it_too(client: Client, made: Plan, tmp_path: Path) -> None:
    """conda-workspaces takes a pixi.toml, its system requirements as the least that the machine has."""
    if client.run("workspace", "--help").code != 0:
        pytest.skip("conda-workspaces is not there")
    manifest = written(made, "pixi", tmp_path, "pixi.toml")
    refused = client.run("workspace", "--file", str(manifest), "lock", cwd=tmp_path)
    assert refused.code != 0
    assert "__cuda" in refused.said
    done = client.run("workspace", "--file", str(manifest), "lock", cuda=CUDA, cwd=tmp_path)
    assert done.code == 0, done.said
    lock = (tmp_path / "conda.lock").read_text()
    assert {name for name in planned(made) if f"/{name}.conda" not in lock} == set()

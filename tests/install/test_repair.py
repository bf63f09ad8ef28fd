"""What is damaged in an environment is made anew by the same command; what is a user's own is never deleted."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from envsolve.errors import UsageError, VerificationError
from envsolve.install import record
from envsolve.install.environment import install
from envsolve.install.files import wanted
from envsolve.install.interpreters import probe
from envsolve.machine.model import Driver, Machine
from envsolve.planning.plan import Plan
from tests.install.wheels import make_wheel, plan_of, planned


def packages(prefix: Path) -> Path:
    return record.site_packages(prefix)


def info(prefix: Path) -> Path:
    return next(packages(prefix).glob("demo-*.dist-info"))


def _shifted(path: Path) -> None:
    """Another content of the same size, and the old time of change."""
    status = path.stat()
    content = path.read_bytes()
    path.write_bytes(content[:-2] + b"#" + content[-1:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "METADATA gone": lambda prefix: (info(prefix) / "METADATA").unlink(),
    "METADATA empty": lambda prefix: (info(prefix) / "METADATA").write_text(""),
    "METADATA malformed": lambda prefix: (info(prefix) / "METADATA").write_bytes(b"Version: what\xff\n"),
    "RECORD empty": lambda prefix: (info(prefix) / "RECORD").write_text(""),
    "RECORD in no encoding": lambda prefix: (info(prefix) / "RECORD").write_bytes(b"\xff\xfe"),
    "a stray dist-info": lambda prefix: (packages(prefix) / "stray-1.0.dist-info").mkdir(),
    "a leftover of pip": lambda prefix: (packages(prefix) / "~demo").mkdir(),
    "a module of the same size": lambda prefix: _shifted(packages(prefix) / "demo" / "__init__.py"),
    "no script": lambda prefix: (prefix / "bin" / "demo").unlink(),
    "no variables": lambda prefix: next(packages(prefix).glob("*.pth")).unlink(),
    "other variables": lambda prefix: next(packages(prefix).glob("*.pth")).write_text("import os\n"),
    "no pip": lambda prefix: shutil.rmtree(packages(prefix) / "pip"),
    "a module that hides another": lambda prefix: (packages(prefix) / "json.py").write_text(""),
    "another interpreter": lambda prefix: (prefix / "bin" / "python").unlink(),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    folder = tmp_path_factory.mktemp("made")
    return plan_of(planned(make_wheel(folder, "demo", "1.0")), environment={"DEMO": "1"}), folder / "env"


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_seen(made: tuple[Plan, Path], tmp_path: Path, damage: str) -> None:
    plan, prefix = made
    target = probe(sys.executable)
    assert target is not None
    aim = wanted(plan, target)
    install(plan, prefix)
    copy = tmp_path / "copy"
    shutil.copytree(prefix, copy, symlinks=True)
    assert record.holds(copy, aim, target.version)
    DAMAGE[damage](copy)
    assert not record.holds(copy, aim, target.version)


@pytest.mark.parametrize("damage", ["METADATA malformed", "RECORD in no encoding", "another interpreter"])
def test_damage_is_made_good(made: tuple[Plan, Path], damage: str) -> None:
    plan, prefix = made
    install(plan, prefix)
    DAMAGE[damage](prefix)
    assert install(plan, prefix).changed
    assert not install(plan, prefix).changed


def test_a_copy_with_other_times_is_still_as_planned(made: tuple[Plan, Path]) -> None:
    plan, prefix = made
    install(plan, prefix)
    for path in packages(prefix).glob("demo/*"):
        path.touch()
    assert not install(plan, prefix).changed


@pytest.mark.slow
@pytest.mark.usefixtures("real_pip")
def test_packages_that_were_added_since_do_not_count_as_damage(made: tuple[Plan, Path], tmp_path: Path) -> None:
    from tests.install.test_install import output

    plan, prefix = made
    install(plan, prefix)
    added = make_wheel(tmp_path, "added", "1.0")
    output(prefix / "bin" / "python", "-m", "pip", "install", "--no-index", added)
    assert not install(plan, prefix).changed
    assert install(plan_of(planned(added)), prefix).changed  # its files are accounted for: they go


@pytest.mark.parametrize("name", ["bin/mine.sh", "share/data/set.csv", "thesis.tex", "lib/mine.so"])
def test_files_of_a_user_are_never_deleted(made: tuple[Plan, Path], name: str) -> None:
    plan, prefix = made
    install(plan, prefix)
    mine = prefix / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    other = plan_of(planned(make_wheel(prefix.parent, "demo", "2.0")))
    try:
        with pytest.raises(UsageError, match=name):
            install(other, prefix)
        assert mine.read_text() == "mine"
    finally:
        mine.unlink()


def test_an_environment_that_envsolve_did_not_make_is_left_alone(made: tuple[Plan, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "own")
    with pytest.raises(UsageError, match="did not create"):
        install(made[0], tmp_path / "own")
    assert (tmp_path / "own" / "bin" / "python").exists()


def test_what_was_not_proved_is_verified_where_it_stands(tmp_path: Path) -> None:
    plan, prefix = plan_of(planned(make_wheel(tmp_path, "demo", "1.0"))), tmp_path / "env"
    asked: list[Path] = []

    def refuse(environment: Path) -> bool:
        raise VerificationError("a kernel did not run")

    def prove(environment: Path) -> bool:
        asked.append(environment)
        return True

    install(plan, prefix)
    place = prefix.stat().st_ino
    with pytest.raises(VerificationError):
        install(plan, prefix, verify=refuse)
    assert prefix.stat().st_ino == place
    for _ in range(2):
        assert not install(plan, prefix, verify=prove).changed
    assert asked == [prefix]
    newer = Machine(driver=Driver("580.95.05"))
    assert not install(plan, prefix, verify=prove, machine=newer).changed
    assert asked == [prefix, prefix]  # another driver: what was proved before says nothing


def test_files_that_are_damaged_in_the_cache_are_fetched_anew(tmp_path: Path, uv_cache: Path) -> None:
    plan, prefix = plan_of(planned(make_wheel(tmp_path, "cached", "1.0"))), tmp_path / "env"
    module = packages(install(plan, prefix, manager="uv").prefix) / "cached" / "__init__.py"
    whole = module.read_text()
    _shifted(module)
    assert [path.read_text() for path in uv_cache.rglob("cached/__init__.py")] == [whole]  # no link between them

    for path in uv_cache.rglob("cached/__init__.py"):
        _shifted(path)
    steps: list[str] = []
    assert install(plan, prefix, manager="uv", progress=lambda step: steps.append(step.text)).changed
    assert module.read_text() == whole
    assert any("cache of uv is damaged" in text for text in steps)

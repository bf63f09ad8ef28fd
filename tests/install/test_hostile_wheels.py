"""Wheels whose RECORD, console scripts or data name what is not theirs, with the real pip and the real uv."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec import structs

from envsolve.install.environment import install
from envsolve.install.errors import InstallError
from envsolve.planning.plan import Plan
from tests import distributions
from tests.install.wheels import make_wheel, plan_of, planned


def unproved(environment: Path) -> bool:
    return False


def hostile(
    folder: Path, *, files: Mapping[str, str] = MappingProxyType({}), rows: str = "", entries: str = ""
) -> Plan:
    """A plan of a wheel with more files, rows of its RECORD and console scripts."""
    info = "hostile-1.0.dist-info"
    contents = {"hostile.py": "", **files}
    if entries:
        contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{entries}"
    wheel = folder / distributions.wheel_filename("hostile", "1.0")
    made = distributions.make_wheel("hostile", "1.0", files={name: text.encode() for name, text in contents.items()})
    with zipfile.ZipFile(io.BytesIO(made)) as old, zipfile.ZipFile(wheel, "w") as new:
        for name in old.namelist():
            before = rows.encode() if name == f"{info}/RECORD" else b""
            new.writestr(name, before + old.read(name))
    return plan_of(planned(wheel))


ROWS = [
    ("pip", "{folder}/pipe,sha256=AAAA,"),
    pytest.param("pip", "/dev/zero,sha256=AAAA,0", marks=pytest.mark.slow),
    ("uv", "{up}{folder}/pipe,sha256=AA,"),
]


@pytest.mark.parametrize(("manager", "row"), ROWS)
def test_a_record_that_names_pipes_and_devices_holds_up_nothing(tmp_path: Path, manager: str, row: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    rows = row.format(folder=tmp_path, up="../" * 30) + "\n"
    with suppress(InstallError):  # what pip writes of such a row differs; without a limit of time, it must end
        install(hostile(tmp_path, rows=rows), tmp_path / "env", manager=manager, verify=unproved)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


BROUGHT = {
    "pyvenv.cfg": "hostile-1.0.data/data/pyvenv.cfg",
    ".envsolve": "hostile-1.0.data/data/.envsolve/installed.json",
    "bin/python": "hostile-1.0.data/scripts/python",
    "bin/activate": "hostile-1.0.data/scripts/activate",
}


@pytest.mark.parametrize(
    "name",
    [
        "pyvenv.cfg",
        "bin/python",
        pytest.param(".envsolve", marks=pytest.mark.slow),
        pytest.param("bin/activate", marks=pytest.mark.slow),
    ],
)
def test_a_package_cannot_replace_what_makes_an_environment(tmp_path: Path, name: str) -> None:
    plan = hostile(tmp_path, files={BROUGHT[name]: "#!/bin/sh\nexit 0\n"})
    with pytest.raises(InstallError, match=rf"^hostile would overwrite {re.escape(name)}, a file of the environment"):
        install(plan, tmp_path / "env", manager="pip", verify=unproved)
    assert not (tmp_path / "env").exists()


@pytest.mark.parametrize(
    ("manager", "name"),
    [
        ("pip", "../../../out"),
        pytest.param("pip", "python", marks=pytest.mark.slow),
        ("uv", "{folder}/out"),
        ("uv", "python"),
    ],
)
def test_a_console_script_lies_in_the_environment_and_is_not_its_python(
    tmp_path: Path, manager: str, name: str
) -> None:
    plan = hostile(tmp_path, entries=f"{name.format(folder=tmp_path)} = hostile:main\n")
    with pytest.raises(InstallError):
        install(plan, tmp_path / "env", manager=manager, verify=unproved)
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix != ".whl") == ["home"]


def test_a_record_that_calls_another_package_its_own_changes_only_itself(tmp_path: Path) -> None:
    other = plan_of(planned(make_wheel(tmp_path, "other", "1.0")))
    plan = hostile(tmp_path, rows="other-1.0.dist-info/RECORD,,\n")
    both = structs.replace(other, packages=(*other.packages, *plan.packages))
    install(both, tmp_path / "env", manager="uv", verify=unproved)
    record = next((tmp_path / "env").glob("lib/python3*/site-packages/other-1.0.dist-info/RECORD")).read_text()
    assert "other/__init__.py" in record
    assert "hostile.py" not in record

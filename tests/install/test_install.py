"""Whole installs with the real uv and the real pip."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w
from msgspec.structs import replace
from packaging.version import Version

from envsolve.errors import EnvsolveError, ImpossibleError, IndexUnavailableError, UsageError, VerificationError
from envsolve.install import interpreters, managers, record
from envsolve.install.environment import install
from envsolve.install.errors import InstallError, Step
from envsolve.install.interpreters import probe
from envsolve.install.managers import available, bundled_pip, pip
from envsolve.machine.model import Driver, Gpu, Machine
from envsolve.planning.plan import DriverNeed, Plan, Support
from tests import distributions
from tests.indexserver import IndexServer
from tests.install.conftest import ONE
from tests.install.wheels import failing_backend, make_sdist, make_wheel, plan_of, planned


def output(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def beside(prefix: Path) -> list[str]:
    """What an install left beside the prefix."""
    return sorted(path.name for path in prefix.parent.iterdir() if "envsolve" in path.name)


def naming(text: str, folder: Path) -> list[str]:
    """Files under ``folder`` that hold ``text``; compiled ones aside, whose paths Python corrects as it loads them."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc")
    return [str(path) for path in files if text.encode() in path.read_bytes()]


@pytest.fixture
def demo(tmp_path: Path) -> Plan:
    one = make_wheel(tmp_path, "demo", "1.0+cu126")
    two = make_wheel(tmp_path, "other", "2.0", requires=["demo"])
    return plan_of(planned(one), planned(two), environment={"DEMO_PTXAS": "/opt/pt'xas ü"})


@pytest.mark.parametrize(
    ("name", "manager"),
    [("plain", "uv"), ("with space and ünïcode's", "uv"), ("with space and ünïcode's", "pip"), ("long" * 40, "uv")],
)
def test_an_environment_works_at_its_final_place(demo: Plan, tmp_path: Path, manager: str, name: str) -> None:
    prefix = tmp_path / name
    installed = install(demo, prefix, manager=manager)

    assert installed.changed
    assert installed.manager.startswith(manager)
    assert output(prefix / "bin" / "demo") == "demo 1.0+cu126"
    assert output(prefix / "bin" / "other-raw") == "other 2.0"
    assert output(prefix / "bin" / "python", "-c", "import sys; print(sys.prefix)") == str(prefix)
    assert output("sh", "-c", '. "$0/bin/activate" && command -v demo', prefix) == str(prefix / "bin" / "demo")
    assert naming(".envsolve/env", prefix) == []
    assert beside(prefix) == []


@pytest.mark.usefixtures("real_pip")
def test_an_environment_has_the_pip_that_its_python_carries(demo: Plan, tmp_path: Path) -> None:
    target = probe(sys.executable)
    assert target is not None and target.pip is not None
    version = output(install(demo, tmp_path / "env").python, "-c", "import pip; print(pip.__version__)")
    assert target.pip.name.startswith(f"pip-{version}-")


@pytest.mark.slow
@pytest.mark.usefixtures("real_pip")
def test_pip_works_in_the_environment(demo: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(demo, prefix)
    assert output(prefix / "bin" / "python", "-m", "pip", "check") == "No broken requirements found."
    assert list(prefix.rglob("direct_url.json")) == []  # `pip freeze` would print addresses in place of versions
    third = make_wheel(tmp_path, "third", "3.0")
    output(prefix / "bin" / "python", "-m", "pip", "install", "--no-index", third)
    assert output(prefix / "bin" / "third") == "third 3.0"


def test_variables_of_the_plan_are_defaults(demo: Plan, tmp_path: Path) -> None:
    python = install(demo, tmp_path / "env").python
    show = "import os; print(os.environ['DEMO_PTXAS'])"
    assert output(python, "-c", show) == "/opt/pt'xas ü"
    assert output(python, "-c", show, DEMO_PTXAS="mine") == "mine"


def test_a_variable_that_names_a_file_of_the_environment_follows_it(tmp_path: Path) -> None:
    """Also one whose name no shell could set, as that of Triton 3.3."""
    names = ("TRITON_PTXAS_PATH", "TRITON_PTXAS-BLACKWELL_PATH")
    plan = plan_of(
        planned(make_wheel(tmp_path, "demo", "1.0")),
        environment=dict.fromkeys(names, "{site_packages}/demo/__init__.py"),
    )
    install(plan, tmp_path / "env")
    (tmp_path / "env").rename(tmp_path / "moved")
    python = tmp_path / "moved" / "bin" / "python"
    for name in names:
        show = f"import os; print(os.environ[{name!r}])"
        assert output(python, "-c", show) == str(record.site_packages(tmp_path / "moved") / "demo" / "__init__.py")
        assert output("env", f"{name}=mine", python, "-c", show) == "mine"
    install(plan_of(plan.packages[0]), tmp_path / "moved")
    assert output(python, "-c", f"import os; print({names[0]!r} in os.environ)") == "False"


def test_second_run_does_nothing_unless_something_is_gone(demo: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    steps: list[Step] = []
    assert install(demo, prefix, verify=lambda environment: True, progress=steps.append).changed
    stages = [step.stage for step in steps if step.stage not in ("output", "download")]
    assert stages == ["prepare", "packages", "verify", "swap", "done"]
    before = prefix.stat().st_ino
    assert not install(demo, prefix).changed
    assert prefix.stat().st_ino == before

    (record.site_packages(prefix) / "demo" / "__init__.py").unlink()
    assert install(demo, prefix).changed
    assert output(prefix / "bin" / "demo") == "demo 1.0+cu126"


def test_a_file_with_another_hash_is_refused(demo: Plan, tmp_path: Path, manager: str) -> None:
    wrong = replace(demo.packages[0], hashes={"sha256": "0" * 64})
    with pytest.raises(IndexUnavailableError, match="its hash is different"):
        install(plan_of(wrong), tmp_path / "env", manager=manager)
    assert not (tmp_path / "env").exists()
    assert beside(tmp_path / "env") == []


@pytest.mark.parametrize(
    ("wrong", "manager"),
    [
        ("sha256", "uv"),
        ("sha512", "uv"),
        pytest.param("sha256", "pip", marks=pytest.mark.slow),
        pytest.param("sha512", "pip", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_hash_beside_a_right_one_is_refused(demo: Plan, tmp_path: Path, manager: str, wrong: str) -> None:
    """pip and uv accept a file that has any one of its hashes."""
    content = (tmp_path / str(demo.packages[0].filename)).read_bytes()
    right = {name: hashlib.new(name, content).hexdigest() for name in ("sha256", "sha512")}
    with IndexServer() as server:
        index = server.index()
        entry = index.add("demo", str(demo.packages[0].filename), content)
        one = replace(demo.packages[0], url=index.address(entry))
        changed = replace(one, hashes={**right, wrong: "0" * len(right[wrong])})
        with pytest.raises(IndexUnavailableError, match=f"the {wrong} of .* differs"):
            install(plan_of(changed), tmp_path / "env", manager=manager)
        assert not (tmp_path / "env").exists()
        install(plan_of(replace(one, hashes=right)), tmp_path / "env", manager=manager)
    assert output(tmp_path / "env" / "bin" / "demo") == "demo 1.0+cu126"
    assert naming("/checked/demo", tmp_path / "env") == []


def test_update_replaces_and_a_failed_update_keeps_the_old(demo: Plan, tmp_path: Path) -> None:
    prefix = tmp_path / "env"
    install(plan_of(demo.packages[0]), prefix)
    newer = planned(make_wheel(tmp_path, "demo", "1.1+cu126"))
    with pytest.raises(IndexUnavailableError):
        install(plan_of(replace(newer, hashes={"sha256": "0" * 64})), prefix)
    assert output(prefix / "bin" / "demo") == "demo 1.0+cu126"

    def refuse(environment: Path) -> bool:
        assert output(environment / "bin" / "python", "-c", "import demo; print(demo.VERSION)") == "1.1+cu126"
        raise VerificationError("a kernel did not run")

    with pytest.raises(VerificationError):
        install(plan_of(newer), prefix, verify=refuse)
    assert output(prefix / "bin" / "demo") == "demo 1.0+cu126"

    assert install(plan_of(newer), prefix).changed
    assert output(prefix / "bin" / "demo") == "demo 1.1+cu126"
    assert beside(prefix) == []


@pytest.mark.parametrize("manager", ONE)
def test_files_come_from_the_planned_address_alone(
    tmp_path: Path, manager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = make_wheel(tmp_path, "demo", "1.0+cu126")
    lookalikes = tmp_path / "lookalikes"
    lookalikes.mkdir()
    lookalike = make_wheel(lookalikes, "demo", "99.0")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("demo==99.0\n")
    with IndexServer() as server:
        other, index = server.index("/other/"), server.index("/planned/")
        other.add("demo", lookalike.name, lookalike.read_bytes())
        entry = index.add("demo", wheel.name, wheel.read_bytes())
        for prefix in ("PIP", "UV"):
            monkeypatch.setenv(f"{prefix}_FIND_LINKS", str(lookalikes))
            monkeypatch.setenv(f"{prefix}_INDEX_URL", other.url)
            monkeypatch.setenv(f"{prefix}_CONSTRAINT", str(constraints))
        install(plan_of(planned(wheel, index.address(entry))), tmp_path / "env", manager=manager)
        assert output(tmp_path / "env" / "bin" / "demo") == "demo 1.0+cu126"
        assert {request.path for request in server.requests} == {entry.url}


@pytest.mark.parametrize("manager", ONE)
def test_source_distributions_are_built(tmp_path: Path, manager: str) -> None:
    prefix = tmp_path / "env"
    plan = plan_of(planned(make_sdist(tmp_path, "sourced", "0.5")))
    assert install(plan, prefix, manager=manager).changed
    assert output(prefix / "bin" / "python", "-c", "import sourced; print(sourced.__file__)").startswith(str(prefix))
    assert not install(plan, prefix, manager=manager).changed
    assert naming(".envsolve/env", prefix) == []


def test_a_build_that_fails_is_said_with_its_own_words(tmp_path: Path) -> None:
    sdist = planned(
        make_sdist(tmp_path, "sourced", "0.6", backend=failing_backend("cuda.h: No such file or directory"))
    )
    with pytest.raises(InstallError, match="did not build") as caught:
        install(plan_of(sdist), tmp_path / "env")
    assert "cuda.h" in caught.value.message
    assert not (tmp_path / "env").exists()


def test_a_file_that_is_gone_is_an_index_failure(demo: Plan, tmp_path: Path) -> None:
    with IndexServer() as server:
        lost = replace(demo.packages[0], url=f"{server.index().url}-files/demo-1.0%2Bcu126-py3-none-any.whl")
        with pytest.raises(IndexUnavailableError, match="no longer has"):
            install(plan_of(lost), tmp_path / "env")
    assert not (tmp_path / "env").exists()


def test_a_lock_is_installed_and_held_against_the_machine(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "demo", "1.0")
    other_platform = {"name": "demo-1.0-cp30-cp30-win32.whl", "path": "gone.whl", "hashes": {"sha256": "0" * 64}}
    ours = {"name": wheel.name, "path": wheel.name, "hashes": dict(planned(wheel).hashes)}
    lock = tmp_path / "pylock.toml"
    unwanted = {"name": "unwanted-1.0.tar.gz", "path": "gone.tar.gz", "hashes": {"sha256": "0" * 64}}
    table = {
        "lock-version": "1.0",
        "created-by": "tests",
        "packages": [
            {"name": "demo", "version": "1.0", "wheels": [other_platform, ours]},
            {"name": "unwanted", "version": "1.0", "marker": "sys_platform == 'win32'", "sdist": unwanted},
        ],
        "tool": {"envsolve": {"driver_required": "580.65.06", "environment": {"CUDA_HOME": "{site_packages}/demo"}}},
    }
    lock.write_text(tomli_w.dumps(table))

    old = Machine(driver=Driver(version="550.54.15"))
    with pytest.raises(ImpossibleError, match=r"driver 580\.65\.06 or newer; this machine has 550\.54\.15"):
        install(lock, tmp_path / "env", machine=old)
    unknown = install(lock, tmp_path / "env", machine=Machine())
    assert unknown.warnings == ("the lock requires driver 580.65.06 or newer; the driver of this machine is not known",)
    home = record.site_packages(tmp_path / "env") / "demo"
    assert (
        output(unknown.python, "-c", "import demo, os; print(demo.VERSION, os.environ['CUDA_HOME'])") == f"1.0 {home}"
    )
    assert not install(lock, tmp_path / "env", machine=Machine(driver=Driver(version="580.95.05"))).changed


def test_a_plan_for_another_gpu_is_refused(demo: Plan, tmp_path: Path) -> None:
    support = (Support("demo", "H100", "9.0", "native", "sm_90", "measured"),)
    plan = replace(demo, support=support, driver=DriverNeed("525.60.13", "full", None))
    machine = Machine(driver=Driver(version="580.95"), gpus=(Gpu("RTX 4090", "8.9"),))
    with pytest.raises(ImpossibleError, match=r"made for compute capability 9\.0; this machine has RTX 4090"):
        install(plan, tmp_path / "env", machine=machine)
    assert not (tmp_path / "env").exists()


def test_unknown_manager_is_a_usage_error(demo: Plan, tmp_path: Path) -> None:
    assert [manager.name for manager in available()] == ["uv", "pip"]
    with pytest.raises(UsageError, match="the package manager 'apt' is not supported"):
        install(demo, tmp_path / "env", manager="apt")


def test_no_such_python_is_a_usage_error_that_says_how(demo: Plan, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Python 3\.99 was not found") as caught:
        install(replace(demo, python="3.99"), tmp_path / "env")
    assert caught.value.hint is not None
    assert "uv python install 3.99" in caught.value.hint


def test_only_errors_of_envsolve_escape(demo: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvsolveError) as caught:
        install(demo, tmp_path / "file" / "env")
    assert caught.value.exit_code == 2


@pytest.mark.network
def test_real_triton(tmp_path: Path, manager: str) -> None:
    import requests

    from envsolve._default_index import DEFAULT_INDEX

    page = requests.get(
        f"{DEFAULT_INDEX}triton/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}, timeout=60
    ).json()
    from packaging.tags import sys_tags
    from packaging.utils import parse_wheel_filename

    runs = set(sys_tags())
    wheels = [file for file in page["files"] if file["filename"].startswith("triton-3.6.0-")]
    file = next(file for file in wheels if not runs.isdisjoint(parse_wheel_filename(file["filename"])[-1]))
    package = replace(
        planned(make_wheel(tmp_path, "triton", "3.6.0"), file["url"]), filename=file["filename"], hashes=file["hashes"]
    )
    installed = install(plan_of(package), tmp_path / "env", manager=manager)
    assert output(installed.python, "-c", "import triton; print(triton.__version__)") == "3.6.0"
    assert not install(plan_of(package), tmp_path / "env", manager=manager).changed


@pytest.mark.slow
def test_the_pip_that_python_carries_serves_where_envsolve_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip, "_own_pip", lambda target: None)
    target = probe(sys.executable)
    assert target is not None
    carried = bundled_pip(target)
    assert carried is not None
    program = pip.MANAGER.program(Path(sys.executable), target, carried)
    assert program is not None
    assert output(*program, "--version").startswith(f"pip {carried.version} from ")


_PIP_CONF = "[global]\ntarget = {0}\nroot = {0}\nprefix = {0}\nplatform = win32\ndry-run = yes\nconstraint = {1}\n"
_UV_TOML = (
    'required-version = "==0.0.1"\n[pip]\ntarget = "{0}"\nprefix = "{0}"\npython-version = "3.8"\nno-deps = false\n'
)


def test_no_configuration_redirects_an_install(
    demo: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str
) -> None:
    elsewhere, constraints = tmp_path / "elsewhere", tmp_path / "constraints.txt"
    constraints.write_text("demo==99\n")
    (tmp_path / "home" / "pip").mkdir()
    (tmp_path / "home" / "pip" / "pip.conf").write_text(_PIP_CONF.format(elsewhere, constraints))
    (tmp_path / "home" / "uv").mkdir()
    (tmp_path / "home" / "uv" / "uv.toml").write_text(_UV_TOML.format(elsewhere))
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\nconstraint-dependencies = ["demo==99"]\nmanaged = false\n')
    monkeypatch.delenv("PIP_CONFIG_FILE")
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setenv("PIP_TARGET", str(elsewhere))
    monkeypatch.setenv("UV_TARGET", str(elsewhere))
    monkeypatch.setenv("UV_LINK_MODE", "symlink")
    monkeypatch.chdir(tmp_path)
    install(demo, tmp_path / "env", manager=manager)
    assert output(tmp_path / "env" / "bin" / "demo") == "demo 1.0+cu126"
    assert not elsewhere.exists()


def test_settings_of_indexes_and_the_cache_are_let_through(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\ncache-dir = "c"\n[[tool.uv.index]]\nurl = "https://i/"\n')
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://p/\ncert = ca.pem\nno-binary = :all:\n")
    assert managers.uv_table({"HOME": str(tmp_path)}, tmp_path) == {"cache-dir": "c", "index": [{"url": "https://i/"}]}
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert managers.pip_variables(environ).items() >= {("PIP_INDEX_URL", "https://p/"), ("PIP_CERT", "ca.pem")}
    assert "PIP_NO_BINARY" not in managers.pip_variables(environ)
    seen = {"PIP_PROXY": "p", "UV_INDEX_MINE_PASSWORD": "s", "UV_CACHE_DIR": "c", "HTTPS_PROXY": "h"}
    assert managers.kept_variables({**seen, "PIP_ROOT": "/", "UV_PYTHON": "3.8", "PYTHONPATH": "x"}) == seen


def test_a_cache_that_cannot_be_used_is_named(demo: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", os.devnull)
    with pytest.raises(InstallError, match="the installer's cache cannot be used: /dev/null"):
        install(demo, tmp_path / "env", manager="uv")


def test_a_lock_that_names_no_python_gets_one_that_it_has_files_for(tmp_path: Path) -> None:
    running = ".".join(sys.version.split(".")[:2])
    minors = {target.markers["python_version"] for target in interpreters.fitting(None)} - {running}
    if not minors:
        pytest.skip("there is no second Python here")
    other = min(minors, key=Version)
    wheel = tmp_path / distributions.wheel_filename("demo", "1.0", f"cp{other.replace('.', '')}-none-any")
    wheel.write_bytes(distributions.make_wheel("demo", "1.0", tags=wheel.stem.split("-", 2)[2]))
    entry = {"name": wheel.name, "path": wheel.name, "hashes": dict(planned(wheel).hashes)}
    table = {"lock-version": "1.0", "created-by": "tests", "packages": [{"name": "demo", "version": "1.0"}]}
    table["packages"][0]["wheels"] = [entry]  # type: ignore[index]
    (tmp_path / "pylock.toml").write_text(tomli_w.dumps(table))
    made = install(tmp_path / "pylock.toml", tmp_path / "env")
    assert made.python_version.startswith(f"{other}.")
    with pytest.raises(ImpossibleError, match=f"does not fit Python {running}"):
        install(tmp_path / "pylock.toml", tmp_path / "env", python=running)

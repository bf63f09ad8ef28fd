"""No setting of the caller's pip, uv, proxies or shell reaches a test: what passes here passes anywhere."""

from __future__ import annotations

import gc
import os
import platform
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck

from envsolve.cli.output import SETTINGS, Settings
from envsolve.install import managers
from envsolve.install.files import File
from envsolve.install.interpreters import Target
from tests.install.wheels import small_pip

_PREFIXES = ("PIP_", "UV_", "XDG_", "ENVSOLVE_", "PYTHON")
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "NETRC", "APPDATA")
_NUMBERS = count()
# Without the shims of version managers, which start a shell for each Python that is looked for.
_PATH = os.pathsep.join(place for place in os.environ["PATH"].split(os.pathsep) if Path(place).name != "shims")
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

# Modules of tests read the catalogue when they are imported: the bundled one, whatever the caller has laid over it.
os.environ["ENVSOLVE_CATALOGUE"] = os.devnull

# A shell starts background jobs with SIGINT ignored, and whatever such a job starts would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As the program itself does: with Python's own threshold, a sixth of the time goes to looking for garbage.
gc.set_threshold(200_000)

# The default run tries a few examples of each property, the same ones each time, so that what passes once passes again;
# ``make thorough`` tries many new ones. How long an example takes says how busy the computer is: the first one may load
# the catalogue.
_QUICK = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
hypothesis.settings.register_profile(
    "quick", max_examples=25, deadline=None, derandomize=True, suppress_health_check=_QUICK
)
hypothesis.settings.register_profile(
    "thorough", max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_finish() -> None:
    """Let garbage collections pass over the thousands of tests and what their modules read: they live to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture(scope="session")
def no_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The empty home of tests that have no directory of their own."""
    return tmp_path_factory.mktemp("no-home")


@pytest.fixture(scope="session", autouse=True)
def real_bundled_pip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Target], File | None]]:
    """Environments get a pip of two files: to copy the 500 of the real one takes longer than the rest of an install."""
    real = managers.bundled_pip

    def small(target: Target) -> File | None:
        # An older Python may run pip from that wheel, as envsolve's own pip does not support it.
        if target.pip is None or target.version != platform.python_version():
            return real(target)
        return real(replace(target, pip=small_pip(tmp_path_factory.mktemp("pip"), target.pip)))

    managers.bundled_pip = small
    yield real
    managers.bundled_pip = real


@pytest.fixture
def real_pip(real_bundled_pip: Callable[[Target], File | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that runs the pip of an environment."""
    monkeypatch.setattr(managers, "bundled_pip", real_bundled_pip)


def _set(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set environment variables, those of None being removed; returns what undoes it."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is not None:
            os.environ[name] = value
        elif before[name] is not None:
            del os.environ[name]
    return before


@pytest.fixture(scope="session")
def callers(uv_cache: Path) -> Iterator[dict[str, str | None]]:
    """The caller's own settings, which no test sees: taken away once, not anew for each of thousands of tests."""
    unwanted = [name for name in os.environ if name.startswith(_PREFIXES) or name.upper() in (*_NAMES, *_AUTHORITIES)]
    before = _set(
        dict.fromkeys(unwanted)
        | {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "UV_CACHE_DIR": str(uv_cache),
            "UV_NO_CONFIG": "1",
            "GIT_ALLOW_PROTOCOL": "file",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "PATH": _PATH,
        }
    )
    yield before
    _set(before)


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, no_home: Path, callers: dict[str, str | None]) -> Iterator[None]:
    """A home and caches of the test's own; `network` tests still reach the index as the caller does.

    Nothing of the command line of one test reaches the next: neither --debug, --quiet and --verbose, nor a Ctrl-C that
    is still ignored, as programs that are started later would inherit that.
    """
    # Making and removing two directories took longer than most of the tests that have no use for them.
    if "tmp_path" in request.fixturenames:
        folder: Path = request.getfixturevalue("tmp_path")
        home = folder / "home"
        home.mkdir()
    else:
        home, folder = no_home, no_home / f"of-{next(_NUMBERS)}"
    own = {"HOME": str(home), "ENVSOLVE_CACHE_DIR": str(folder / "cache")}
    if request.node.get_closest_marker("network"):
        before = _set({**callers, **own})
    else:
        before = _set({**own, "XDG_CONFIG_HOME": str(home), "XDG_CONFIG_DIRS": str(home)})
    vars(SETTINGS).update(vars(Settings()))
    handler = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is not handler:
        signal.signal(signal.SIGINT, handler)
    _set(before)

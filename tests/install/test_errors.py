"""What a package manager's last words are told as."""

from __future__ import annotations

from pathlib import Path

import pytest

from envsolve.errors import EnvsolveError, IndexUnavailableError
from envsolve.install.errors import DamagedFilesError, InstallError, explained

STAGED = "/home/me/envs/.train.envsolve"


LEADS = {
    "401": "the index refuses access",
    "403": "the index refuses access",
    "404": "the index no longer has a planned file",
    "410": "the index no longer has a planned file",
    "gone-file": "the index no longer has a planned file",
    "500": "a planned file could not be downloaded",
    "503": "a planned file could not be downloaded",
    "closed": "a planned file could not be downloaded",
    "short": "a planned file could not be downloaded",
    "refused": "a planned file could not be downloaded",
    "dns": "a planned file could not be downloaded",
    "tls": "a planned file could not be downloaded",
    "hash": "a downloaded file differs from the planned one",
    "build": "a source distribution did not build: the header cuda.h is missing",
    "cache": "the installer's cache cannot be used: /dev/null",
}


@pytest.mark.parametrize("said", sorted(Path(__file__).with_name("said").iterdir()), ids=lambda path: path.stem)
def test_what_pip_and_uv_really_say(said: Path) -> None:
    """Each file is the output of one failed run; the failed build has a line number 404 in its compiler's words."""
    case, manager = said.stem.split(".")
    found = explained(manager, 1, said.read_text(encoding="utf-8").splitlines())
    assert found.message.startswith(LEADS[case])
    assert found.exit_code == (1 if case in ("build", "cache") else 5)


@pytest.mark.parametrize(
    ("output", "error", "lead"),
    [
        (["OSError: [Errno 28] No space left on device"], InstallError, "the disk is full"),
        (
            ["THESE PACKAGES DO NOT MATCH THE HASHES"],
            IndexUnavailableError,
            "a downloaded file differs from the planned one",
        ),
        (["HTTP error 403 while getting it"], IndexUnavailableError, "the index refuses access"),
        (
            ["Collecting torch", "ERROR: torch-1.whl is not a wheel", "bye"],
            InstallError,
            "uv failed with exit status 2: ",
        ),
        (
            ["  \u00d7 No solution found", "  \u2570\u2500\u25b6 because"],
            InstallError,
            "uv failed with exit status 2: No so",
        ),
        (["x.c:404:1: error: timed out", "certificate 401 error"], InstallError, "uv failed with exit status 2"),
        (["  cause: The wheel is invalid: Metadata field Name not found"], DamagedFilesError, "the files of a package"),
        (["  cause: failed to read directory `/c/archive-v0/x`: No such file"], DamagedFilesError, "the files of a"),
        (["something odd"], InstallError, "uv failed with exit status 2\n"),
        ([], InstallError, "uv failed with exit status 2"),
    ],
)
def test_the_cause_comes_first(output: list[str], error: type[EnvsolveError], lead: str) -> None:
    found = explained("uv", 2, output)
    assert type(found) is error
    assert found.message.startswith(lead)
    assert found.hint


def test_addresses_of_objects_and_the_staging_folder_are_left_out() -> None:
    said = [
        "WARNING: Retrying after <pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f3a2b1c>: refused",
        f"ERROR: cannot build {STAGED}/tmp/build-1/setup.py for {STAGED}/env/bin/python",
    ]
    message = explained("pip", 1, said).message
    assert "0x7f3a2b1c" not in message and STAGED not in message
    assert "<pip._vendor.urllib3.connection.HTTPSConnection>: refused" in message
    assert "cannot build build-1/setup.py for bin/python" in message

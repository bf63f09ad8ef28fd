"""What a package manager's last words are told as."""

from __future__ import annotations

import pytest

from envsolve.errors import EnvsolveError, IndexUnavailableError
from envsolve.install.errors import InstallError, explained

STAGED = "/home/me/envs/.train.envsolve"


@pytest.mark.parametrize(
    ("output", "error", "lead"),
    [
        (["OSError: [Errno 28] No space left on device"], InstallError, "the disk is full"),
        (["THESE PACKAGES DO NOT MATCH THE HASHES"], IndexUnavailableError, "a downloaded file is not the one"),
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

"""Make a conda environment of exact packages, as a process: ``python -m envsolve.install.conda_fill ORDER.json``.

rattler works in threads that no exception ends. As a process it is ended whole, with an install that is interrupted or
killed, like pip and uv. Errors are reported in lines that begin with ``error:``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from envsolve.errors import EnvsolveError
from envsolve.packages.urls import without_secrets
from envsolve.solve.conda_client import ChannelSecrets, clean_url, rattler


@dataclass(frozen=True, slots=True)
class Package:
    """One package, by its URL; ``spec`` finds its record in the index of its channel."""

    spec: str
    url: str
    hashes: Mapping[str, str]
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """An environment to make.

    Attributes:
        channels: URLs of the channels that have the packages.
        subdir: The packages' subdir.
        environment: Where it is made.
        prefix: Its final directory: the path that its files are to contain.
    """

    packages: tuple[Package, ...]
    channels: tuple[str, ...]
    subdir: str
    environment: str
    prefix: str


def title() -> str:
    """Name and version of what makes the environment: ``rattler 0.28.0``.

    Raises:
        UsageError: It is not installed.
    """
    from importlib.metadata import version

    rattler()
    return f"rattler {version('py-rattler')}"


class _GoneError(Exception):
    """A channel no longer has a package, or has another file under its name."""


async def fill(order: Order) -> None:
    """Make the environment; report each package when it is there."""
    lib = rattler()
    secrets = ChannelSecrets(order.channels)
    channels = [clean_url(channel) for channel in order.channels]
    specs = [package.spec for package in order.packages]
    found = await secrets.gateway().query(channels, [order.subdir, "noarch"], specs, recursive=False)
    records = {clean_url(record.url): record for part in found for record in part}
    await lib.install(
        [_record(package, records) for package in order.packages],
        order.environment,
        platform=lib.Subdir(order.subdir),
        alternative_target_prefix=order.prefix,
        client=secrets.client(),
        reporter=_reporter(lib, len(order.packages)),
        execute_link_scripts=False,
    )


def _record(package: Package, records: Mapping[str, Any]) -> Any:
    url = clean_url(package.url)
    record = records.get(url)
    if record is None:
        raise _GoneError(f"HTTP error 404: the channel no longer lists {url}")
    digest = record.sha256 if "sha256" in package.hashes else record.md5
    planned = package.hashes.get("sha256") or package.hashes.get("md5")
    if planned and (digest is None or digest.hex() != planned):
        raise _GoneError(f"hash mismatch when reading the index: {url} was planned with {planned}")
    if package.size is not None and record.size not in (None, package.size):
        size = f"{record.size} bytes, and was planned with {package.size}"
        raise _GoneError(f"size mismatch when reading the index: {url} has {size}")
    return record


def _reporter(lib: Any, count: int) -> Any:
    class Reporter(lib.InstallerReporter):  # type: ignore[misc]
        """Reports each package that is linked."""

        linked = 0

        def on_link_start(self, operation: int, package_name: str) -> int:
            Reporter.linked += 1
            print(f"{Reporter.linked} of {count}: {package_name}", flush=True)
            return operation

    return Reporter()


def main(words: Sequence[str]) -> int:
    """Read an order and carry it out; the exit status is 1 if that failed."""
    order = msgspec.json.decode(Path(words[0]).read_bytes(), type=Order)
    try:
        asyncio.run(fill(order))
    except EnvsolveError as error:
        print(f"error: {error.message}", flush=True)
        return 1
    except Exception as error:  # rattler's failures have no base of their own
        print(f"error: {without_secrets(str(error))}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    # Threads of rattler may outlive the environment that they made, and crash while Python takes itself down: measured
    # in one of ten runs with py-rattler 0.28.
    os._exit(status)

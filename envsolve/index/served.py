"""Measuring a file on a server, of which only the parts that hold the answer are fetched."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urldefrag, urlsplit

from envsolve.catalogue.measure import Measurement
from envsolve.catalogue.measure import measure as measure_file
from envsolve.errors import UsageError
from envsolve.index.address import redact, split_login
from envsolve.index.client import IndexClient
from envsolve.index.errors import MissingFileError
from envsolve.index.model import IndexFile
from envsolve.index.settings import read_settings


def measure_served(what: str, every: bool, environ: Mapping[str, str]) -> Measurement:
    """Measure the file at an http(s) address.

    Raises:
        UsageError: The address or the file cannot be read.
        IndexUnavailableError: The server cannot be reached, or has no such file.
    """
    try:
        split_login(what)
    except UsageError:
        raise UsageError(
            "the address to measure cannot be read", hint="write it as https://host/path/file.whl"
        ) from None
    address = urldefrag(what).url
    name = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
    if not name:
        raise UsageError(f"{redact(address)} names no file", hint="write it as https://host/path/file.whl")
    try:
        with IndexClient(read_settings(environ)) as client, client.open(IndexFile(name, address, "")) as file:
            return measure_file(file, name, every=every)
    except MissingFileError:
        raise MissingFileError(f"there is no {redact(address)}") from None

"""What one command line says of talking must not reach the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envsolve.cli.output import SETTINGS, Settings


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    yield
    for name, value in vars(Settings()).items():
        setattr(SETTINGS, name, value)

from __future__ import annotations

import pytest


@pytest.fixture(params=["uv", "pip"])
def manager(request: pytest.FixtureRequest) -> str:
    return str(request.param)

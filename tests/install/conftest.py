from __future__ import annotations

import pytest

#: For tests that show the same with either manager: pip takes three times as long, so ``make slow`` tries it.
ONE = ("uv", pytest.param("pip", marks=pytest.mark.slow))


@pytest.fixture(params=["uv", "pip"])
def manager(request: pytest.FixtureRequest) -> str:
    return str(request.param)

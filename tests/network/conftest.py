from __future__ import annotations

import pytest

from tests.network.tools import Tools


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("tools"))

"""The sizes of files, compared before a package manager downloads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from envsolve.errors import IndexUnavailableError
from envsolve.install.environment import install
from envsolve.install.fetch import check_sizes
from envsolve.install.files import File
from tests.indexserver import IndexServer
from tests.install.conftest import ONE
from tests.install.test_interrupted import version
from tests.install.wheels import make_wheel, plan_of, planned


@pytest.mark.parametrize("manager", ONE)
def test_a_file_of_another_size_is_refused(tmp_path: Path, manager: str) -> None:
    """pip and uv do not compare sizes."""
    demo = planned(make_wheel(tmp_path, "demo", "1.0"))
    content = (tmp_path / str(demo.filename)).read_bytes()
    prefix = tmp_path / "env"
    with IndexServer() as server:
        for number, ranges in enumerate((True, False)):
            index = server.index(f"/{number}/simple/", ranges=ranges)
            entry = index.add("demo", str(demo.filename), content)
            remote = replace(demo, url=index.address(entry))
            for one in (remote, demo) if ranges else (remote,):
                with pytest.raises(IndexUnavailableError, match=rf"has {len(content)} bytes, and the plan or the lock"):
                    install(plan_of(replace(one, size=len(content) - 1)), prefix, manager=manager)
                lock = tmp_path / "pylock.toml"
                lock.write_text(plan_of(replace(one, size=len(content) + 1)).to_pylock())
                with pytest.raises(IndexUnavailableError, match=rf"has {len(content)} bytes, and the plan or the lock"):
                    install(lock, prefix, manager=manager)
                assert not prefix.exists()
        install(plan_of(replace(remote, size=len(content))), prefix, manager=manager)
    assert version(prefix) == "1.0"


def test_sizes_are_not_asked_again_of_a_host_that_does_not_answer() -> None:
    sha = {"sha256": "0" * 64}
    with IndexServer() as server:
        server.fault("/", status=503)
        check_sizes([File("demo", "1", "wheel", "w", f"{server.url}/{n}.whl", sha, 10) for n in range(100)])
        assert len(server.requests) < 100

"""The real default index."""

from __future__ import annotations

import zipfile

import pytest

from envsolve.packages.client import IndexClient
from envsolve.packages.settings import read_settings

pytestmark = pytest.mark.network


def test_projects_metadata_and_ranges_of_the_default_index() -> None:
    names = ["six", "packaging", "torch", "triton"]
    with IndexClient(read_settings()) as client:
        client.prefetch(names)
        pages = {name: client.project(name) for name in names}
        assert all(pages.values())
        assert client.project("envsolve-no-such-project-0") == ()
        [six] = [f for f in pages["six"] if f.filename == "six-1.16.0-py2.py3-none-any.whl"]
        assert (six.hashes["sha256"][:8], six.requires_python) == ("8abb2f1d", ">=2.7, !=3.0.*, !=3.1.*, !=3.2.*")
        metadata = client.metadata(six)
        assert (metadata.name, metadata.version, metadata.exact) == ("six", "1.16.0", True)
        [torch] = [f for f in pages["torch"] if f.filename == "torch-2.8.0-cp312-cp312-manylinux_2_28_x86_64.whl"]
        assert "triton==3.4.0" in " ".join(client.metadata(torch).requires_dist)
        triton = next(f for f in pages["triton"] if f.filename.startswith("triton-3.4.0-cp312-"))
        with client.open(triton) as opened, zipfile.ZipFile(opened) as archive:
            assert archive.read("triton/__init__.py").startswith(b'"""')
            assert getattr(opened, "transferred", 1 << 30) < 4_000_000
    with IndexClient(read_settings(), offline=True) as offline:
        assert offline.project("torch") == pages["torch"]
        assert offline.metadata(six) == metadata

"""Files compared with RECORD and conda-meta: what was changed is named with its package."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from envsolve.environment.installed import Damage, compare, packages_of_stack
from envsolve.environment.read import read_distributions


def put(site: Path, name: str, files: Mapping[str, bytes], *, installer: str = "pip") -> None:
    """Install files with a RECORD that has real hashes."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "INSTALLER").write_text(installer + "\n")
    rows = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        rows.append(f"{path},sha256={digest},{len(content)}\n")
    (info / "RECORD").write_text("".join(rows))


def found(site: Path, prefix: Path | None = None, *, hashes: bool = False) -> tuple[Damage, ...]:
    distributions = tuple(read_distributions(site)) if site.exists() else ()
    return compare(packages_of_stack(prefix or site, distributions), hashes=hashes).damages


LIBRARY = "nvidia/cu13/lib/libcufft.so.12"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    put(tmp_path, "nvidia-cufft", {LIBRARY: b"\x7fELF" + b"x" * 100, "nvidia/__init__.py": b""})
    files = {
        "torch/__init__.py": b"import os\n",
        "torch/test/test_a.py": b"1",
        "torch/bin/protoc": b"\x7fELF",
        "torch/x.h": b"1",
    }
    put(tmp_path, "torch", {**files, "nvidia/__init__.py": b""}, installer="uv")
    put(tmp_path, "other", {"other.py": b"1"})
    return tmp_path


def test_a_sound_environment_has_no_damage(site: Path) -> None:
    assert found(site, hashes=True) == ()


def test_what_slim_images_leave_out_and_other_packages_are_no_damage(site: Path) -> None:
    for path in ("torch/test/test_a.py", "torch/x.h", "other.py"):
        (site / path).unlink()
    assert found(site, hashes=True) == ()


@pytest.mark.parametrize(
    ("path", "content", "kind", "by_size"),
    [
        (LIBRARY, None, "missing", True),
        (LIBRARY, b"\x7fELF", "truncated", True),
        (LIBRARY, b"\x7fELF" + b"x" * 200, "altered", True),
        (LIBRARY, b"\x7fELF" + b"y" * 100, "altered", False),
        ("torch/__init__.py", b"import sys\n", "altered", True),
        ("torch/__init__.py", b"import re\n", "altered", False),
        ("torch/bin/protoc", None, "missing", True),
    ],
)
def test_damage_is_named(site: Path, path: str, content: bytes | None, kind: str, by_size: bool) -> None:
    (site / path).unlink()
    if content is not None:
        (site / path).write_bytes(content)
    assert len(found(site)) == by_size
    (one,) = found(site, hashes=True)
    assert (one.file, one.kind) == (f"{site}/{path}", kind)
    assert one.package.label in one.text
    assert (
        one.package.again
        == {
            "torch": "uv pip install --reinstall --no-deps 'torch==1.0'",
            "nvidia": "pip install --force-reinstall --no-deps 'nvidia-cufft==1.0'",
        }[path.partition("/")[0]]
    )


def test_a_folder_in_place_of_a_library(site: Path) -> None:
    (site / LIBRARY).unlink()
    (site / LIBRARY).mkdir()
    (one,) = found(site)
    assert one.kind == "altered"


def test_links_of_uv_are_followed(site: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    cache = tmp_path_factory.mktemp("cache") / "lib"
    (site / LIBRARY).rename(cache)
    (site / LIBRARY).symlink_to(cache)
    assert found(site, hashes=True) == ()
    cache.unlink()
    assert [one.kind for one in found(site)] == ["missing"]


def test_a_package_that_overwrites_another_ones_file_is_named(site: Path) -> None:
    put(site, "nvidia-cufft-cu12", {LIBRARY: b"\x7fELF" + b"z" * 50})
    (one,) = found(site)
    assert (one.package.name, one.by) == ("nvidia-cufft", "nvidia-cufft-cu12 1.0")
    assert one.text.endswith("and nvidia-cufft-cu12 1.0 has replaced it")


def conda(prefix: Path, content: bytes, **changes: object) -> Path:
    library = prefix / "lib" / "libcufft.so.11"
    library.parent.mkdir(parents=True)
    library.write_bytes(content)
    stated = {
        "_path": "lib/libcufft.so.11",
        "path_type": "hardlink",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_in_bytes": len(content),
        **changes,
    }
    link = {"_path": "lib/libcufft.so", "path_type": "softlink", "sha256": "0" * 64, "size_in_bytes": 1}
    record = {"name": "libcufft", "version": "11.3", "build": "h1", "paths_data": {"paths": [stated, link]}}
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "libcufft-11.3-h1.json").write_text(json.dumps(record))
    return library


def test_conda_states_sizes_and_hashes(tmp_path: Path) -> None:
    library = conda(tmp_path, b"\x7fELF" + b"x" * 100)
    assert found(tmp_path / "none", tmp_path, hashes=True) == ()
    library.write_bytes(b"\x7fELF" + b"y" * 100)
    assert found(tmp_path / "none", tmp_path) == ()
    (one,) = found(tmp_path / "none", tmp_path, hashes=True)
    assert one.text == f"{library} is not the file that was installed: it belongs to libcufft 11.3"
    assert one.package.again == "conda install --force-reinstall libcufft=11.3=h1"


def test_conda_writes_its_prefix_into_files(tmp_path: Path) -> None:
    library = conda(
        tmp_path, b"\x7fELF" + b"x" * 100, prefix_placeholder="/opt/placehold", size_in_bytes=7, sha256="0" * 64
    )
    assert found(tmp_path / "none", tmp_path, hashes=True) == ()
    library.unlink()
    assert [one.kind for one in found(tmp_path / "none", tmp_path)] == ["missing"]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (None, "cannot be read"),
        (b"", "is empty"),
        (b"\x00\xff\xfe", "is empty"),
        (b"torch/__init__.py,sha256=AA", "is damaged"),
        (b"PK\x03\x04 something else\n", "is damaged"),
        (b"x" * 200_000 + b",,\n", "cannot be read"),
    ],
)
def test_a_damaged_record_is_named_itself(site: Path, record: bytes | None, said: str) -> None:
    path = site / "torch-1.0.dist-info" / "RECORD"
    path.unlink()
    if record is not None:
        path.write_bytes(record)
    [torch] = [one for one in read_distributions(site) if one.name == "torch"]
    assert torch.record_fault is not None and torch.record_fault.startswith(said)
    [package] = [one for one in packages_of_stack(site, [torch]) if one.name == "torch"]
    assert package.fault == f"{path} {torch.record_fault}"
    assert package.again == "uv pip install --reinstall --no-deps 'torch==1.0'"


def test_a_packager_of_the_system_need_not_leave_a_record(site: Path) -> None:
    (site / "torch-1.0.dist-info" / "RECORD").unlink()
    (site / "torch-1.0.dist-info" / "INSTALLER").write_text("debian\n")
    assert [one.record_fault for one in read_distributions(site)] == [None] * 3

"""Conda channels on the loopback interface, with packages that real rattler solves and installs.

with CondaChannel(folder) as channel:
    channel.add(Package("demo", "1.0", "h0_0", depends=("python >=3.12",))).fill()
    solve(channel.url)

:meth:`CondaChannel.fill` makes up what packages depend on and nobody added: empty packages of every version and build
that a dependency speaks of.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import struct
import sys
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.indexserver import Hold

RECORDS = Path(__file__).parent / "planning" / "conda" / "records.json"
PLACEHOLDER = "/placehold_" + "p" * 240
_BLOCK = 1 << 17  # the most that a block of a zstd frame holds


@dataclass(frozen=True)
class Package:
    """One package: what its index.json says, and its files."""

    name: str
    version: str
    build: str
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    subdir: str = "linux-64"
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        return f"{self.name}-{self.version}-{self.build}"

    @property
    def number(self) -> int:
        match = re.search(r"(\d+)$", self.build)
        return int(match[1]) if match else 0


def real_packages(subdir: str = "linux-64") -> list[Package]:
    """The records of conda-forge that ``records.json`` holds; those without architecture are of every subdir."""
    listed = json.loads(RECORDS.read_text(encoding="utf-8"))["records"]
    return [
        Package(r["name"], r["version"], r["build"], tuple(r["depends"]), tuple(r["constrains"]), r["subdir"])
        for r in listed
        if r["subdir"] in (subdir, "noarch")
    ]


def world(subdir: str = "linux-64") -> list[Package]:
    """The real records with two Pythons."""
    pythons = ("3.12", "3.13")
    abis = [Package("python_abi", version, f"0_cp{version.replace('.', '')}", subdir="noarch") for version in pythons]
    return [*real_packages(subdir), *map(python_package, pythons), *abis]


def python_package(version: str = "3.12") -> Package:
    """A Python whose ``bin/python`` is the one that runs the tests."""
    run = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    files = {"bin/python": run, f"bin/python{version}": run, f"lib/python{version}/site-packages/README.txt": ""}
    return Package("python", f"{version}.1", "h0_0_cpython", depends=(f"python_abi {version}.*",), files=files)


class CondaChannel:
    """A channel folder, served until the ``with`` block ends."""

    def __init__(self, folder: Path, name: str = "conda-forge", *, login: str = "", token: str = "") -> None:
        """Serve a folder; of whoever asks, require a login (``user:password``) or the token in the path."""
        self._folder, self._name = folder / name, name
        self._login, self._token = login, f"/t/{token}/" if token else "/"
        self.root = folder
        self.packages: list[Package] = []
        self._held: dict[str, Hold] = {}

    def __enter__(self) -> CondaChannel:
        owner = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                for part, hold in owner._held.items():
                    if part in self.path and self.path.endswith(".conda"):
                        hold.wait()
                basic = "Basic " + b64encode(owner._login.encode()).decode()
                if owner._login and self.headers.get("Authorization") != basic:
                    self.send_error(401)
                elif not self.path.startswith(owner._token):
                    self.send_error(403)
                else:
                    self.path = self.path[len(owner._token) - 1 :]
                    super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(self.root)))
        self._http.daemon_threads = True
        self._thread = Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for hold in self._held.values():
            hold.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        login = f"{self._login}@" if self._login else ""
        return f"http://{login}127.0.0.1:{self._http.server_address[1]}{self._token}{self._name}"

    def hold(self, part: str) -> Hold:
        """Answer requests for packages that name it only once they are released."""
        self._held[part] = Hold()
        return self._held[part]

    def add(self, *packages: Package) -> CondaChannel:
        self.packages += packages
        return self

    def fill(self) -> CondaChannel:
        """Add what the packages depend on and nobody added, then write the channel."""
        have = {package.name for package in self.packages}
        wanted: dict[str, list[str]] = {}
        for spec in (spec for package in self.packages for spec in package.depends):
            wanted.setdefault(spec.split()[0], []).append(spec)
        for name, specs in wanted.items():
            if name not in have and not name.startswith("__"):
                self.packages += _made_up(name, specs)
        self.write()
        return self

    def write(self) -> None:
        subdirs = {package.subdir for package in self.packages} | {"noarch", "linux-64"}
        for subdir in sorted(subdirs):
            folder = self._folder / subdir
            folder.mkdir(parents=True, exist_ok=True)
            listed = {}
            for package in (p for p in self.packages if p.subdir == subdir):
                data = archive(package)
                (folder / f"{package.stem}.conda").write_bytes(data)
                listed[f"{package.stem}.conda"] = _record(package) | {
                    "sha256": hashlib.sha256(data).hexdigest(),
                    "md5": hashlib.md5(data).hexdigest(),
                    "size": len(data),
                }
            repodata = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": listed, "repodata_version": 1}
            (folder / "repodata.json").write_text(json.dumps(repodata), encoding="utf-8")


def archive(package: Package) -> bytes:
    """The bytes of a ``.conda`` file."""
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "size_in_bytes": len(text.encode()),
            **({"prefix_placeholder": PLACEHOLDER, "file_mode": "text"} if PLACEHOLDER in text else {}),
        }
        for name, text in package.files.items()
    ]
    info = {
        "info/index.json": json.dumps(_record(package)),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as zipped:
        for name, data in (
            ("metadata.json", b'{"conda_pkg_format_version": 2}'),
            (f"info-{package.stem}.tar.zst", _zstd(_tar(info))),
            (f"pkg-{package.stem}.tar.zst", _zstd(_tar(package.files))),
        ):
            zipped.writestr(zipfile.ZipInfo(name), data)  # dated 1980: the same bytes whenever it is made
    return out.getvalue()


def _record(package: Package) -> dict[str, object]:
    noarch = {"noarch": "generic"} if package.subdir == "noarch" else {}
    return {
        "name": package.name,
        "version": package.version,
        "build": package.build,
        "build_number": package.number,
        "depends": list(package.depends),
        "constrains": list(package.constrains),
        "subdir": package.subdir,
        "timestamp": 1_750_000_000_000,
        **noarch,
    }


def _made_up(name: str, specs: Iterable[str]) -> list[Package]:
    """Packages that the specs take: one for each version and each build string that they speak of."""
    versions, builds = set(), set()
    for spec in specs:
        _, version, build, *_ = [*spec.split(), "*", "*"]
        versions |= set(re.findall(r"(?:>=|==|^)(\d[\w.]*)", version.split("|")[0].replace(".*", "")))
        builds |= {build.replace("*", "0")} if build != "*" else set()
    return [
        Package(name, version, build, subdir="noarch")
        for version in sorted(versions or {"1.0"})
        for build in sorted(builds or {"h0_0"})
    ]


def _tar(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text.encode()), 0o755 if name.startswith("bin/") else 0o644
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    """A zstd frame (RFC 8878) of raw blocks: any reader takes it, and nothing is needed to write it."""
    blocks = [data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK)]
    head = struct.pack("<IBQ", 0xFD2FB528, 0b1110_0000, len(data))  # single segment, size in 8 bytes
    body = [
        ((len(block) << 3) | (number == len(blocks) - 1)).to_bytes(3, "little") + block
        for number, block in enumerate(blocks)
    ]
    return head + b"".join(body)

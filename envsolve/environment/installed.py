"""The files of installed packages, compared with the sizes and hashes that their own records state.

pip and uv write RECORD (Python packaging specification "Recording installed projects"); conda writes ``conda-meta``.
Both are read from outside: nothing of the environment runs, so nothing in it can hide a change.
"""

from __future__ import annotations

import base64
import concurrent.futures
import csv
import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from envsolve.binaries.names import LIBRARY_FILE, is_runtime_package
from envsolve.environment.model import Distribution
from envsolve.system.files import from_json, open_regular, read_regular

LARGEST_RECORD = 64 << 20
#: What a GPU program runs: other files may be edited or left out of slim images without harm.
_CODE = re.compile(r"(?:\.py|\.bc|\.cubin|\.fatbin|\.so(?:\.\d+)*|\.dll|\.pyd)$|(?:^|/)bin/[^/]+$")
#: Slim images remove tests, and nothing at run time imports them.
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing|_?test_\w+)(?:/|\.py$)|(?:^|/)test_\w+\.py$")
_CONDA_STACK = re.compile(
    r"(?:lib)?torch\w*|pytorch[\w-]*|triton|cuda-[\w-]+|cudatoolkit|cudnn|nccl|lib(?:cu|nv|magma)\S*"
)
_FAMILY = ("torch", "torchvision", "torchaudio")
_CHUNK = 1 << 22
_Kind = Literal["missing", "truncated", "altered"]


@dataclass(frozen=True, slots=True)
class Record:
    """A package's record of one of its files.

    Attributes:
        path: The file, relative to ``root``.
        root: The directory that the record's paths start from.
        sha256: Hexadecimal; None if the record has no usable hash.
        size: In bytes; None if the record does not say.
    """

    path: str
    root: str
    sha256: str | None
    size: int | None

    @property
    def file(self) -> str:
        """The absolute path."""
        return f"{self.root}/{self.path}"


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package with the command that installs it again.

    Attributes:
        name: Normalised name.
        label: ``torch 2.8.0+cu128``.
        again: The command.
        fault: What is wrong with the record itself.
    """

    name: str
    label: str
    again: str
    records: tuple[Record, ...]
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not as its package installed it.

    Attributes:
        kind: ``truncated`` is shorter than recorded, ``altered`` has another size or hash.
        by: Another package that lists the same path and whose record fits the file.
    """

    file: str
    kind: _Kind
    package: Package
    by: str | None = None

    @property
    def text(self) -> str:
        """One line: what is wrong with which file of which package."""
        words = {"missing": "is missing", "truncated": "is truncated", "altered": "is not the file that was installed"}
        text = f"{self.file} {words[self.kind]}: it belongs to {self.package.label}"
        return f"{text}, and {self.by} has replaced it" if self.by else text


def record_rows(info: Path) -> list[list[str]] | None:
    """The rows of a RECORD: path, hash, size; None if it cannot be read."""
    try:
        text = read_regular(info / "RECORD", LARGEST_RECORD).decode("utf-8", "replace")
        # Python 3.10 refuses the whole file for one zero byte, later ones take it as part of a name.
        return [row for row in csv.reader(line for line in text.splitlines() if "\0" not in line) if row and row[0]]
    except (OSError, csv.Error):
        return None


def record_fault(rows: Sequence[Sequence[str]] | None, installer: str | None) -> str | None:
    """What is wrong with a RECORD; packages of a Linux distribution may have none."""
    if rows is None:
        return "cannot be read" if installer in ("pip", "uv") else None
    if not rows:
        return "is empty"
    return "is damaged: not every line has a path, a hash and a size" if any(len(row) != 3 for row in rows) else None


def packages_of_stack(
    prefix: Path, distributions: Sequence[Distribution], also: Collection[str] = (), *, uv: bool = False
) -> tuple[Package, ...]:
    """The packages that GPU programs run on, with the code files in their records.

    Args:
        prefix: The environment's root directory.
        distributions: All of it; of equal names the first is the one that is imported.
        also: Names of further packages, such as extensions.
        uv: Whether uv made the environment, which then need not contain pip.
    """
    first: dict[str, Distribution] = {}
    for distribution in distributions:
        name = distribution.name
        # conda edits libraries after pip wrote RECORD; its own record has the sizes that count.
        if (name in also or name in _FAMILY or is_runtime_package(name)) and distribution.installer != "conda":
            first.setdefault(name, distribution)
    return (*(_of_wheel(one, uv) for one in first.values()), *_of_conda(prefix))


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison.

    Attributes:
        hashed: How many files were compared by hash, and their bytes.
        left: How many files of the recorded size were not, although they have a hash, and their bytes.
        seconds: How long it took.
    """

    damages: tuple[Damage, ...]
    hashed: tuple[int, int] = (0, 0)
    left: tuple[int, int] = (0, 0)
    seconds: float = 0.0


class Comparison:
    """Files compared with their records: their sizes at once, their hashes in threads beside other work.

    A context manager, whose threads stop when the block is left.

    Args:
        packages: Those to check.
        hashes: Whether to also hash files of the recorded size, at about 1 GB/s a core.
    """

    def __init__(self, packages: Sequence[Package], *, hashes: bool) -> None:
        self._began, self._stopped = time.monotonic(), threading.Event()
        self._packages = packages
        self._records = [(package, record) for package in packages for record in package.records]
        self._kinds = [_by_size(record) for _, record in self._records]
        numbers = range(len(self._records)) if hashes else ()
        waiting = [i for i in numbers if self._kinds[i] is None and self._records[i][1].sha256]
        # Small ones first: if time ends, few files are left, and all that Python imports was compared.
        waiting.sort(key=self._size)
        # hashlib releases the interpreter's lock; half of the cores are left to the work beside.
        self._pool = ThreadPoolExecutor(min(8, max(1, (os.cpu_count() or 1) // 2)))
        self._hashing = {i: self._pool.submit(_hash, self._records[i][1].file, self._stopped) for i in waiting}

    def __enter__(self) -> Comparison:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the threads; a comparison that was not finished is of no use then."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def finish(self, seconds: float | None = None) -> Compared:
        """Wait for the hashes and return all that differs.

        Args:
            seconds: When to stop, from the start on; never if None.
        """
        left = None if seconds is None else max(0.0, self._began + seconds - time.monotonic())
        ended, open_ones = concurrent.futures.wait(self._hashing.values(), left)
        taken = time.monotonic() - self._began
        for number, job in self._hashing.items():
            if job in ended and job.result() != self._records[number][1].sha256:
                self._kinds[number] = "altered"
        found = [(*one, kind) for one, kind in zip(self._records, self._kinds, strict=True) if kind]
        others = _claims(self._packages, {record.file for _, record, kind in found if kind != "missing"})
        damaged = tuple(
            Damage(record.file, kind, package, _writer(others.get(record.file, ()), package))
            for package, record, kind in found
        )
        return Compared(damaged, self._counted(ended), self._counted(open_ones), taken)

    def _counted(self, jobs: Collection[Future[str | None]]) -> tuple[int, int]:
        numbers = [number for number, job in self._hashing.items() if job in jobs]
        return len(numbers), sum(map(self._size, numbers))

    def _size(self, number: int) -> int:
        return self._records[number][1].size or 0


def compare(packages: Sequence[Package], *, hashes: bool = False) -> Compared:
    """Compare files with their records, to the end.

    Args:
        packages: Those to check.
        hashes: As for :class:`Comparison`.
    """
    with Comparison(packages, hashes=hashes) as comparison:
        return comparison.finish()


def _by_size(record: Record) -> _Kind | None:
    try:
        status = os.stat(record.file)  # noqa: PTH116  thousands of files
    except OSError:
        return "missing"
    if not stat.S_ISREG(status.st_mode):
        return "altered"
    if record.size is not None and status.st_size != record.size:
        return "truncated" if status.st_size < record.size and LIBRARY_FILE.search(record.path) else "altered"
    return None


def _hash(path: str, stopped: threading.Event) -> str | None:
    value = hashlib.sha256()
    try:
        with open_regular(Path(path)) as file:
            while not stopped.is_set() and (chunk := file.read(_CHUNK)):
                value.update(chunk)
    except OSError:  # a damaged file system: what cannot be read is not what was installed
        return None
    return value.hexdigest()


def _claims(packages: Sequence[Package], files: Collection[str]) -> Mapping[str, list[tuple[Package, Record]]]:
    claims: dict[str, list[tuple[Package, Record]]] = {}
    for package in packages:
        for record in package.records if files else ():
            if record.file in files:
                claims.setdefault(record.file, []).append((package, record))
    return claims


def _writer(claims: Sequence[tuple[Package, Record]], owner: Package) -> str | None:
    """The package that overwrote another one's file: both list it, and it fits the record of the other."""
    others = ((package, record) for package, record in claims if package is not owner and record.size is not None)
    return next((package.label for package, record in others if _fits(record)), None)


def _fits(record: Record) -> bool:
    sound = _by_size(record) is None
    return sound and record.sha256 in (None, _hash(record.file, threading.Event()))


def _of_wheel(distribution: Distribution, uv: bool) -> Package:
    pinned = f"{distribution.name}=={distribution.version}" if distribution.version else distribution.name
    # pip refuses to uninstall what has no sound record, also in order to install it again.
    of_pip = "pip install --ignore-installed" if distribution.record_fault else "pip install --force-reinstall"
    command = "uv pip install --reinstall" if uv or distribution.installer == "uv" else of_pip
    records = []
    for row in record_rows(Path(distribution.info)) or ():
        path = row[0].replace("\\", "/")
        if not path.startswith(("../", "/")) and _deciding(path):
            size = int(row[2]) if len(row) > 2 and row[2].isdecimal() else None
            records.append(Record(path, distribution.site, _sha256(row[1] if len(row) > 1 else ""), size))
    fault = f"{distribution.info}/RECORD {distribution.record_fault}" if distribution.record_fault else None
    return Package(distribution.name, distribution.label, f"{command} --no-deps '{pinned}'", tuple(records), fault)


def _deciding(path: str) -> bool:
    return bool(_CODE.search(path)) and not _TESTS.search(path)


def _sha256(text: str) -> str | None:
    """RECORD has hashes as URL-safe base64 without padding."""
    kind, _, value = text.partition("=")
    if kind != "sha256" or len(value) != 43:
        return None
    try:
        return base64.urlsafe_b64decode(value + "=").hex()
    except ValueError:
        return None


class _CondaFile(msgspec.Struct, frozen=True):
    path: str = msgspec.field(name="_path")
    path_type: str = "hardlink"
    sha256: str | None = None
    sha256_in_prefix: str | None = None
    size_in_bytes: int | None = None
    prefix_placeholder: str | None = None


class _CondaFiles(msgspec.Struct, frozen=True):
    paths: tuple[_CondaFile, ...] = ()


class _CondaRecord(msgspec.Struct, frozen=True):
    name: str
    version: str
    build: str = ""
    paths_data: _CondaFiles = _CondaFiles()


def _of_conda(prefix: Path) -> Iterator[Package]:
    for path in sorted(prefix.glob("conda-meta/*.json")):
        # The name is in the file's name: records of other packages are not worth their megabytes.
        if not _CONDA_STACK.fullmatch(path.name.rsplit("-", 2)[0]):
            continue
        try:
            record = from_json(read_regular(path, LARGEST_RECORD), _CondaRecord)
        except (OSError, msgspec.MsgspecError):  # told as unreadable by whoever reads the environment
            continue
        again = f"conda install --force-reinstall {record.name}={record.version}={record.build}"
        files = [one for one in record.paths_data.paths if one.path_type == "hardlink" and _deciding(one.path)]
        # conda writes its prefix into such files, which changes the hash, and of texts also the size.
        records = tuple(
            Record(
                str(PurePosixPath(one.path)),
                str(prefix),
                one.sha256_in_prefix or (None if one.prefix_placeholder else one.sha256),
                None if one.prefix_placeholder else one.size_in_bytes,
            )
            for one in files
        )
        yield Package(record.name, f"{record.name} {record.version}", again, records)

"""Damaged input of every kind, until it ends in something else than an answer or an error of envsolve.

    python -m bench.fuzz [--mutations 10000] [--minutes M] [--again N] [TARGET...]

Each target reads one kind of foreign input. A mutation is a seed that was changed at random; its number alone decides
how, so that ``--again N`` repeats it. A call fails if it raises a foreign exception, works for over 10 s, or if the
process needs over 1 GB. Failures are written to build/fuzz/TARGET/N, one of each kind.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from unittest import mock

import envsolve
from envsolve import dockerfile
from envsolve.binaries.library import read_pe
from envsolve.binaries.measure import measure
from envsolve.cli.remembered import recall
from envsolve.diagnose.environment import answer
from envsolve.dockerfile.offers import Offer, in_container, offers
from envsolve.dockerfile.read import read_file
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError
from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.install import choose
from envsolve.fleet.model import Reader as Profiles
from envsolve.fleet.model import describe as fleet_words
from envsolve.fleet.plan import read_plan as read_fleet_plan
from envsolve.fleet.probe import read_inventory
from envsolve.install.bundle import read_plan
from envsolve.install.conda import read_conda_lock
from envsolve.install.files import read_lock
from envsolve.install.record import read as read_record
from envsolve.locks.compare import compare_files
from envsolve.machine.known import parse_machine
from envsolve.packages.archives import ARCHIVE_ERRORS, sdist_metadata, wheel_metadata
from envsolve.packages.conda_inputs import read_asked
from envsolve.packages.model import parse_metadata
from envsolve.packages.pages import PageError, read_page
from envsolve.packages.project_files import load_project
from envsolve.packages.projects import ask_project
from envsolve.packages.requirement_files import read_requirements
from envsolve.packages.sdists import parse_requires_txt
from envsolve.protect.restore import last
from envsolve.rules.judge import as_judged
from envsolve.rules.platform import Environment, assumed
from envsolve.system.limits import LimitError
from envsolve.verify.report import read_report
from tests.binaries.artefacts import CUBIN, container, elf, entry, pe, wheel
from tests.distributions import make_sdist

SECONDS = 10
MEMORY = 1 << 30
_WAIT = 120
_OWN = (EnvsolveError, LimitError, PageError)
_ROOT = Path(__file__).parents[1]
_SEEDS = _ROOT / "bench/seeds"
_KINDS = 20  # failures of one target that are kept
_FORMATS = [
    "requirements",
    "pip",
    "uv",
    "pylock",
    "uv-project",
    "dockerfile",
    "dockerfile-snippet",
    "apptainer",
    "environment-yml",
    "pixi",
    "conda-lock",
    "summary",
    "json",
]
_FOREIGN = ("FOREIGN", "RUN touch")
_TARGET = "RTX 4090, driver 550.54, python 3.12, linux-x86_64, glibc 2.35"
# Escapes as in Python, a line each; and what is only long or deep.
_LINES = (_SEEDS / "tokens.txt").read_text(encoding="ascii").splitlines()
_LONG = (b"9" * 5000, b"[" * 2000, b'{"a":' * 1500, b"../" * 30, b"a" * 5000, b"1." * 2000, b" " * 3000)
_TOKENS = (*(line.encode("ascii").decode("unicode_escape").encode("latin-1") for line in _LINES), *_LONG)

Reader = Callable[[bytes], object]


def mutated(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """The seed with one to eight changes."""
    data = bytearray(seed)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(data) + 1)
        size = random.choice((1, 1, 2, 4, 16, 200))
        kind = random.randrange(8)
        if kind == 0:
            data[at : at + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            del data[at : at + size]
        elif kind == 2:
            data[at:at] = random.choice(_TOKENS)
        elif kind == 3:
            data[at : at + size] = random.choice(_TOKENS)
        elif kind == 4:
            start = random.randrange(len(data) + 1)
            data[at:at] = data[start : start + 4 * size] * random.choice((1, 1, 2, 50))
        elif kind == 5:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            data[at : at + size] = other[start : start + 8 * size]
        elif kind == 6:
            del data[at:]
        else:
            _change_word(data, at, random)
    return bytes(data[: 1 << 20])


def _change_word(data: bytearray, at: int, random: Random) -> None:
    """Replace a whole word, which the format around it survives."""
    start, end = at, at
    while start > 0 and chr(data[start - 1]).isalnum():
        start -= 1
    while end < len(data) and chr(data[end]).isalnum():
        end += 1
    data[start:end] = random.choice(_TOKENS)


def _zip_of(data: bytes, random: Random) -> bytes:
    """A ZIP archive with one member changed instead of its bytes, so that what is inside is reached."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(out, "w") as made:
        names = given.namelist()
        chosen = random.choice(names)
        for name in names:
            body = given.read(name)
            made.writestr(name, mutated(body, [body, *_TOKENS], random) if name == chosen else body)
    return out.getvalue()


def _seed_files(target: str) -> list[Path]:
    return sorted(path for path in (_SEEDS / target).rglob("*") if path.is_file())


def _seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in _seed_files(target)]


def _in_files(target: str, read: Callable[[Path], object]) -> tuple[Reader, list[bytes]]:
    """A reader of files, and its seeds; the first byte of the data chooses the file that the rest is written to."""
    names = [path.relative_to(_SEEDS / target) for path in _seed_files(target)]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    # The others stay as they are: one damaged file in an environment.
    shutil.copytree(_SEEDS / target, folder, dirs_exist_ok=True)

    def call(data: bytes) -> object:
        name = names[data[0] % len(names) if data else 0]
        (folder / name).write_bytes(data[1:])
        try:
            return read(folder / name)
        finally:
            shutil.copyfile(_SEEDS / target / name, folder / name)

    return call, [bytes([number]) + seed for number, seed in enumerate(_seeds(target))]


# Nothing that is damaged names a host that is then asked.
os.environ["GIT_ALLOW_PROTOCOL"] = "file"
MACHINE = envsolve.describe_target(_TARGET)
CATALOGUE = Catalogue()


def _project(path: Path) -> None:
    if path.suffix in (".yml", ".yaml", ".toml") and path.name != "pyproject.toml":
        machine = assumed(MACHINE.platform)
        environment = Environment.of(envsolve.Machine(platform=machine), "3.12")
        read_asked((), (path,), (), CATALOGUE.conda_names, environment)
    else:
        project = load_project(path.parent)
        ask_project(project, (), ())


def _lock(path: Path) -> None:
    for read in (
        lambda: envsolve.describe(envsolve.check_lock([path], [MACHINE])),
        lambda: read_conda_lock(path) if path.suffix in (".lock", ".txt") else read_lock(path),
        lambda: compare_files(path, path),
        lambda: recall(path),
        lambda: read_plan(path),
    ):
        with _own_errors():
            read()


def _plan(data: bytes) -> None:
    plan = envsolve.Plan.from_json(data)
    for form in _FORMATS:
        with _own_errors():
            text = envsolve.render(plan, form)
            if any(line.startswith(_FOREIGN) for line in text.splitlines()):
                raise AssertionError(f"a text became a line of {form}")


def _fleet(path: Path) -> None:
    for read in (
        lambda: fleet_words(read_inventory(path.parent)),
        lambda: choose(read_fleet_plan(path.parent), "gpu01", MACHINE).environment(path.parent),
        lambda: Profiles().read(path.read_bytes(), path.name),
        lambda: read_report(path),
    ):
        with _own_errors():
            read()


@contextmanager
def _own_errors(*more: type[Exception]) -> Iterator[None]:
    """Errors that a reader documents are no failures, and what comes after it is tried all the same."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (*_OWN, *more)):
            raise


def _page(data: bytes) -> None:
    kind = "text/html" if data[:1] == b"<" else "application/vnd.pypi.simple.v1+json"
    for file in read_page(data, kind, "https://example.org/simple/demo/", "https://example.org/simple", "demo"):
        repr(file)


def _metadata(data: bytes) -> None:
    with _own_errors(ValueError):
        parse_metadata(data)
    with _own_errors(ValueError):
        parse_metadata(data, sdist=True)
    parse_requires_txt(data.decode("utf-8", "replace"))


def _archive(data: bytes) -> None:
    name = "demo-1.0.tar.gz" if data[:2] == b"\x1f\x8b" else "demo-1.0-py3-none-any.whl"
    with _own_errors(*ARCHIVE_ERRORS):
        sdist_metadata(io.BytesIO(data), name) if name.endswith("gz") else wheel_metadata(io.BytesIO(data), name)
    with _own_errors():
        envsolve.describe(measure(io.BytesIO(data), name))


def _binary(data: bytes) -> None:
    with _own_errors():
        envsolve.describe(measure(io.BytesIO(data), "lib.so"))
    read_pe(io.BytesIO(data), "lib.dll")


def _environment(path: Path) -> None:
    prefix = next(parent for parent in path.parents if parent.name.startswith("fuzz-"))
    read_outline(prefix, {})
    with _own_errors():
        # A catalogue of its own for each call, and a search of PATH, would take half of the time.
        envsolve.describe(answer("", (MACHINE,), None, prefix, CATALOGUE, {}))
    with _own_errors():
        read_record(prefix)
    with _own_errors():
        last(prefix)


@cache
def _judged(package: str) -> tuple[Offer, ...]:
    """The builds of a package, judged once: three quarters of the time of a Dockerfile, and none of it is damaged."""
    return offers(package, (in_container(as_judged(MACHINE, None, CATALOGUE.drivers)),), CATALOGUE)


def _dockerfile(path: Path) -> None:
    with mock.patch.object(dockerfile, "offers", lambda package, *_: _judged(package)):
        envsolve.describe(dockerfile.check_dockerfile(read_file(path), (MACHINE,), CATALOGUE, path.parent))


def _reports() -> list[bytes]:
    lines = (_ROOT / "tests/cases/reports.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [value for line in lines for value in json.loads(line).values() if isinstance(value, str)]
    return [text.encode() for text in texts if len(text) > 200]


def _archives() -> list[bytes]:
    with_code = {"demo/_C.so": elf(tail=container(entry(CUBIN, 90))), "demo/version.py": b"__version__ = '1.0'\n"}
    return [wheel("demo", "1.0", with_code, requires=["torch>=2"]), make_sdist("demo", "1.0", requires=["torch"])]


def _text(read: Callable[[str], object]) -> Reader:
    return lambda data: read(data.decode("utf-8", "replace"))


def _targets() -> dict[str, tuple[Reader, list[bytes]]]:
    machines = [path.read_bytes() for path in (_ROOT / "tests/recorded").glob("*.json")]
    recorded = [envsolve.to_json(MACHINE).encode(), *machines]
    libraries = [elf(needed=["libcudart.so.12"], tail=container(entry(CUBIN, 90))), pe(["cudart64_12.dll"])]
    return {
        "machine": (lambda data: envsolve.describe(parse_machine(data)), recorded),
        "target": (_text(envsolve.describe_target), _seeds("target")[0].splitlines()),
        "requirements": _in_files("requirements", lambda path: read_requirements((), (path,))),
        "project": _in_files("project", _project),
        "lock": _in_files("lock", _lock),
        "plan": (_plan, _seeds("plan")),
        "fleet": _in_files("fleet", _fleet),
        "log": (lambda data: envsolve.describe(answer(data, (MACHINE,), None, None, CATALOGUE, {})), _reports()),
        "dockerfile": _in_files("dockerfile", _dockerfile),
        "page": (_page, _seeds("page")),
        "metadata": (_metadata, _seeds("metadata")),
        "archive": (_archive, _archives()),
        "binary": (_binary, libraries),
        "environment": _in_files("environment", _environment),
    }


class _TooSlowError(BaseException):
    """A call took longer than it may."""


def _slow(*_: object) -> None:
    raise _TooSlowError


def _place(error: BaseException) -> str:
    """The kind of a failure: its type and the last line of envsolve in it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/envsolve/" in frame.filename]
    where = f"{frames[-1].filename.partition('/envsolve/')[2]}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}"


def tried(reader: Reader, data: bytes) -> BaseException | None:
    """The foreign exception with which a reader ends, if it does."""
    # Of work, since the machine may be busy; and a call that waits does none.
    signal.signal(signal.SIGPROF, _slow)
    signal.signal(signal.SIGALRM, _slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(_WAIT)
    try:
        reader(data)
    except _OWN:
        pass
    except (Exception, _TooSlowError) as error:
        return error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    return None


def mutation(name: str, seeds: Sequence[bytes], number: int) -> bytes:
    """The input of a number."""
    random = Random(f"{name} {number}")
    seed = random.choice(seeds)
    if seed[:2] == b"PK" and random.random() < 0.7:
        return _zip_of(seed, random)
    data = mutated(seed, seeds, random)
    # The first byte chooses the file that the rest is written to, and the kind of a page.
    return seed[:1] + data[1:] if seed[:1] < b"\x20" else data


def fuzz(name: str, mutations: int, minutes: float | None, first: int = 0) -> int:
    """Try mutations of a target; print and keep what fails; return how many kinds do."""
    reader, seeds = _targets()[name]
    for seed in seeds:
        if (error := tried(reader, seed)) is not None:
            raise AssertionError(f"{name}: a seed fails") from error
    found: dict[str, int] = {}
    start, slowest, number = time.monotonic(), (0.0, first), first
    until = start + 60 * minutes if minutes else None
    while time.monotonic() < until if until else number < first + mutations:
        data, before = mutation(name, seeds, number), time.process_time()
        error = tried(reader, data)
        slowest = max(slowest, (time.process_time() - before, number))
        kind = _place(error) if error is not None else ""
        if error is not None and kind not in found and len(found) < _KINDS:
            folder = _ROOT / "build/fuzz" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(number)).write_bytes(data)
            print(f"{name} {number}: {kind}: {str(error)[:200]}", flush=True)
            found[kind] = number
        number += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if memory > MEMORY:
        found["memory"] = memory
    seconds = time.monotonic() - start
    figures = f"slowest {slowest[0]:.1f} s (number {slowest[1]}), {memory >> 20} MiB, {len(found)} kinds of failures"
    print(f"{name}: {number - first} mutations in {seconds:.0f} s, {figures}", flush=True)
    return len(found)


def main(words: Sequence[str] | None = None) -> int:
    """Run the targets, one after the other; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=str(__doc__).partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, unless named")
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, help="for each target, instead of --mutations")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--again", type=int, metavar="N", help="repeat one mutation of one target, with its traceback")
    given = parser.parse_args(words)
    names = given.targets or list(_targets())
    if given.again is not None:
        reader, seeds = _targets()[names[0]]
        data = mutation(names[0], seeds, given.again)
        print(data[:2000])
        reader(data)
        return 0
    return int(sum(fuzz(name, given.mutations, given.minutes, given.first) for name in names) > 0)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
    sys.exit(main())

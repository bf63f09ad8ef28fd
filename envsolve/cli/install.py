"""``envsolve install``: make an environment from requirements or a lock, and verify it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import envsolve
from envsolve.cli.options import DEFAULT_PREFIX, Asked, argument, option, path, python_version
from envsolve.cli.output import SETTINGS, remark
from envsolve.cli.plan import show_impossible, tell
from envsolve.errors import ImpossibleError, UsageError
from envsolve.system import progress
from envsolve.system.files import is_file, is_there

if TYPE_CHECKING:
    from envsolve.install.errors import Step
    from envsolve.planning.plan import Plan


def command(
    what: Annotated[
        list[str] | None,
        argument(
            metavar="REQ|LOCKFILE", help="Requirements, or one lock file: pylock.toml, or an explicit conda .lock."
        ),
    ] = None,
    prefix: Annotated[
        Path, path("--prefix", metavar="DIR", help="Directory of the environment (default: .venv).")
    ] = DEFAULT_PREFIX,
    asked: Asked = Asked(),
    no_verify: Annotated[bool, option("--no-verify", help="Skip verification.")] = False,
) -> None:
    """Make an environment and verify it.

    Installs requirements, or a lock file, into a directory. If a check fails, nothing is installed.
    """
    manager = asked.manager_for()
    lock = _lock_among(what or [])
    if lock is not None and asked.plans:
        raise UsageError("a lock file already determines what is installed", hint="leave out the options for planning")
    source: Path | Plan
    if lock is not None:
        machine, source = envsolve.detect(), lock
    else:
        request = asked.request(what)
        machine = envsolve.detect()
        source = envsolve.plan(request, (machine,))
        if source.status == "impossible":
            show_impossible(source)
            raise typer.Exit(ImpossibleError.exit_code)
        tell(source)
    done = envsolve.install(
        source,
        prefix,
        manager=manager,
        python=python_version(asked.python),
        groups=(asked.group or ()) if lock is not None else (),
        machine=machine,
        check=not no_verify,
        progress=ShownSteps(),
    )
    for warning in done.warnings:
        remark(f"note: {warning}")
    remark(f"ready: {done.python}")


# Lines of uv and pip about a download: "Downloading torch (846.4MiB)", " Downloaded torch",
# "Downloading torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl (899.8 MB)"; and uv's when all files are there.
_SIZE = r"(?P<size>[\d.]+) ?(?P<unit>[KMG]i?B|kB)"
_DOWNLOADING = re.compile(rf"\s*Downloading (?P<name>\S+) \({_SIZE}\)")
_DOWNLOADED = re.compile(r"\s*Downloaded (?P<name>\S+)$")
_COMPLETE = re.compile(r"\s*(Prepared \d+ packages?|Installing collected packages)\b")
# Their progress bars: uv draws one for every file under "Preparing packages... (3/38)", and pip one for its only file.
_UV_FRAME = re.compile(r"Preparing packages\.\.\. \(|[^\s-]\s+-{10,}\s")
_UV_BAR = re.compile(rf"(?P<name>[\w.-]*\w)\s+-{{10,}}\s+(?P<done>[\d.]+) ?(?P<part>[KMG]iB|B)/{_SIZE}")
_PIP_BAR = re.compile(rf"(?:^|\s)(?P<done>[\d.]+)/{_SIZE} ")
_SCALES = {"B": 1, "KiB": 2**10, "kB": 10**3, "MiB": 2**20, "MB": 10**6, "GiB": 2**30, "GB": 10**9}


@dataclass
class _Download:
    """A file on its way: its size, the bytes that came, and the clock when it was first seen."""

    size: int
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def described(self, name: str, *, with_rate: bool) -> str:
        """``torch (412 MB of 846 MB, 40 MB/s, 11 s left)``."""
        seconds = time.monotonic() - self.began
        size = progress.format_size(self.size)
        if not self.done or seconds < 1:
            return f"{name} ({size})"
        rate = self.done / seconds
        left = f"{progress.format_time(max(self.size - self.done, 0) / rate)} left"
        speed = f"{progress.format_size(int(rate))}/s, " if with_rate else ""
        return f"{name} ({progress.format_size(self.done)} of {size}, {speed}{left})"


class ShownSteps:
    """Shows the steps of an install: a line for each, and the bytes that are downloaded."""

    def __init__(self) -> None:
        self._files: dict[str, _Download] = {}  # on their way
        self._finished = self._counted = 0  # bytes of the files before them, and the bytes that are shown

    def __call__(self, step: Step) -> None:
        """Show one step."""
        if step.stage == "output":
            if SETTINGS.verbose:
                progress.say(step.text)
            self._read(step.text)
            return
        if step.stage == "download":
            self._read_bars(step.text)
            return
        if step.stage == "done" or SETTINGS.verbose or not progress.is_live():
            progress.say(step.text)
        progress.phase("" if step.stage == "done" else step.text, step.size, in_bytes=step.size is not None)
        self._files, self._finished, self._counted = {}, 0, 0

    def _read(self, line: str) -> None:
        """Count what a line of the package manager says is downloaded."""
        if found := _DOWNLOADING.match(line):
            name = found["name"]
            if name.endswith((".whl", ".tar.gz", ".zip")):  # pip, which downloads one file after the other
                self._finish(*self._files)
                name = name.rpartition("/")[2].split("-")[0]
            self._files[name] = _Download(_bytes(found["size"], found["unit"]))
            self._show()
        elif found := _DOWNLOADED.match(line):
            self._finish(found["name"])
        elif _COMPLETE.match(line):
            self._finish(*self._files)
            progress.phase("moving the files into place")

    def _read_bars(self, text: str) -> None:
        """Count what progress bars show; of uv's, a file that has no bar any more is complete."""
        if _UV_FRAME.search(text):
            bars = {bar["name"]: bar for bar in _UV_BAR.finditer(text)}
            self._finish(*(self._files.keys() - bars.keys()))
            for name, bar in bars.items():
                file = self._files.setdefault(name, _Download(_bytes(bar["size"], bar["unit"])))
                file.done = max(file.done, _bytes(bar["done"], bar["part"]))
        elif (found := _PIP_BAR.search(text)) and self._files:
            file = next(reversed(self._files.values()))
            file.done = max(file.done, min(_bytes(found["done"], found["unit"]), file.size))
        self._show()

    def _finish(self, *names: str) -> None:
        for name in names:
            if file := self._files.pop(name, None):
                self._finished += file.size
        self._show()

    def _show(self) -> None:
        """Count bytes, and name the files on their way, the largest first."""
        largest = sorted(self._files.items(), key=lambda one: -one[1].size)
        # The rate of the only file is that of all of them, which the line has already.
        files = [file.described(name, with_rate=len(largest) > 1) for name, file in largest]
        total = self._finished + sum(file.done for file in self._files.values())
        progress.advance(total - self._counted, f"downloading {', '.join(files)}" if files else "")
        self._counted = total


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _SCALES[unit])


def _lock_among(words: list[str]) -> Path | None:
    """Return the lock file among the arguments, if there is one.

    Raises:
        UsageError: It is beside other arguments, or does not exist.
    """
    locks = [word for word in words if _names_lock(Path(word))]
    if not locks:
        return None
    if len(words) > 1:
        raise UsageError("a lock file cannot be combined with requirements", hint="leave out the other requirements")
    path = Path(locks[0])
    if path.suffix == ".toml" and not path.name.startswith("pylock."):
        raise UsageError(f"{path}: the name of a lock file must be pylock.toml or pylock.NAME.toml", hint="rename it")
    if is_there(path) and not is_file(path):
        raise UsageError(f"{path} is not a file", hint="give a lock file")
    if not is_file(path):
        name = "pylock.toml" if path.suffix == ".toml" else "conda-linux-64.lock"
        raise UsageError(f"there is no {path}", hint=f"create it with: envsolve plan REQ... -o {name}")
    return path


def _names_lock(path: Path) -> bool:
    """Whether an argument means a lock: of wheels (``.toml``), or of conda packages (``.lock``, a text file)."""
    if path.suffix == ".toml":
        return path.name != "pyproject.toml"
    return path.suffix == ".lock" or (path.suffix == ".txt" and is_file(path))

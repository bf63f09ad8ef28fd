"""The checks of an environment together with those of its installed files, which explain why another check fails.

A truncated library ends a check by SIGBUS, and one with other bytes may give any error or wrong values. The texts of
such failures do not name the file; the comparison with RECORD does.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from envsolve.binaries.names import LIBRARY_FILE
from envsolve.environment.installed import Compared, Comparison, Damage, Package, compare, packages_of_stack
from envsolve.environment.layout import Layout, prefix_of, read_layout
from envsolve.environment.model import Distribution
from envsolve.environment.read import read_distributions
from envsolve.errors import UsageError
from envsolve.system.files import is_file, read_regular
from envsolve.system.progress import phase
from envsolve.verify.report import FILES, Check, Explain, Report, unexplained
from envsolve.verify.runner import run_checks
from envsolve.verify.scripts import expect_known, find_scripts
from envsolve.verify.target import find_target

#: The code of the root cause: files of a package are gone, or are not those of the package.
_CAUSE = "lock-incomplete"
_NAMED = 8
#: The checks of a full ladder take as long on a fast machine; what is not hashed by then waits for a slow disk.
_HASH_SECONDS = 20.0
#: Python imports these before every program, where they may replace anything.
_CUSTOMIZE = ("sitecustomize.py", "usercustomize.py")
#: A line of a ``.pth`` file that Python runs (documentation of the module ``site``).
_RUNS = re.compile(rb"(?m)^import[ \t]")
#: virtualenv and uv write it into each environment, and no record lists it.
_OF_TOOLS = "_virtualenv.pth"


@dataclass(frozen=True, slots=True)
class Files:
    """The input of a comparison, and everything else that decides what a program of the environment runs.

    Attributes:
        packages: Those that GPU programs run on.
        foreign: Lines about a torch that hides the installed one.
        unlisted: Libraries beside those of these packages, of no package themselves.
        customize: Modules that run before every program.
        unread: Why nothing was read: the interpreter belongs to no environment.
    """

    packages: tuple[Package, ...] = ()
    foreign: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    customize: tuple[str, ...] = ()
    unread: str | None = None


def read_files(python: Path) -> Files:
    """Read the records of an interpreter's environment."""
    try:
        layout = read_layout(prefix_of(python), os.environ)
    except UsageError as error:
        return Files(unread=error.message)
    distributions = tuple(found for site in layout.sites for found in read_distributions(Path(site.path)))
    built_on_torch = {one.name for one in distributions if _is_extension(one)}
    packages = packages_of_stack(layout.prefix, distributions, built_on_torch, uv=layout.kind == "uv")
    return Files(
        packages,
        foreign=tuple(_hidden(layout, distributions)),
        unlisted=tuple(_unlisted(packages, distributions)),
        customize=tuple(_customizing(layout, distributions)),
    )


def _unlisted(packages: Sequence[Package], distributions: Sequence[Distribution]) -> Iterator[str]:
    """Libraries that no record lists, in directories in which wheels of the GPU stack have libraries.

    What an earlier release or a copy by hand left there is found by torch, which loads ``nvidia/*/lib/lib*.so*`` by
    pattern, and by the RPATH of its neighbours.
    """
    # What a package without a record installed cannot be told from what nobody did.
    sites = {one.site for one in distributions} - {one.site for one in distributions if one.files is None}
    records = [one for package in packages for one in package.records if one.root in sites]
    directories = {Path(one.file).parent for one in records if LIBRARY_FILE.search(one.path)}
    listed = {f"{one.site}/{file}" for one in distributions for file in one.files or ()}
    for directory in sorted(directories):
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            names = sorted(one.name for one in entries if LIBRARY_FILE.search(one.name))
            yield from (path for name in names if (path := str(directory / name)) not in listed)


def _customizing(layout: Layout, distributions: Sequence[Distribution]) -> Iterator[str]:
    """Modules, and ``.pth`` files of no package, that Python runs when it starts."""
    for site in (Path(site.path) for site in layout.sites if site.origin != "system"):
        yield from (str(path) for name in _CUSTOMIZE if is_file(path := site / name))
        listed = {file for one in distributions if one.site == str(site) for file in one.files or ()}
        for path in sorted(site.glob("*.pth")):
            with contextlib.suppress(OSError):
                if path.name not in {*listed, _OF_TOOLS} and _RUNS.search(read_regular(path)):
                    yield str(path)


def _is_extension(distribution: Distribution) -> bool:
    on_torch = any(line.startswith("torch") for line in distribution.requires)
    return on_torch and any(map(LIBRARY_FILE.search, distribution.files or ()))


def _hidden(layout: Layout, distributions: Sequence[Distribution]) -> Iterator[str]:
    """A ``torch`` directory that comes first on the path, and is not the one that metadata describes."""
    installed = next((one for one in distributions if one.name == "torch"), None)
    first = next((site for site in layout.sites if is_file(Path(site.path, "torch/__init__.py"))), None)
    if installed and first and first.path != installed.site:
        yield f"{first.path}/torch is imported ({first.origin}) instead of {installed.label} in {installed.site}"


def check_files(python: Path, *, hashes: bool = False) -> Check:
    """Compare the installed files of the GPU stack with their records."""
    files = read_files(python)
    return _judged(files, compare(files.packages, hashes=hashes))


def _judged(files: Files, compared: Compared) -> Check:
    seconds = round(compared.seconds, 3)
    if files.unread:
        return Check(FILES, None, "skip", seconds, files.unread)
    faults = [package for package in files.packages if package.fault]
    if compared.damages or files.foreign or faults:
        unread = [f"{one.fault}, so the files of {one.label} cannot be compared" for one in faults]
        fixes = [f"fix: {one.again}" for one in faults]
        lines = [*files.foreign, *unread, *fixes, *_lines(compared.damages), *_of_no_package(files)]
        return Check(FILES, None, "fail", seconds, "\n".join(lines), _CAUSE if compared.damages or faults else None)
    count = sum(len(package.records) for package in files.packages)
    if not count:
        return Check(FILES, None, "skip", seconds, "no package of the GPU stack has a record of its files")
    words = f"{count} files of {len(files.packages)} packages have their sizes"
    hashed, left = compared.hashed, compared.left
    if left[0]:
        words += f"; {hashed[0]} of them ({_gib(hashed)}) have their hashes, and {left[0]} ({_gib(left)}) were not"
        words += f" hashed within {_HASH_SECONDS:g} s: --hashes compares all"
    elif hashed[0]:
        words += f" and hashes ({_gib(hashed)})"
    return Check(FILES, None, "pass", seconds, "\n".join([words, *_of_no_package(files)]))


def _of_no_package(files: Files) -> Iterator[str]:
    yield from (f"{path} belongs to no installed package" for path in files.unlisted[:_NAMED])
    if len(files.unlisted) > _NAMED:
        yield f"and {len(files.unlisted) - _NAMED} more libraries of no package"


def _gib(counted: tuple[int, int]) -> str:
    return f"{counted[1] / (1 << 30):.1f} GiB"


def _lines(found: Sequence[Damage]) -> Iterator[str]:
    # Libraries first: what runs on the GPU is in them, and a list of a thousand sources would hide one.
    ordered = sorted(found, key=lambda one: not LIBRARY_FILE.search(one.file))
    yield from (one.text for one in ordered[:_NAMED])
    if len(ordered) > _NAMED:
        yield f"and {len(ordered) - _NAMED} more files"
    yield from (f"fix: {command}" for command in dict.fromkeys(one.package.again for one in ordered))


def check_here(
    python: str | os.PathLike[str],
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    quick: bool = False,
    hashes: bool = False,
    explain: Explain = unexplained,
) -> Report:
    """Check an environment on the GPUs of this machine, its installed files first.

    If a check fails, what is damaged is the failure's cause.

    Args:
        python: The environment's interpreter.
        time_limit: Seconds for each check.
        only: Names of the checks to run; all if empty.
        quick: Whether to run only the fastest and most useful checks.
        hashes: Whether to compare all hashes. Otherwise, without ``quick``, as many as are read beside the checks or
            within 20 s, and all if a check fails.
        explain: Finds the root cause of a failure in its text.

    Raises:
        UsageError: As :func:`run_checks`.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    names = [script.name for script in find_scripts() if script.runs_on != "architecture"]
    expect_known(only, [FILES, *names], "--compile-only has others, for named GPUs")
    others = [name for name in only if name != FILES]
    target = find_target(python, time_limit, None)  # refuses what is no Python before anything is read
    started, wanted = time.monotonic(), FILES in only or not only
    hashing = wanted and (hashes or not quick)
    with _compared_beside(target.python if wanted else None, hashing=hashing) as comparing:
        if others or not only:
            ran = run_checks(target, only=others, quick=quick, explain=explain)
        else:
            ran = Report(python=str(target.python), versions=target.versions)
        phase("hashing installed files" if hashing else "")
        files, comparison = comparing.result()
        compared = comparison.finish(None if hashes or ran.failed else _HASH_SECONDS)
    if ran.failed and not hashing:
        files = files if wanted else read_files(target.python)
        compared = compare(files.packages, hashes=True)
    if ran.failed:
        ran = replace(ran, checks=tuple(_explained(ran.checks, files, compared)))
    first = [_judged(files, compared)] if wanted or compared.damages else []
    return replace(ran, checks=(*first, *ran.checks), seconds=round(time.monotonic() - started, 3))


@contextlib.contextmanager
def _compared_beside(python: Path | None, *, hashing: bool) -> Iterator[Future[tuple[Files, Comparison]]]:
    """Read and compare the files of an interpreter's environment, of none if it is None, beside the checks.

    Reading the records takes half a second. Hashing 5 GB takes a core 3 to 5 s, and reading them from a slow disk far
    longer.
    """

    def compared() -> tuple[Files, Comparison]:
        files = read_files(python) if python else Files()
        return files, Comparison(files.packages, hashes=hashing)

    with ThreadPoolExecutor(1) as pool:
        comparing = pool.submit(compared)
        try:
            yield comparing
        finally:
            if comparing.exception() is None:
                comparing.result()[1].stop()


def _explained(checks: Sequence[Check], files: Files, compared: Compared) -> Iterator[Check]:
    """Checks with damaged files as the cause of their failures."""
    notes = [*files.foreign, *_lines(compared.damages), *_of_no_package(files)]
    notes += [f"{path} runs before every program of this environment" for path in files.customize]
    cause = _CAUSE if compared.damages else None
    for one in checks:
        failed = one.status == "fail"
        yield replace(one, detail="\n".join([one.detail, *notes]), cause=cause or one.cause) if failed else one

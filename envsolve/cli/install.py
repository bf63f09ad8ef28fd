"""``envsolve install``: a plan or a lock made into an environment, and proved."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

import envsolve
from envsolve.cli import options
from envsolve.cli import plan as planning
from envsolve.cli.declare import argument, option
from envsolve.cli.output import SETTINGS, remark
from envsolve.errors import ImpossibleError, UsageError
from envsolve.system.files import is_file, is_there

if TYPE_CHECKING:
    from envsolve.planning.plan import Plan


def command(
    prefix: Annotated[Path, option("--prefix", metavar="DIR", help="Where the environment is to stand.")],
    what: Annotated[
        list[str] | None,
        argument(metavar="REQ|LOCKFILE", help="Requirements, or one lock: pylock.toml, conda's .lock."),
    ] = None,
    files: planning.Files = None,
    constraints: planning.Constraints = None,
    extras: planning.Extras = None,
    groups: Annotated[
        list[str] | None,
        option("--group", metavar="NAME", help="A dependency group of the project, or of the lock."),
    ] = None,
    python: options.PythonVersion = None,
    cuda: planning.Cuda = "auto",
    manager: options.ManagerName = None,
    channel: options.ChannelNames = None,
    no_verify: Annotated[bool, option("--no-verify", help="Put it in place without proving it.")] = False,
    exclude_newer: planning.ExcludeNewer = None,
    prereleases: planning.Prereleases = False,
    index_url: planning.IndexUrl = None,
    extra_index_url: planning.ExtraIndexUrls = None,
    offline: planning.Offline = False,
) -> None:
    """Make an environment and prove it.

    Installs requirements, or a lock file, into a prefix. Nothing is put in place that fails its checks.
    """
    from envsolve.install.errors import shown_on, silent

    manager = options.manager_for(manager, None, files, channel)
    lock = _lock_among(what or [])
    if lock is not None:
        beside = (files, constraints, extras, exclude_newer, prereleases, index_url, extra_index_url, offline, channel)
        if any(beside) or cuda != "auto":
            raise UsageError("a lock file says itself what is installed", hint="leave out the options that plan")
    flavour = options.cuda_flavour(cuda)
    version = options.python_version(python)
    machine = envsolve.detect()
    source: Path | Plan
    if lock is not None:
        source = lock
    else:
        planning.check_asked(what, files)
        request = envsolve.Request(
            what or (),
            files=files or (),
            constraints=constraints or (),
            extras=extras or (),
            groups=groups or (),
            python=version,
            cuda=flavour,
            exclude_newer=exclude_newer,
            prereleases=prereleases,
            index_url=index_url,
            extra_index_urls=extra_index_url or (),
            offline=offline,
            manager=manager,
            channels=channel or (),
        )
        source = envsolve.plan(request, (machine,))
        if source.status == "impossible":
            planning.show_impossible(source)
            raise click.exceptions.Exit(ImpossibleError.exit_code)
        planning.tell(source)
    shown = nullcontext(silent) if SETTINGS.quiet else shown_on(sys.stderr, verbose=SETTINGS.verbose)
    with shown as progress:
        done = envsolve.install(
            source,
            prefix,
            manager=manager,
            python=version,
            groups=(groups or ()) if lock is not None else (),
            machine=machine,
            check=not no_verify,
            progress=progress,
        )
    for warning in done.warnings:
        remark(f"note: {warning}")
    remark(f"ready: {done.python}")


def _lock_among(words: list[str]) -> Path | None:
    """The lock file that the arguments name, if they name one.

    Raises:
        UsageError: A lock file stands beside other arguments, or does not exist.
    """
    locks = [word for word in words if _names_lock(Path(word))]
    if not locks:
        return None
    if len(words) > 1:
        raise UsageError("a lock file is installed alone", hint="leave out the other requirements")
    path = Path(locks[0])
    if path.suffix == ".toml" and not path.name.startswith("pylock."):
        raise UsageError(f"{path}: a lock file is named pylock.toml or pylock.NAME.toml", hint="rename it")
    if is_there(path) and not is_file(path):
        raise UsageError(f"{path} is no file")
    if not is_file(path):
        name = "pylock.toml" if path.suffix == ".toml" else "conda-linux-64.lock"
        raise UsageError(f"there is no {path}", hint=f"make it with: envsolve plan REQ... -o {name}")
    return path


def _names_lock(path: Path) -> bool:
    """Whether an argument is meant as a lock: of wheels (``.toml``), or of conda packages (``.lock``, a text file)."""
    if path.suffix == ".toml":
        return path.name != "pyproject.toml"
    return path.suffix == ".lock" or (path.suffix == ".txt" and is_file(path))

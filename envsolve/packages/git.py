"""Read one commit of a git repository with git itself; nothing is checked out or run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from envsolve.packages.urls import redact, without_logins
from envsolve.system.processes import capture

_SECONDS = 300.0
_DEFAULT = "HEAD"
_SHOWN = 4
# A prompt would wait for ever for somebody who is not there; a server that sends nothing is given up.
_UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_OPTIONS = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30", "-c", "gc.auto=0")


class GitError(Exception):
    """The repository, or a revision of it, cannot be read; the text says why."""


class NoGitError(GitError):
    """git itself is not here."""


class RevisionError(GitError):
    """The repository was reached and has no such revision.

    Attributes:
        near: Branches and tags that it has, those of similar names first; a few.
    """

    def __init__(self, message: str, near: tuple[str, ...]) -> None:
        super().__init__(message)
        self.near = near


class Commit:
    """One commit of a repository that was fetched, as long as the block of :func:`fetched` lasts."""

    def __init__(self, git: _Git, identity: str) -> None:
        self.identity = identity
        self._git = git

    def read(self, path: str) -> bytes | None:
        """A file's content; None where it is not there.

        Raises:
            GitError: It is there, and cannot be had.
        """
        if self._git("ls-tree", self.identity, "--", path).split(b" ")[1:2] != [b"blob"]:
            return None
        return self._git("cat-file", "blob", f"{self.identity}:{path}")


@contextmanager
def fetched(repository: str, revision: str | None, environ: Mapping[str, str] = os.environ) -> Iterator[Commit]:
    """Fetch one revision of a repository for the time of the block.

    Args:
        repository: An address that git takes.
        revision: A branch, a tag, another ref, or a commit, also an abbreviated one; None for the default branch.
        environ: Variables of git, whose configuration (credentials, proxies) is the user's own.

    Raises:
        GitError: git is not here (:class:`NoGitError`), the repository cannot be reached, or it has no such revision
            (:class:`RevisionError`).
    """
    program = shutil.which("git", path=environ.get("PATH"))
    if program is None:
        raise NoGitError("git is not on this machine")
    with tempfile.TemporaryDirectory(prefix="envsolve-git-") as folder:
        git = _Git(program, Path(folder), _with_remote(repository, environ))
        git("init", "--quiet", "--bare")
        # Files are fetched as they are read, where the server lets them be left out: some repositories hold gigabytes.
        for name, value in (("promisor", "true"), ("partialclonefilter", "blob:none")):
            git("config", f"remote.origin.{name}", value)
        yield Commit(git, _fetch(git, repository, revision or _DEFAULT))


def _with_remote(repository: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of git with the address of the repository: everybody here could read a password in its words."""
    number = int(count) if (count := environ.get("GIT_CONFIG_COUNT", "0")).isdigit() else 0
    told = {f"GIT_CONFIG_KEY_{number}": "remote.origin.url", f"GIT_CONFIG_VALUE_{number}": repository}
    return {**environ, **told, "GIT_CONFIG_COUNT": str(number + 1)}


def _fetch(git: _Git, repository: str, revision: str) -> str:
    """Fetch a revision as shallow as may be; its commit."""
    begin = ("fetch", "--quiet", "--no-tags", "--filter=blob:none")
    try:
        git(*begin, "--depth=1", "origin", revision)
        found = "FETCH_HEAD"
    except GitError as error:
        if revision == _DEFAULT or "couldn't find remote ref" not in str(error):
            raise
        # An abbreviated commit: servers give those that they are named in full alone.
        git(*begin, "origin", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        found = revision
    try:
        return git("rev-parse", "--verify", "--quiet", f"{found}^{{commit}}").decode().strip()
    except GitError:
        raise RevisionError(f"{redact(repository)} has no revision {revision}", _near(git, revision)) from None


def _near(git: _Git, revision: str) -> tuple[str, ...]:
    from difflib import get_close_matches

    names = git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/tags").decode().split()
    return tuple(dict.fromkeys((*get_close_matches(revision, names), *names)))[:_SHOWN]


class _Git:
    """The program, in one repository."""

    def __init__(self, program: str, store: Path, environ: Mapping[str, str]) -> None:
        kept = {name: value for name, value in environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
        self._begin = [program, "-C", str(store), *_OPTIONS]
        self._environ = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes", **kept, **_UNATTENDED}

    def __call__(self, *words: str) -> bytes:
        """What a command prints.

        Raises:
            GitError: It fails, or takes too long.
        """
        ended = capture([*self._begin, *words], self._environ, limit=_SECONDS)
        if ended.returncode is None:
            raise GitError(f"git {words[0]} took more than {_SECONDS:.0f} seconds")
        if ended.returncode != 0:
            lines = [line for line in ended.stderr.splitlines() if line.strip()]
            # The last line may be general advice; the first that is fatal says what went wrong.
            said = next((line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))), "git failed")
            raise GitError(without_logins(said))
        return ended.stdout

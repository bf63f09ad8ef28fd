"""Source trees: git repositories and directories, read without running their builds."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from envsolve.errors import UsageError
from envsolve.packages.model import (
    CoreMetadata,
    ProjectTable,
    of_extra,
    parse_metadata,
    requirement_text,
    specifier_text,
)
from envsolve.packages.requirements import Read as ReadFile
from envsolve.packages.setup_files import stated, with_files
from envsolve.packages.urls import Tree, is_of_another_kind, read_address, redact, without_logins
from envsolve.system.files import MAX_BYTES, is_folder, reader
from envsolve.system.processes import capture

# What is known of a source tree.


class Read(msgspec.Struct, frozen=True):
    """A tree with its metadata, of which the version is empty if only its build knows it."""

    tree: Tree
    metadata: CoreMetadata


# What a tree's own files say of it, without its build. Pure.

# A build that imports torch must see the torch that it is for.
# An indented import only looks which torch is installed, unless it is of torch.utils, which makes extensions.
_IMPORTS_TORCH = re.compile(r"^(?:import|from)\s+torch\b|\btorch\.utils\b", re.MULTILINE)


def described(name: str, tree: Tree, read: Callable[[str], bytes | None]) -> Read:
    """A tree with what its files say.

    Args:
        name: The package that was requested, for a tree that does not name itself.
        tree: Where it is.
        read: Gives the content of a file of the project by its path; None if it is not there.

    Returns:
        Metadata of its PKG-INFO (an unpacked sdist) or of ``[project]`` in its pyproject.toml, which is exact unless
        its dependencies are dynamic; without either, what its setup.py and setup.cfg state, which is rarely exact.

    Raises:
        UsageError: No installer could build it: it has neither file, or its pyproject.toml is not TOML.
    """
    project, script = read("pyproject.toml"), read("setup.py")
    if project is None and script is None:
        hint = "add the directory of the project in the repository: #subdirectory=DIRECTORY"
        raise UsageError(f"{_place(tree)} has neither a pyproject.toml nor a setup.py", hint=hint)
    table = _table(project, tree)
    requires = _build_requires(table)
    imported = _IMPORTS_TORCH.search((script or b"").decode("utf-8", "replace"))
    metadata = _unpacked(read("PKG-INFO")) or _declared(table, name, read)
    if metadata is None:
        metadata = stated(name, read)
    needs_torch = imported is not None or any(Requirement(line).name == "torch" for line in requires)
    known = replace(tree, exact=metadata.exact, needs_torch=needs_torch, build_requires=requires)
    return Read(known, metadata)


def _table(text: bytes | None, tree: Tree) -> dict[str, Any]:
    try:
        return msgspec.toml.decode(text or b"", type=dict[str, Any])
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise UsageError(
            f"the pyproject.toml in {_place(tree)} is not TOML: {error}", hint="no installer can build it"
        ) from None


def _place(tree: Tree) -> str:
    return redact(tree.address or "")


def _unpacked(text: bytes | None) -> CoreMetadata | None:
    try:
        return parse_metadata(text, sdist=True) if text else None
    except ValueError:
        return None


def _declared(table: dict[str, Any], name: str, read: ReadFile) -> CoreMetadata | None:
    try:
        project = msgspec.convert(table.get("project"), ProjectTable)
    except msgspec.ValidationError:
        return None
    if project.name is None:
        return None
    project = with_files(project, table.get("tool", {}), read)
    # Dynamic dependencies may still be in the setup.py: the best guess.
    lines = [*(stated(name, read).requires_dist if "dependencies" in project.dynamic else project.dependencies)]
    for extra, more in project.optional_dependencies.items():
        lines += [of_extra(line, extra) for line in more]
    return CoreMetadata(
        project.name or name,
        "" if "version" in project.dynamic else project.version or "",
        tuple(text for text in map(requirement_text, lines) if text),
        specifier_text(project.requires_python),
        tuple(project.optional_dependencies),
        exact="dependencies" not in project.dynamic,
    )


def _build_requires(table: dict[str, Any]) -> tuple[str, ...]:
    """``[build-system] requires``; empty without the table, which means setuptools (PEP 518)."""
    system = table.get("build-system")
    lines = system.get("requires") if isinstance(system, dict) else None
    return tuple(line for line in lines if _is_requirement(line)) if isinstance(lines, list) else ()


def _is_requirement(line: object) -> bool:
    try:
        return isinstance(line, str) and bool(Requirement(line))
    except InvalidRequirement:
        return False


# One commit of a git repository, read with git itself; nothing is checked out or run.

_SECONDS = 300.0
_DEFAULT = "HEAD"
_SHOWN = 4
# A prompt would wait for ever for somebody who is not there; a server that sends nothing is given up.
_UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
_OPTIONS = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=30", "-c", "gc.auto=0")


class GitError(Exception):
    """The repository, or a revision of it, cannot be read; the text says why."""


class NoGitError(GitError):
    """git is not installed."""


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
        """A file's content; None if it is not there.

        Raises:
            GitError: It exists, but cannot be fetched.
        """
        if self._git("ls-tree", self.identity, "--", path).split(b" ")[1:2] != [b"blob"]:
            return None
        if int(self._git("cat-file", "-s", f"{self.identity}:{path}")) > MAX_BYTES:
            raise GitError(f"{path} in it is larger than {MAX_BYTES // 2**20} MiB")
        return self._git("cat-file", "blob", f"{self.identity}:{path}")


@contextmanager
def fetched(repository: str, revision: str | None, environ: Mapping[str, str] = os.environ) -> Iterator[Commit]:
    """Fetch one revision of a repository for the time of the block.

    Args:
        repository: A URL that git takes.
        revision: A branch, a tag, another ref, or a commit, also an abbreviated one; None for the default branch.
        environ: Variables of git, whose configuration (credentials, proxies) is the user's own.

    Raises:
        GitError: git is not here (:class:`NoGitError`), the repository cannot be reached, or it has no such revision
            (:class:`RevisionError`).
    """
    program = shutil.which("git", path=environ.get("PATH"))
    if program is None:
        raise NoGitError("git is not installed on this machine")
    with tempfile.TemporaryDirectory(prefix="envsolve-git-") as folder:
        git = _Git(program, Path(folder), _with_remote(repository, environ))
        git("init", "--quiet", "--bare")
        # Files are fetched as they are read, where the server lets them be left out: some repositories hold gigabytes.
        for name, value in (("promisor", "true"), ("partialclonefilter", "blob:none")):
            git("config", f"remote.origin.{name}", value)
        yield Commit(git, _fetch(git, repository, revision or _DEFAULT))


def _with_remote(repository: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of git with the URL of the repository: everybody here could read a password in its words."""
    number = int(count) if (count := environ.get("GIT_CONFIG_COUNT", "0")).isdigit() else 0
    told = {f"GIT_CONFIG_KEY_{number}": "remote.origin.url", f"GIT_CONFIG_VALUE_{number}": repository}
    return {**environ, **told, "GIT_CONFIG_COUNT": str(number + 1)}


def _fetch(git: _Git, repository: str, revision: str) -> str:
    """Fetch a revision as shallowly as possible; returns its commit."""
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
        """The output of a command.

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


_FORMS = "write git+https://host/repository@revision#subdirectory=directory, or file:///directory"


def read_tree(name: str, url: str, *, offline: bool) -> Read:
    """A tree and its metadata; if it cannot be reached from here, ``tree.unread`` says why.

    Args:
        name: The package that was requested.
        url: Its URL, ``git+https://...`` or ``file:///folder``.
        offline: Whether to ask nothing beyond this machine.

    Raises:
        UsageError: The tree does not exist, or cannot exist: the URL is invalid, the directory or the revision is
            missing, or nothing that could be built is in it.
    """
    tree = read_address(url)
    unknown = CoreMetadata(name, "", exact=False)
    if tree.unread is not None and not is_of_another_kind(url):
        raise UsageError(f"{redact(url)} is not the URL of a source tree: {tree.unread}", hint=_FORMS)
    if tree.unread is not None:
        return Read(tree, unknown)
    if tree.folder is not None:
        project = Path(tree.folder, tree.subdirectory or "")
        if not is_folder(project):
            raise UsageError(f"there is no directory {project} to build {name} from", hint="check the path")
        return described(name, tree, reader(project))
    repository = tree.repository or ""
    if offline and not repository.startswith("file:"):
        return Read(replace(tree, unread="with --offline, repositories are not read"), unknown)
    try:
        with fetched(repository, tree.revision) as commit:
            base = f"{tree.subdirectory}/" if tree.subdirectory else ""
            found = replace(tree, commit=commit.identity)
            return described(name, found, lambda path: commit.read(base + path))
    except RevisionError as error:
        hint = f"it has {', '.join(error.near)}, ..." if error.near else "use its default branch: leave @REVISION out"
        raise UsageError(str(error), hint=hint) from None
    except GitError as error:
        if repository.startswith("file:") and not isinstance(error, NoGitError):
            raise UsageError(f"{repository} cannot be read: {error}", hint="check the path") from None
        return Read(replace(tree, unread=str(error)), unknown)

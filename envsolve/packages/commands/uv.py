"""uv: ``uv pip install``, ``uv pip sync`` and ``uv sync`` print with ``--dry-run`` what they would do."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from envsolve.environment.layout import is_environment, prefix_of
from envsolve.errors import UsageError
from envsolve.packages.commands import Argument, Change, Command, Meaning
from envsolve.packages.commands.pip import Pip
from envsolve.system.files import is_file, is_folder
from envsolve.system.processes import ask

_UNBUILT = ("--no-build", "--no-install-project", "--no-install-workspace", "--no-install-local")
_WITH_DRY_RUN = frozenset({("sync",), ("pip", "sync"), ("pip", "install"), ("pip", "uninstall")})
# What uv 0.4 to 0.13 print for people, since they share no machine-readable form.
_LINE = re.compile(r" ([-+~]) (?P<name>[\w.-]+)==(?P<version>[^\s(]+)")
_PLACE = re.compile(r"(?m)^(?:Using Python \S+|Would use project) environment at: (?P<place>.+)$")
# uv may start several interpreters to find one.
_ASK_SECONDS = 20.0


class Uv(Pip):
    """``uv pip install``, ``sync`` and ``uninstall``, ``uv sync``; the options are those of uv 0.4 to 0.13."""

    name = "uv"
    program = re.compile(r"uv(?:\.exe)?")
    module = "uv"
    groups = frozenset({"pip"})
    # UV_DEFAULT_INDEX in the shell goes before --index-url, and UV_INDEX before --default-index as well. --index goes
    # before both, and leaves what is not on that index to the others (tried with uv 0.13).
    index: tuple[str, Meaning] = ("--index", "indexes")
    valued: Mapping[str, Meaning] = {
        "-r --requirements --requirement": "files",
        "-c --constraints --constraint": "constraints",
        "-e --editable": "editables",
        "--index": "indexes",
        "--index-url -i --default-index": "index_urls",
        "--extra-index-url": "extra_index_urls",
        "--find-links -f": "find_links",
        "--index-strategy": "index_strategy",
        "--torch-backend": "backend",
        "--prefix": "prefix",
        "--target -t": "target",
        "--python -p": "python",
        "--overrides --override --excludes --exclude -b --build-constraints --build-constraint --extra --group "
        "--no-group --only-group --no-extra -P --upgrade-package --upgrade-group --reinstall-package "
        "--keyring-provider --resolution --prerelease --fork-strategy -C --config-setting --config-settings "
        "--config-settings-package --no-build-isolation-package --exclude-newer --exclude-newer-package --link-mode "
        "--refresh-package --no-binary --only-binary --python-version --python-platform --color --directory "
        "--project --config-file --cache-dir --allow-insecure-host --trusted-host --no-sources-package "
        "--no-build-package --no-binary-package --package --no-install-package --script --tag --rev --branch "
        "--platform --python-preference --preview-features": "other",
    }
    flags: Mapping[str, Meaning] = {
        "--no-deps": "no_deps",
        "--upgrade -U": "upgrade",
        "--force-reinstall --reinstall": "force_reinstall",
        "--no-build-isolation": "no_build_isolation",
        "--no-index": "no_index",
        "--pre": "prereleases",
        "--system": "system",
        "--dry-run": "dry_run",
        "--quiet -q": "quiet",
        "-v --verbose --user --all-extras --no-cache -n --no-cache-dir --refresh --require-hashes --no-verify-hashes "
        "--verify-hashes --strict --exact --offline --no-progress --no-config --no-python-downloads "
        "--managed-python --no-managed-python --break-system-packages --compile-bytecode --no-compile-bytecode "
        "--compile --no-compile --no-sources --no-build --native-tls --preview --no-preview --frozen --locked "
        "--inexact --no-sync --dev --no-dev --only-dev --all-groups --no-default-groups --all-packages --active "
        "--no-editable --no-install-project --no-install-workspace --no-install-local --no-binary-all": "other",
    }

    def dry_run(self, command: Command) -> tuple[str, ...] | None:
        """The same command with ``--dry-run``, and without ``--quiet``, which would hide the answer."""
        if command.verb in (("add",), ("remove",)):
            unsynced = replace(command, arguments=(Argument("--no-sync", "other"), *command.arguments))
            raise UsageError(
                f"uv {command.verb[0]} has no dry run",
                hint="change only the project first, then check the change of its "
                f"environment: {shlex.join(unsynced.words)} && envsolve guard -- uv sync",
            )
        if command.verb not in _WITH_DRY_RUN or command.has("dry_run"):
            return None
        loud = replace(command, general=tuple(o for o in command.general if o.meaning != "quiet")).without("quiet")
        return loud.adding(Argument("--dry-run", "dry_run")).words

    def from_wheels(self, command: Command) -> Command | None:
        """Of ``uv sync``, without what is built: the project, its workspace, local trees (uv 0.9) and archives."""
        if command.verb != ("sync",):
            return super().from_wheels(command)
        return command.adding(*(Argument(option, "other") for option in _UNBUILT if option not in command.words))

    def prefix(self, command: Command, environ: Mapping[str, str]) -> Path | None:
        """The environment of ``uv pip``: the one that is named, the active one, or ``.venv`` here or above.

        Raises:
            UsageError: No environment is active or named.
        """
        if command.verb == ("sync",):
            return None
        elsewhere = command.value("prefix")
        if elsewhere:
            return Path(elsewhere)
        named = command.value("python") or environ.get("UV_PYTHON")
        if named:
            return Path(named) if is_folder(Path(named)) else prefix_of(_program(named, environ))
        if command.has("system") or environ.get("UV_SYSTEM_PYTHON"):
            return prefix_of(_program("python3", environ))
        active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX")
        here = Path.cwd()
        near = (directory / ".venv" for directory in (here, *here.parents))
        found = Path(active) if active else next((place for place in near if is_environment(place)), None)
        if found is None:
            hint = "give the environment: uv pip install --python DIR"
            raise UsageError("no environment is active, and .venv does not exist", hint=hint)
        return found

    def read_dry_run(self, out: str, err: str) -> tuple[Path | None, tuple[Change, ...]]:
        """Read the lines `` - torch==2.6.0``, `` + torch==2.7.0`` and `` ~ torch==2.7.0`` on standard error."""
        if not re.search(r"(?m)^(?:Would|Audited|Resolved|Checked|Found up-to-date|Discovered)\b", err):
            raise ValueError("the output does not say what the command would do")
        removed, installed = {}, {}
        for line in err.splitlines():
            if match := _LINE.match(line):
                name = canonicalize_name(match["name"])
                if match[1] in "-~":
                    removed[name] = match["version"]
                if match[1] in "+~":
                    installed[name] = match["version"]
        place = _PLACE.search(err)
        names = {**installed, **removed}
        changes = tuple(Change(name, removed.get(name), installed.get(name)) for name in names)
        return Path(place["place"]) if place else None, changes


def _program(named: str, environ: Mapping[str, str]) -> Path:
    """The interpreter that ``--python`` names: a path, a program, or a version that uv finds."""
    if is_file(Path(named)):
        return Path(named)
    if program := shutil.which(named, path=environ.get("PATH")):
        return Path(program)
    found = ask(["uv", "python", "find", "--no-project", named], environ, limit=_ASK_SECONDS)
    if found is None:
        raise UsageError(f"uv finds no Python {named}", hint="give the environment: uv pip install --python DIR")
    return Path(found.splitlines()[0])


INSTALLER = Uv()

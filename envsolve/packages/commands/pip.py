"""pip: ``pip install`` reports what it would do with ``--dry-run --report`` (pip 22.3 and later)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from envsolve.errors import UsageError
from envsolve.packages.commands import Argument, Change, Command, Meaning
from envsolve.system.files import from_json, is_folder, read_regular, real_path

_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?")
_SHEBANG = re.compile(rb"#!\s*(?P<program>/[^\n]+)")
_HINT = "use the program of the environment: DIR/bin/python -m pip"


class _Archive(msgspec.Struct, frozen=True):
    url: str


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    version: str


class _Item(msgspec.Struct, frozen=True):
    download_info: _Archive
    metadata: _Metadata


class _Report(msgspec.Struct, frozen=True):
    """https://pip.pypa.io/en/stable/reference/installation-report/"""

    install: tuple[_Item, ...]


_BUILDING = frozenset({("install",), ("pip", "install"), ("pip", "sync")})


class Pip:
    """``pip install``, ``python -m pip install``; the options are those of pip 22 to 26."""

    name = "pip"
    program = re.compile(r"pip[\d.]*(?:\.exe)?")
    module = "pip"
    groups: frozenset[str] = frozenset()
    index: tuple[str, Meaning] = ("--index-url", "index_urls")
    valued: Mapping[str, Meaning] = {
        "-r --requirement": "files",
        "-c --constraint": "constraints",
        "-e --editable": "editables",
        # optparse accepts any unique prefix of a long option. People write this one.
        "--index-url -i --pypi-url --index": "index_urls",
        "--extra-index-url": "extra_index_urls",
        "--find-links -f": "find_links",
        "--hash": "hashes",
        "--prefix": "prefix",
        "--target -t --root": "target",
        "--python": "python",
        "--src --source --source-dir --platform --python-version --implementation --abi --cache-dir --trusted-host "
        "--timeout --default-timeout --retries --log --log-file --proxy --cert --client-cert --exists-action "
        "--only-binary --no-binary -C --config-settings --config-setting --global-option --build-option "
        "--install-option --build-constraint --upgrade-strategy --progress-bar --use-feature --use-deprecated "
        "--report --keyring-provider --resume-retries --root-user-action --group -b --build-dir "
        "--uploaded-prior-to -w --wheel-dir": "other",
    }
    flags: Mapping[str, Meaning] = {
        "--no-deps --no-dependencies": "no_deps",
        "--upgrade -U": "upgrade",
        "--force-reinstall -I --ignore-installed": "force_reinstall",
        "--no-build-isolation": "no_build_isolation",
        "--no-index": "no_index",
        "--pre": "prereleases",
        "--dry-run": "dry_run",
        "--quiet -q": "quiet",
        "-y --yes": "yes",
        "-v --verbose --user --no-user --require-hashes --prefer-binary --no-cache-dir --no-input --isolated "
        "--disable-pip-version-check --no-compile --compile --no-warn-script-location --no-warn-conflicts "
        "--use-pep517 --no-use-pep517 --no-clean --no-color --ignore-requires-python --check-build-dependencies "
        "--break-system-packages --require-virtualenv --debug": "other",
    }

    def dry_run(self, command: Command) -> tuple[str, ...] | None:
        """``pip install --dry-run --quiet --report -``."""
        if command.verb != ("install",) or command.has("dry_run"):
            return None
        report = Argument("--report", "other", "-")
        return command.adding(Argument("--dry-run", "dry_run"), Argument("--quiet", "quiet"), report).words

    def from_wheels(self, command: Command) -> Command | None:
        """``--only-binary :all:``, which pip and ``uv pip`` share."""
        if command.verb not in _BUILDING:
            return None
        return command.adding(Argument("--only-binary", "other", ":all:"))

    def prefix(self, command: Command, environ: Mapping[str, str]) -> Path | None:
        """The environment of ``--prefix``, ``--python`` or the interpreter that runs pip."""
        # Requirement files are read by this grammar, too, and need nothing of environments.
        from envsolve.environment.layout import is_environment, prefix_of

        elsewhere = command.value("prefix")
        if elsewhere:
            return Path(elsewhere)
        named = command.value("python") or environ.get("PIP_PYTHON")
        if named:
            return Path(named) if is_folder(Path(named)) else prefix_of(Path(named))
        found = shutil.which(command.program[0], path=environ.get("PATH"))
        if found is None:
            raise UsageError(f"there is no program {command.program[0]}")
        # A pip that belongs to no environment is a script, which names its interpreter in its first line.
        program = Path(found)
        if is_environment(program.absolute().parent.parent) or _PYTHON.fullmatch(program.name):
            return prefix_of(program)
        return prefix_of(_interpreter(program))

    def read_dry_run(self, out: str, err: str) -> tuple[Path | None, tuple[Change, ...]]:
        """Read the report on standard output."""
        # Warnings of the interpreter may precede the report.
        report = from_json(out[out.find("{") :], _Report)
        return None, tuple(_change(item) for item in report.install)

    def requested(self, word: str) -> str | None:
        """The name in a PEP 508 requirement or in a wheel's file name."""
        try:
            return canonicalize_name(Requirement(word).name)
        except InvalidRequirement:
            return canonicalize_name(Path(word).name.split("-")[0]) if word.endswith(".whl") else None

    def pin(self, name: str, version: str) -> str:
        """An exact requirement; the installed version satisfies it, its local part included."""
        return f"{name}=={version}"


def _interpreter(script: Path) -> Path:
    """The interpreter that a pip script names in its first line.

    Raises:
        UsageError: It names none.
    """
    try:
        match = _SHEBANG.match(read_regular(real_path(script)))
    except OSError:
        match = None
    program = Path(match["program"].decode("utf-8", "replace").strip()) if match else None
    if program is None or not _PYTHON.fullmatch(program.name):
        raise UsageError(f"envsolve cannot see into which environment {script} installs", hint=_HINT)
    return program


def _change(item: _Item) -> Change:
    filename = unquote(urlsplit(item.download_info.url).path).rpartition("/")[2]
    try:
        # The METADATA of torch's old wheels lacks the local version that their file names have.
        version = str(parse_wheel_filename(filename)[1])
    except (InvalidWheelFilename, ValueError):
        version = item.metadata.version
    return Change(canonicalize_name(item.metadata.name), None, version, filename if filename.endswith(".whl") else None)


INSTALLER = Pip()

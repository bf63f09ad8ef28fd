"""``envsolve report``: what a bug report needs, without what names its author."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from envsolve.cli.options import DEFAULT_PREFIX, Form, OutputFile, option, path
from envsolve.cli.output import check_output, deliver_as, remark
from envsolve.errors import EnvsolveError

SCHEMA = "envsolve.report/1"
#: An issue of GitHub takes 65,536 characters; the log is what grows.
_LOG_CHARACTERS = 24_000
_VALUE_CHARACTERS = 500
_MOST_PACKAGES = 400
# What decides where packages come from, and which libraries and GPUs are found.
_VARIABLES = (
    "CUDA_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "NVIDIA_",
    "ENVSOLVE_",
    "PIP_",
    "UV_",
    "CONDA_",
    "SLURM_JOB_GPUS",
)
_MORE_VARIABLES = (
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PATH", "CC", "CXX", "MAX_JOBS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "TERM", "LANG"),
)


def command(
    log: Annotated[
        str | None,
        option(
            "--log",
            metavar="FILE|-",
            help="A file with the output that shows the error; its last lines are added to the report.",
        ),
    ] = None,
    prefix: Annotated[
        Path | None, path("--prefix", metavar="DIR", help="The environment (default: the active one, or .venv).")
    ] = None,
    form: Form = None,
    output: OutputFile = None,
) -> None:
    """Collect a bug report without names and secrets.

    Reads versions, the machine, settings, variables and the packages of an environment, and sends nothing. User names,
    home directories, host names, tokens, logins and device numbers are replaced. Read the report before you post it.
    """
    check_output(form, output)
    from envsolve.cli.diagnose import read_text
    from envsolve.system.redaction import Redaction

    text = read_text(log) if log is not None else ""
    parts = {
        "envsolve": _section(_installation),
        "machine": _section(_machine),
        "settings": _section(_settings),
        "variables": _section(_variables),
        "environment": _section(lambda: _environment(prefix)),
        "log": {"text": _end_of(text)} if text else None,
    }
    clean = Redaction(os.environ, _public_hosts(), [text, str(Path.cwd())])
    value = {"schema": SCHEMA, **{name: clean.value(part) for name, part in parts.items()}}
    deliver_as(form, value, lambda: "\n".join(_words(value)), output)
    remark("nothing was sent; read the report before you post it")


def _section(collect: Callable[[], Mapping[str, Any] | None]) -> Mapping[str, Any] | None:
    # What is broken is often what the report is about.
    try:
        return collect()
    except EnvsolveError as error:
        return {"error": error.message}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _installation() -> Mapping[str, Any]:
    import envsolve
    from envsolve.cli.main import installation

    return {"version": envsolve.__version__, "installation": installation()}


def _machine() -> Mapping[str, Any]:
    import envsolve
    from envsolve.system.files import dump

    found: dict[str, Any] = json.loads(dump(envsolve.detect()))
    return found


def _settings() -> Mapping[str, Any]:
    from envsolve.cli.config import settings
    from envsolve.packages.settings import read_settings

    indexes = read_settings()
    found: dict[str, Any] = {name: f"{one.value} ({one.origin})" for name, one in settings().items()}
    found |= {"index": indexes.default, "extra indexes": list(indexes.extras), "find-links": list(indexes.links)}
    return found | {"strategy": indexes.strategy, "configured by": sorted(set(indexes.sources.values()))}


def _variables() -> Mapping[str, Any]:
    from envsolve.system.redaction import is_secret

    chosen = (name for name in sorted(os.environ) if name.startswith(_VARIABLES) or name.upper() in _MORE_VARIABLES)
    return {name: "(secret)" if is_secret(name) else os.environ[name][:_VALUE_CHARACTERS] for name in chosen}


def _environment(prefix: Path | None) -> Mapping[str, Any] | None:
    import envsolve
    from envsolve.environment.read import read_outline
    from envsolve.system.files import is_folder

    named = prefix or next(
        (Path(one) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if (one := os.environ.get(name))), None
    )
    place = named or (DEFAULT_PREFIX if is_folder(DEFAULT_PREFIX) else None)
    if place is None:
        return None
    found = read_outline(place)
    packages = [
        f"{one.name} {one.version or '(version unknown)'}" + (f" from {one.direct_url}" if one.direct_url else "")
        for one in found.distributions
    ]
    cut = [f"and {len(packages) - _MOST_PACKAGES} more"] if len(packages) > _MOST_PACKAGES else []
    causes = [f"{one.cause} ({one.certainty})" for one in envsolve.diagnose(prefix=place).diagnoses]
    head = {"prefix": str(place), "python": found.python, "diagnosed": causes}
    return {**head, "packages": [*packages[:_MOST_PACKAGES], *cut]}


def _end_of(text: str) -> str:
    if len(text) <= _LOG_CHARACTERS:
        return text
    return f"(the last {_LOG_CHARACTERS} of {len(text)} characters)\n{text[-_LOG_CHARACTERS:]}"


def _public_hosts() -> Iterator[str]:
    from envsolve._default_index import DEFAULT_INDEX
    from envsolve.facts.catalogue import Catalogue
    from envsolve.system.redaction import host_of

    yield from (host_of(DEFAULT_INDEX), "github.com", "conda.anaconda.org")
    yield from (host_of(place.url) for place in Catalogue().indexes.values())


def _words(value: Mapping[str, Any]) -> Iterator[str]:
    """Markdown, as issue trackers take it."""
    yield "# Bug report for envsolve"
    for name, part in value.items():
        if isinstance(part, Mapping):
            yield from ("", f"## {name}", "", "```")
            if name == "log":
                lines: Iterable[str] = [part["text"].rstrip()]
            else:
                # The origin of each fact is in the JSON.
                lines = (line for key, one in part.items() if key != "sources" for line in _lines(key, one))
            yield from (line.replace("```", "'''") for line in lines)
            yield "```"


def _lines(key: str, value: Any) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{key}: {_word(value)}"
    else:
        yield f"{key}:" if value else f"{key}: none"
        yield from (f"  {_word(one)}" for one in value)


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_word(one)}" for name, one in value.items() if one is not None) or "none"
    return {None: "unknown", True: "yes", False: "no"}.get(value, str(value))

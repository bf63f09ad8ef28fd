"""An ``environment.yml`` for conda, mamba and micromamba: pins that conda solves again, and that keep the variant.

Versions are pinned, and the part of a build string that names the variant. Hashes in build strings are not, since
channels rebuild packages. The solver chooses everything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from envsolve.formats._packages import activated, conda_heading, conda_terms, override, pin_text
from envsolve.planning.plan import Plan

NAME = "environment-yml"
FILENAMES = ("environment.yml",)
FAMILY = "conda"
HOLDS_SEVERAL = False
NEEDS_HASHES = False


_PLAIN = re.compile(r"[A-Za-z0-9_./][\w./=<>!~,*+\[\]@:-]*")


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        UsageError: It is a plan of wheels.
    """
    return "\n".join((*_comments(plan), *_body(plan))) + "\n"


def _comments(plan: Plan) -> Iterator[str]:
    terms = conda_terms(plan)
    yield from conda_heading(plan)
    yield "# create the environment with: conda env create --prefix DIR --file environment.yml"
    if words := override(terms):
        yield f"# where no such driver is seen (login node, image): {words}conda env create --prefix DIR --file ..."
    for name, value in activated(plan).items():
        yield f"# set at run time: {name}={value}"


def _body(plan: Plan) -> Iterator[str]:
    terms = conda_terms(plan)
    yield "channels:"
    yield from (f"  - {_scalar(channel)}" for channel in terms.channels)
    # Measured with conda 24.7.1 and 26.7.1; the newer one also reads the user's own channels, behind those of the file.
    yield "  # keeps the channels of your own configuration out. conda 26.7 does not know it, and asks for a channel of"
    yield "  # that name: delete the line if it does not exist"
    yield "  - nodefaults"
    yield "dependencies:"
    yield from (f"  - {_scalar(pin_text(pin))}" for pin in terms.pins)
    if terms.pip:
        yield "  - pip"
        yield "  - pip:"
        yield from (f"      - {_scalar(line)}" for line in terms.pip)


def _scalar(text: str) -> str:
    """Text as YAML: as it is where that is plain, otherwise in JSON's quotes, which are YAML's too."""
    return text if _PLAIN.fullmatch(text) and ": " not in text and not text.endswith(":") else json.dumps(text)

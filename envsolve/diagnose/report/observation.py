"""What a reader takes from one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from envsolve.diagnose.model import Seen, Value
from envsolve.diagnose.report.text import Line
from envsolve.machine.model import HostCompiler, Toolkit


class Trust(IntEnum):
    """How much a line is worth; the higher wins.

    ``HINTED``: an asked-for thing that implies another, the Ubuntu in an image's tag. ``STATED``: a person's words.
    ``IMPLIED``: a path, a file name or an error message. ``PRINTED``: a program printed the very fact. ``USED``: the
    program that failed says what it was using.
    """

    HINTED = 0
    STATED = 1
    IMPLIED = 2
    PRINTED = 3
    USED = 4


class Field(str, Enum):
    """A fact that a machine or an environment has once; the values are the names of ``Machine.sources``."""

    OS = "platform.os"
    ARCH = "platform.arch"
    LIBC = "platform.libc"
    DISTRO = "platform.distro"
    WSL = "platform.wsl"
    CONTAINER = "platform.container"
    JETSON = "platform.jetson"
    DRIVER = "driver.version"
    DRIVER_CUDA = "driver.cuda"
    COMPAT = "driver.compat_libcuda"
    PYTHON = "python"
    TORCH_CUDA = "cuda"
    NVCC = "nvcc"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A field's value."""

    field: Field
    text: str


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the environment; ``version`` None says that it was removed there and then."""

    name: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Card:
    """GPUs of one kind.

    Attributes:
        name: As printed; None where only the capability is told.
        compute_capability: ``8.9``.
        count: How many.
        listing: Identifies the table or list that it stands in, since a machine's cards stand in one; None elsewhere.
        truncated: Whether the name was cut off (``NVIDIA GeForce ...``).
    """

    name: str | None
    compute_capability: str | None = None
    count: int = 1
    memory_mib: int | None = None
    mig: bool | None = None
    listing: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Codes:
    """GPU code that torch says it carries."""

    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """A container image's reference."""

    reference: str


@dataclass(frozen=True, slots=True)
class Command:
    """A shell command."""

    text: str


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable."""

    name: str
    value: str


Fact: TypeAlias = "Scalar | Package | Card | Codes | Toolkit | HostCompiler | Image | Command | Variable"


@dataclass(frozen=True, slots=True)
class Observation:
    """A fact, the line that it was read from, and what that is worth."""

    fact: Fact
    line: Line
    trust: Trust


# Observations weighed against each other: one value a fact, or none where they disagree without a better one.


def seen(value: Value, observation: Observation) -> Seen[Value]:
    """The value with the place of the observation."""
    return Seen(value, f"line {observation.line.number}", observation.line.quote)


def scalars(observations: Iterable[Observation]) -> Mapping[Field, Seen[str]]:
    """The value of each field.

    The most trusted kind decides. Of what programs printed the last counts, since a report ends with the present; of
    what people said the first, since they go on to what they tried; what is implied counts where most of it agrees.
    """
    by_field: dict[Field, list[tuple[str, Observation]]] = {}
    for observation in _in_order(observations):
        if isinstance(fact := observation.fact, Scalar):
            by_field.setdefault(fact.field, []).append((fact.text, observation))
    chosen = {field: _chosen(values) for field, values in by_field.items()}
    return {field: value for field, value in chosen.items() if value is not None}


def packages(observations: Iterable[Observation]) -> Mapping[str, Seen[str]]:
    """The version of each package that is installed in the end.

    What was printed or implied is a history: the last state counts, and a removal ends it. A local part that was seen
    of the same version is kept: pip's messages leave it out.
    """
    by_name: dict[str, list[tuple[str | None, Observation]]] = {}
    for observation in _in_order(observations):
        if isinstance(fact := observation.fact, Package):
            by_name.setdefault(fact.name, []).append((fact.version, observation))
    found: dict[str, Seen[str]] = {}
    for name, history in by_name.items():
        if (value := _last_state(history)) is not None:
            found[name] = value
    return found


def _in_order(observations: Iterable[Observation]) -> Sequence[Observation]:
    return sorted(observations, key=lambda observation: observation.line.index)


def _chosen(values: Sequence[tuple[str, Observation]]) -> Seen[str] | None:
    trust = max(observation.trust for _, observation in values)
    best = [(value, observation) for value, observation in values if observation.trust == trust]
    if trust >= Trust.PRINTED:
        value, observation = best[-1]
    elif trust == Trust.STATED:
        value, observation = best[0]
    else:
        value, count = Counter(value for value, _ in best).most_common(1)[0]
        if 2 * count <= len(best):
            return None
        observation = next(observation for text, observation in best if text == value)
    for longer, other in values:  # "535" said, "535.161.07" read elsewhere: one driver
        if longer.startswith(f"{value}."):
            value, observation = longer, other
    return seen(value, observation)


def _last_state(history: Sequence[tuple[str | None, Observation]]) -> Seen[str] | None:
    trust = max(observation.trust for _, observation in history)
    facts = [entry for entry in history if entry[1].trust == trust]
    if trust <= Trust.STATED:
        version, observation = facts[0]
        if trust == Trust.HINTED and len({version for version, _ in facts}) > 1:
            return None
    else:
        version, observation = facts[-1]
    if version is None:
        return None
    if "+" not in version:
        removals = [place for place, (text, _) in enumerate(history) if text is None]
        present = history[removals[-1] :] if removals else history
        locals_ = {text for text, _ in present if text and text.startswith(f"{version}+")}
        if len(locals_) == 1:
            version = locals_.pop()
            observation = next(observation for text, observation in history if text == version)
    return seen(version, observation)

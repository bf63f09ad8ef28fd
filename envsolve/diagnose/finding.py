"""What the weighing of one cause gives: a finding with its grounds, or what is ruled out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from envsolve.diagnose.model import Remedy


class Grounds(str, Enum):
    """What a finding stands on, best first. The precision of each is in ``index_data/precisions.json``."""

    #: Words of an error, and rules or catalogue facts that confirm them for this build and machine.
    CONFIRMED = "confirmed"
    #: Words of an error that name one cause, and nothing that contradicts them.
    STATED = "stated"
    #: Files of an environment, and rules: they leave no way for it to work, whatever the error says.
    READ = "read"
    #: Words of an error that several causes share; circumstances speak for this one.
    SUGGESTED = "suggested"
    #: Facts and rules alone: the parts cannot work together, but no words of an error say so.
    DERIVED = "derived"
    #: Files of an environment that show what often does harm, and may do none here.
    NOTICED = "noticed"

    @property
    def rank(self) -> int:
        """0 for the best grounds; larger is worse."""
        return list(Grounds).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that a weighing found.

    Attributes:
        explains: Other causes that are mere consequences of this one: they are told after it.
    """

    cause: str
    grounds: Grounds
    explanation: str
    evidence: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    explains: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class RuledOut:
    """What was looked at and does not hold, in words."""

    text: str

"""Records of what errors say, and of how far a diagnosis that rests on them can be trusted."""

from collections.abc import Mapping

import msgspec

from envsolve.catalogue.model.evidence import Evidence


class Signature(msgspec.Struct, frozen=True):
    """Words of an error that propose causes; which of them holds, the facts decide.

    A text is read in windows of a line and the two after it, as ASCII (any other character is ``?``), with white space
    collapsed, whatever the case.

    Attributes:
        id: Stable name.
        anchors: Lower-case literals, one of which every match contains: they find the windows worth looking at.
        pattern: Regular expression; its named groups are explained in ``groups``.
        example: A text that matches.
        causes: Codes of ``docs/causes.md`` that the words speak for, likeliest first. Empty where the words tell of no
            broken environment (then ``says`` tells of what), or are only a clue for the weighing.
        says: What the words tell of where that is no cause of ``docs/causes.md``, and what to do about it.
        groups: Meaning of each named group.
    """

    id: str
    anchors: tuple[str, ...]
    pattern: str
    example: str
    evidence: Evidence
    source: str
    causes: tuple[str, ...] = ()
    says: str | None = None
    groups: Mapping[str, str] = {}


class Precision(msgspec.Struct, frozen=True):
    """How often diagnoses that stood on one kind of grounds were right on known reports.

    Attributes:
        grounds: The kind, a value of ``envsolve.diagnose.finding.Grounds``.
        right: Reports on which the first diagnosis stood on such grounds and named the right cause.
        of: Reports on which the first diagnosis stood on such grounds.
    """

    grounds: str
    right: int
    of: int
    evidence: Evidence
    source: str

"""The answer of one rule, of all rules together on a build and a GPU, and of what would change it."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

DriverMode = Literal["full", "minor-version", "forward-compat"]


class Level(str, Enum):
    """How a build's code reaches a GPU.

    ``native``: SASS for exactly this compute capability. ``family``: SASS of an older minor of the same major (binary
    compatible), or an ``f`` form. ``ptx``: compiled by the driver at first use. ``none``: it does not run.
    ``unknown``: a fact that decides is not known.
    """

    NATIVE = "native"
    FAMILY = "family"
    PTX = "ptx"
    NONE = "none"
    UNKNOWN = "unknown"

    @property
    def rank(self) -> int:
        """0 for the best level; larger is worse."""
        return _ORDER.index(self)

    @property
    def usable(self) -> bool:
        """Whether the code is known to run."""
        return self in (Level.NATIVE, Level.FAMILY, Level.PTX)


_ORDER = (Level.NATIVE, Level.FAMILY, Level.PTX, Level.UNKNOWN, Level.NONE)


class Reason(msgspec.Struct, frozen=True):
    """One rule's word.

    Attributes:
        rule: ``driver-floor``, ``driver-ptx``, ``sass``, ``ptx``, ``libraries``, ``triton`` (``-gpu``, ``-driver`` for
            its two causes), ``life``, ``forward``, ``flavour`` (rule 9; readers of
            ``envsolve.builds/1`` know it by this name), ``platform``, ``toolchain``.
        ok: True holds, False fails, None a fact is missing.
        text: The fact in plain words.
        evidence: Evidence level of the fact, if it comes from the catalogue.
        source: Key of the catalogue source behind it.
    """

    rule: str
    ok: bool | None
    text: str
    evidence: str | None = None
    source: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The conjunction of all rules for one build on one GPU of one machine.

    Attributes:
        level: See :class:`Level`.
        code: The code that runs, ``sm_86`` or ``compute_90``; None if none does or it is not known.
        driver_required: Oldest driver version that runs the build.
        driver_mode: How this driver runs it; None if unknown or not needed.
        triton: Whether kernels that the build's own Triton compiles run on the GPU; None if unknown or not paired.
        reasons: The result of every rule.
    """

    level: Level
    code: str | None
    driver_required: str | None
    driver_mode: DriverMode | None
    triton: bool | None
    reasons: tuple[Reason, ...]

    @property
    def failures(self) -> tuple[Reason, ...]:
        """The rules that fail."""
        return tuple(r for r in self.reasons if r.ok is False)


def _no_command() -> None:
    return None


class Fix(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change that makes something fit or run.

    Attributes:
        text: What to change.
        command: What does it, ready to run; None if no command does.
        unlocks: What fits then, for a plan that does not.
        relaxes: The requirements that it relaxes or leaves out, if it does nothing else.
        pythons: The Pythons that it proposes, oldest first, if it does nothing else.
        replaces: A requested package and the one to ask for instead, if it does nothing else.
    """

    text: str
    # A diagnosis/1 has a null for it, and no `unlocks`: msgspec leaves out plain defaults only.
    command: str | None = msgspec.field(default_factory=_no_command)
    unlocks: str = ""
    relaxes: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    replaces: tuple[str, str] | None = None


class FastPath(msgspec.Struct, frozen=True):
    """A fast path of one package on one GPU, by the kernels in its wheel.

    Attributes:
        path: Name of the path, ``flash attention``.
        code: The code that the GPU runs, ``sm_90a``; None if the wheel has none for it.
        codes: All that the wheel has of it.
    """

    package: str
    gpu: str
    path: str
    code: str | None
    codes: tuple[str, ...]

"""The builds of a package in words, for a person. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from envsolve.builds import BuildLine, BuildList

# Lines; of some packages hundreds of builds run on one card.
_SCREEN = 40


def describe(found: BuildList, *, every: bool = False, reasons: bool = False) -> str:
    """The list as text: a line per build and GPU, then why verdicts are unknown, where some are.

    Args:
        found: The list.
        every: All builds, those that do not run included, each with what forbids it; else the newest that run.
        reasons: All reasons of every line.
    """
    running = [build for build in found.builds if every or build.verdict != "none"]
    if not running:
        return _nothing(found.builds)
    shown = running if every else _newest(running)
    # A machine whose platform is not known has one build for several.
    told = Counter((_version(build), build.variant, build.index, build.gpu) for build in shown)
    platforms = max(told.values()) > 1
    lines = [line for build in shown for line in _lines(build, reasons, platforms)]
    if not reasons:
        lines += _unknowns(shown)
    if len(shown) < len(running):
        lines.append(_older(running[len(shown) :]))
    return "\n".join(lines)


def _newest(builds: Sequence[BuildLine]) -> Sequence[BuildLine]:
    """Those of the newest versions, each version whole, until a screen is full."""
    if len(builds) <= _SCREEN:
        return builds
    last = builds[_SCREEN - 1]
    same = (number for number, build in enumerate(builds) if number >= _SCREEN and build.version != last.version)
    return builds[: next(same, len(builds))]


def _older(builds: Sequence[BuildLine]) -> str:
    versions = {build.version for build in builds}
    return f"and {len(builds)} more of {len(versions)} version{'s' * (len(versions) != 1)}: --all lists every build"


def _lines(build: BuildLine, reasons: bool, platforms: bool) -> Iterator[str]:
    triton = "  without Triton" if build.triton is False else ""
    gpu = f"  on {build.gpu}" if build.gpu else ""
    place = f"{build.index}, {build.platform}" if platforms else build.index
    yield f"{build.package} {_version(build):<8} {build.variant:<6} {build.verdict:<8}{gpu}{triton}  ({place})"
    for reason in build.reasons:
        if reasons or (build.verdict == "none" and reason.ok is False):
            mark = {True: "+", False: "-", None: "?"}[reason.ok]
            yield f"    {mark} {reason.text}" + (f" [{reason.evidence}]" if reason.evidence else "")


def _version(build: BuildLine) -> str:
    """The version, with a local part that says more than the variant does."""
    return build.version if build.local == f"+{build.variant}" else build.version + build.local


def _unknowns(builds: Sequence[BuildLine]) -> list[str]:
    """What decides and is not known: of each rule the first word, since the others differ in their versions alone."""
    words: dict[str, dict[str, None]] = {}
    for build in builds:
        if build.verdict != "unknown":
            continue
        for reason in build.reasons:
            # Whether its Triton runs decides nothing about another package.
            if reason.ok is None and (build.package == "triton" or not reason.rule.startswith("triton")):
                words.setdefault(reason.rule, {})[reason.text] = None
    return [
        f"unknown: {next(iter(texts))}" + (f" (and {len(texts) - 1} more like it; --verbose)" if len(texts) > 1 else "")
        for texts in words.values()
    ]


def _nothing(builds: Sequence[BuildLine]) -> str:
    """Why no build is listed: the machine cannot exist, or none runs on it."""
    life = [reason.text for build in builds for reason in build.reasons if reason.rule == "life" and reason.ok is False]
    if life:
        return "\n".join(f"this machine cannot exist: {text}" for text in dict.fromkeys(life))
    name = builds[0].package
    return f"no published build of {name} runs on the machine: --all says why, envsolve plan {name} what would help"

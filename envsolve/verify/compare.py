"""What is not as it was in an earlier report: versions, cards, how checks ended, how long they took. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envsolve.verify.report import Change, Check, Report

#: A check's time is told where it grew or shrank by this factor, and by this many seconds.
_FACTOR, _SECONDS = 1.5, 1.0

Key = tuple[str, str]


def changes(before: Report, now: Report) -> tuple[Change, ...]:
    """Everything that differs; what is worse comes first, then versions and cards, then checks, then times."""
    found = [*_versions(before, now), *_cards(before, now), *_checks(before, now), *_times(before, now)]
    return tuple(sorted(found, key=lambda change: not change.worse))


def _versions(before: Report, now: Report) -> Iterator[Change]:
    if not before.versions or not now.versions:  # A report of an older envsolve has none.
        return
    for name in sorted({*before.versions, *now.versions}):
        old, new = before.versions.get(name), now.versions.get(name)
        if old != new:
            yield Change("version", name, None, old, new)


def _cards(before: Report, now: Report) -> Iterator[Change]:
    if before.machine is None or now.machine is None:
        return
    old, new = (", ".join(g.label for g in report.gpus or ()) for report in (before.machine, now.machine))
    if old != new:
        yield Change("gpu", "GPUs", None, old or "none", new or "none")


def _checks(before: Report, now: Report) -> Iterator[Change]:
    """How checks ended that both reports have; one that another choice of checks left out is no change."""
    old, new = _by_place(before), _by_place(now)
    for name in dict.fromkeys(check.name for check in (*now.checks, *before.checks)):
        there = [place for known, place in (*old, *new) if known == name]
        # Where the driver lists no GPU, one line without a GPU stands for all.
        for place in dict.fromkeys(place for place in there if place) or [""]:
            was = old.get((name, place)) or old.get((name, ""))
            is_now = new.get((name, place)) or new.get((name, ""))
            if was and is_now and _ending(was) != _ending(is_now):
                worse = was.status == "pass" and is_now.status != "pass"
                yield Change("check", name, is_now.gpu or was.gpu, _ending(was), _ending(is_now), worse)
            elif was and not is_now and _tried(new, name, place):
                yield Change("check", name, was.gpu, _ending(was), None, worse=was.status == "pass")
            elif is_now and not was and _tried(old, name, place):
                yield Change("check", name, is_now.gpu, None, _ending(is_now))


def _tried(checks: Mapping[Key, Check], name: str, place: str) -> bool:
    """Whether a check ran in other places of that kind: on GPUs, or compiling for cards."""
    return any(known == name and ("." in other) == ("." in place) for known, other in checks)


def _times(before: Report, now: Report) -> Iterator[Change]:
    old = _by_place(before)
    for key, check in _by_place(now).items():
        was = old.get(key)
        if was is None or was.status != "pass" or check.status != "pass":
            continue
        low, high = sorted((was.seconds, check.seconds))
        if high >= low * _FACTOR and high - low >= _SECONDS:
            yield Change("time", check.name, check.gpu, f"{was.seconds:.1f} s", f"{check.seconds:.1f} s")


def _by_place(report: Report) -> Mapping[Key, Check]:
    """Checks by name and by the number of their GPU, or the compute capability that they compile for.

    The number, not the card's name: that another card is in its place is told once, and not of every check.
    """
    return {(check.name, (check.gpu or "").partition(": ")[0]): check for check in report.checks}


def _ending(check: Check) -> str:
    return f"fail ({check.cause})" if check.status == "fail" and check.cause else check.status

"""One image for all that is wrong with a FROM line, tried on the file before it is proposed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from envsolve.dockerfile.image_names import Name
from envsolve.dockerfile.images import TOOLKIT, starts, system_family, tag_parts
from envsolve.dockerfile.model import Finding, Severity, Stage
from envsolve.dockerfile.offers import Asked
from envsolve.facts.hardware import Image
from envsolve.values import DriverVersion

_OF_THE_SYSTEM = frozenset({"image-libc", "base-python"})
_OF_THE_IMAGE = _OF_THE_SYSTEM | {"image-unknown", "image-retired", "image-driver"}
_AN_IMAGE = re.compile(r"FROM |start from an image (?:of CUDA|with a newer glibc)")
_KINDS = frozenset({"base", "runtime", "devel", "cudnn"})
#: Images that are tried for one FROM line, and for all of a file: each checks the whole file again, about 0.1 s.
_MOST_TRIALS, _MOST_IN_ALL = 8, 16


def with_one_image(
    text: str, stages: Sequence[Stage], asked: Asked, check: Callable[[str], Mapping[Finding, int]]
) -> list[Finding]:
    """The findings; those for which another image helps propose the same one.

    A check knows only its own condition: the nearest tag that is maintained may have a Python that is too old. So an
    image is proposed only if the file with it has none of these findings, and of several the one with which the file
    has the fewest new errors and warnings.

    Args:
        text: The Dockerfile.
        stages: Its stages.
        asked: The target of the check.
        check: The findings of a Dockerfile, with the line of the FROM that each belongs to.
    """
    found = check(text)
    answer = {finding: finding for finding in found}
    before, errors, tried = _places(found), _places(found, "error"), 0
    for stage in {stage.root.line: stage.root for stage in stages}.values():
        group = [f for f, line in found.items() if line == stage.line and f.code in _OF_THE_IMAGE]
        fitting: dict[tuple[int, int], str] = {}
        most = min(_MOST_TRIALS, _MOST_IN_ALL - tried) if group else 0
        for image, left in islice(_trials(text, stage, group, asked, check), most):
            tried += 1
            if not _places(group) & _places(left):
                new = len(_places(left, "error") - errors), len(_places(left) - before)
                fitting.setdefault(new, image)
            if (0, 0) in fitting:
                break
        for one in group if fitting else ():
            others = (remedy for remedy in one.remedies if not _AN_IMAGE.match(remedy))
            answer[one] = replace(one, remedies=(f"FROM {fitting[min(fitting)]}", *others))
    return list(dict.fromkeys(answer.values()))


def _trials(
    text: str,
    stage: Stage,
    group: Sequence[Finding],
    asked: Asked,
    check: Callable[[str], Mapping[Finding, int]],
) -> Iterator[tuple[str, Mapping[Finding, int]]]:
    """Images, and the findings with each; none of a distribution whose Python or libc has failed, or of such a CUDA."""
    failed: set[str] = set()
    for image in _candidates(stage, group, asked):
        release, *_, distribution = tag_parts(image.partition(":")[2])
        if not failed & {release, distribution}:
            yield image, (left := check(_with_image(text, stage, image)))
            codes = {code for _, code in _places(left) & _places(group)}
            failed |= {distribution} if codes & _OF_THE_SYSTEM else set()
            failed |= {release} if codes - _OF_THE_SYSTEM else set()


def _places(findings: Iterable[Finding], level: Severity | None = None) -> set[tuple[int, str]]:
    return {(finding.line, finding.code) for finding in findings if level in (None, finding.level)}


def _candidates(stage: Stage, group: Sequence[Finding], asked: Asked) -> Iterator[str]:
    """The images that the findings propose, then the nearest of its kind, those of a newer version first."""
    ranked, proposed = _alike(stage, asked), [image for one in group for image in _images(one)]
    # An image of Python instead of NVIDIA's, unless a stage compiles with the toolkit and so does not propose it.
    by_python = [{*_images(one)} for one in group if one.code == "base-python"]
    fit = set(ranked).union(set.intersection(*by_python) if by_python else ())
    yield from dict.fromkeys((*(one for one in proposed if one in fit), *ranked))


def _images(finding: Finding) -> list[str]:
    return [remedy.removeprefix("FROM ") for remedy in finding.remedies if remedy.startswith("FROM ")]


def _alike(stage: Stage, asked: Asked) -> list[str]:
    """Images of the same repository and kind that are maintained, nearest first."""
    name = Name.of(stage.image)
    wanted, version = tag_parts(name.tag), DriverVersion.parse(name.tag.partition("-")[0])

    def distance(place: tuple[Image, str]) -> tuple[object, ...]:
        own, parts = DriverVersion.parse(place[0].version), tag_parts(place[1])
        unlike = system_family(parts[-1]) != system_family(wanted[-1]), len(set(parts) ^ set(wanted))
        return own < version, [-n for n in own] if own < version else own, unlike

    kept = (i for i in asked.catalogue.images if not i.retired and i.repository == name.repository)
    tags = ((image, tag) for image in kept if _is_known(image, asked) for tag in image.tags)
    same = (one for one in tags if _KINDS & {*wanted} == _KINDS & {*tag_parts(one[1])})
    return [f"{image.repository}:{tag}" for image, tag in sorted(same, key=distance)]


def _is_known(image: Image, asked: Asked) -> bool:
    """Whether the Python of an image is known, and that it starts on every machine."""
    if image.repository != TOOLKIT:
        return True
    system, known = asked.catalogue.distributions.get(image.distribution), asked.catalogue.image_requirements
    return system is not None and system.python is not None and image.version in known and starts(image, asked)


def _with_image(text: str, stage: Stage, image: str) -> str:
    """A Dockerfile with another image in one FROM line; all other lines keep their numbers."""
    lines, first = text.splitlines(), stage.line - 1
    last = next(n for n in range(first, len(lines)) if n + 1 == len(lines) or not lines[n].rstrip().endswith("\\"))
    platform, alias = stage.platform and f"--platform={stage.platform} ", f" AS {stage.name}" if stage.name else ""
    lines[first : last + 1] = [f"FROM {platform}{image}{alias}", *[""] * (last - first)]
    return "\n".join(lines)

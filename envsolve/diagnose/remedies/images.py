"""Container images that exist, in the place of one that does not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envsolve.compat.versions import minor, numbers
from envsolve.diagnose.model import Remedy
from envsolve.diagnose.scene import Scene


def image_remedies(scene: Scene, asked: str) -> Iterator[Remedy]:
    """Tags that are known to exist, nearest to what was asked for."""
    repository, _, tag = asked.removeprefix("docker.io/").rpartition(":")
    version = re.match(r"\d+\.\d+", tag)
    if version and repository:
        near = _near(scene, repository, tag, version[0])
        if near:
            yield Remedy(f"Use a tag that exists, such as {', '.join(near)}.", f"docker pull {repository}:{near[0]}")
        if last := _last_retired(scene, repository, tag, version[0]):
            text = (
                f"If it must be CUDA {version[0]}: {last} was its last release under such a name. Its publisher has "
                "retired it, and deletes such tags in time."
            )
            yield Remedy(text, f"docker pull {repository}:{last}")
    yield Remedy(
        "See which tags there are: old ones get deleted, so take the newest patch release of the CUDA that is meant."
    )


def _near(scene: Scene, repository: str, tag: str, version: str) -> list[str]:
    """Of the images that are kept, those of the version, else of the next newer one; with most parts of the tag."""
    kept = [i for i in scene.catalogue.images if i.repository == repository and not i.retired]
    versions = sorted({minor(i.version) for i in kept if minor(i.version) >= minor(version)})
    wanted = [part for part in tag.split("-")[1:] if part]
    tags = sorted(
        ((image, name) for image in kept if versions and minor(image.version) == versions[0] for name in image.tags),
        key=lambda pair: (-_kept(wanted, pair[1]), [-n for n in numbers(pair[0].version)], len(pair[1])),
    )
    return list(dict.fromkeys(name for _, name in tags if name != tag))[:3]


def _last_retired(scene: Scene, repository: str, tag: str, version: str) -> str | None:
    """The newest patch release of the very version, where no image of that is kept; with most parts of the tag."""
    same = [i for i in scene.catalogue.images if i.repository == repository and minor(i.version) == minor(version)]
    if any(not image.retired for image in same):
        return None
    wanted = [part for part in tag.split("-")[1:] if part]
    tags = [(image, name) for image in same for name in image.tags if name != tag]
    best = max(tags, key=lambda pair: (_kept(wanted, pair[1]), numbers(pair[0].version), -len(pair[1])), default=None)
    return best[1] if best else None


def _kept(wanted: Sequence[str], tag: str) -> int:
    """How many parts of a tag another one has; cudnn8 and cudnn are the same part."""
    parts = {part.rstrip("0123456789") if part.startswith("cudnn") else part for part in tag.split("-")}
    return sum((part.rstrip("0123456789") if part.startswith("cudnn") else part) in parts for part in wanted)

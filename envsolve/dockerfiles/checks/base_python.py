"""The Python of the image's distribution: an old one keeps pip from every newer torch."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from envsolve.compat.versions import numbers
from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.installs import installs
from envsolve.dockerfiles.model import Finding, Stage
from envsolve.dockerfiles.offers import Offer, running


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Compare the newest torch that runs with that Python with the newest that runs at all."""
    python = asked.python(stage)
    names = {canonicalize_name(r.name) for install in installs(stage.commands) for r in install.requirements}
    if python is None or "torch" not in names or _brings_python(stage):
        return
    known = asked.offers("torch")
    best, own = next(running(known, None), None), next(running(known, python), None)
    if best is None or (own is not None and own.version.release >= best.version.release):
        return
    text = f"{stage.root.image} has Python {python}: "
    text += (
        f"the newest torch that runs on the machines with it is {own.build.version}; without that limit it is "
        f"{best.build.version}"
        if own
        else f"no torch that runs on the machines has a wheel for it; {best.build.version} has for others"
    )
    yield Finding(stage.line, "base-python", "warning", text, tuple(_remedies(best, asked)))


def _brings_python(stage: Stage) -> bool:
    """Whether a command installs another one."""
    return any(
        word.startswith(("python3.", "python=", "miniconda", "Miniforge", "deadsnakes"))
        or word in ("conda", "mamba", "micromamba", "pyenv", "uv")
        for command in stage.history()
        for word in command.words
    )


def _remedies(best: Offer, asked: Asked) -> Iterator[str]:
    """An official image of the middle one of its Pythons: most packages have wheels for that."""
    images = [
        i for i in asked.catalogue.images if i.repository == "python" and not i.retired and best.for_python(i.version)
    ]
    if images:
        image = sorted(images, key=lambda i: numbers(i.version))[len(images) // 2]
        yield f"FROM {image.repository}:{image.tags[0]}"
    yield "install a newer Python in it, and use the pip of that one"

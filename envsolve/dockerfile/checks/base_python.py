"""The Python of the image's distribution: an old one keeps pip from every newer torch."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import Offer, Within, running
from envsolve.dockerfile.packages import Asked, compiled, like, nvcc_code, pinned
from envsolve.values import DriverVersion


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Compare the newest torch that runs with that Python with the newest that runs at all.

    Where the torch that was chosen has a wheel for it and runs, nothing is kept from anybody.
    """
    python = asked.python(stage)
    chosen = [i for i in asked.installs(stage.commands) if any(wanted.name == "torch" for wanted in i.wanted)]
    if python is None or not chosen or all(_serves(install, python, asked) for install in chosen):
        return
    known = asked.offers("torch")
    best, own = next(running(known, Within()), None), next(running(known, Within(python)), None)
    if best is None or (own is not None and own.version.release >= best.version.release):
        return
    text = f"{stage.root.image} has Python {python}: "
    text += (
        f"the newest torch that runs on the machines with it is {own.build.version}; without that limit it is "
        f"{best.build.version}"
        if own
        else f"no torch that runs on the machines has a wheel for it; {best.build.version} has for others"
    )
    yield Finding(stage.root.line, "base-python", "warning", text, tuple(_remedies(stage, best, asked)))


def _serves(install: Install, python: str, asked: Asked) -> bool:
    """Whether the version that is pinned is one that runs with that Python."""
    if not any(wanted.name == "torch" and pinned(wanted.requirement.specifier) for wanted in install.wanted):
        return False
    taken = asked.taken(install, "torch", Within(python))
    return install.places.unknown or (taken is not None and taken.refused is None)


def _remedies(stage: Stage, best: Offer, asked: Asked) -> Iterator[str]:
    """The same image on a newer distribution, where it compiles; else the official image of Python."""
    compiles = any(map(nvcc_code, stage.commands)) or any(
        one for install in asked.installs(stage.commands) for one in compiled(install, asked)
    )
    if compiles:
        yield from like(stage, asked, lambda found: bool(found.python and best.for_python(found.python)))
    else:
        images = [
            i
            for i in asked.catalogue.images
            if i.repository == "python" and not i.retired and best.for_python(i.version)
        ]
        if images:
            image = sorted(images, key=lambda i: DriverVersion.parse(i.version))[len(images) // 2]
            yield f"FROM {image.repository}:{image.tags[0]}"
    yield "install a newer Python in it (uv venv --python 3.12), and use the pip of that one"

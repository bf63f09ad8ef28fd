"""The libc of the image: pip finds no wheel that asks for a newer one, or for glibc where there is musl (rule 11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import Offer, Within, found
from envsolve.dockerfile.packages import Asked, like
from envsolve.facts.channels import Distribution
from envsolve.machine.model import Platform
from envsolve.rules.platform import libc_of, libc_text


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Look for installs that find builds with another libc, and none with the image's."""
    within = asked.within(stage)
    for install in asked.installs(stage.commands) if within.libc else ():
        finding = next(_kept_off(install, stage, within, asked), None)
        if finding:
            yield finding
            return


def _kept_off(install: Install, stage: Stage, within: Within, asked: Asked) -> Iterator[Finding]:
    for wanted in install.wanted:
        looks, specifier = asked.looks(install, wanted.name), wanted.requirement.specifier
        if wanted.requirement.url or looks.unknown or within.libc is None:
            continue
        known = asked.offers(wanted.name)
        others = found(known, specifier, looks, Within(within.python), install.early)
        if others and not found(known, specifier, looks, within, install.early):
            needed = min((offer.libc for offer in others), key=lambda libc: libc[1])
            text = f"{wanted.place}{stage.root.image} has {libc_text(within.libc)}, and every wheel of "
            text += f"{wanted.requirement} is made for "
            text += "glibc" if within.libc[0] == "musl" else f"{libc_text(needed)} or newer"
            remedies = tuple(_remedies(stage, within, others, asked))
            yield Finding(install.command.line, "image-libc", "error", text + ": pip finds none", remedies)


def _remedies(stage: Stage, within: Within, others: Sequence[Offer], asked: Asked) -> Iterator[str]:
    """The same image on a newer distribution, where it is one of CUDA; else the official one of the same Python."""

    def serves(distribution: Distribution) -> bool:
        there = Within(distribution.python, libc_of(Platform(libc=distribution.libc)))
        return there.libc is not None and any(offer.fits(there) for offer in others)

    yield from like(stage, asked, serves)
    wanted = within.python or asked.catalogue.pythons[0]
    tags = [i.tags[0] for i in asked.catalogue.images if (i.repository, i.version) == ("python", wanted)]
    yield f"FROM python:{tags[0]}" if tags else f"start from an image with a newer glibc: python:{wanted}-slim-bookworm"

"""Checks of the image that a stage starts from: its tag, driver condition, Python, libc, torch and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from envsolve.dockerfile.compiling import nvcc_code
from envsolve.dockerfile.image_names import Name
from envsolve.dockerfile.installs import Install
from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import PYTORCH, Asked, Offer, Within, found, pinned, running
from envsolve.dockerfile.sources import compiled_in
from envsolve.facts.hardware import Image, ImageRequirement
from envsolve.machine.model import Machine, one_line
from envsolve.rules.nvidia.driver import compat_serves, driver_runs
from envsolve.rules.platform import libc_text
from envsolve.values import CudaVersion, DriverVersion

# The only repository whose older tags the catalogue knows completely.
TOOLKIT = "nvidia/cuda"
# What its tags without a distribution were built on. Source: the repository's page, "LATEST tags", 2019.
_UNNAMED = "ubuntu"


# The tag, and what the container runtime requires of the driver.


def tag(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The image must be published and maintained."""
    name = Name.of(stage.image)
    # A stage on another stage has that stage's image, which is judged there.
    if stage.base is not None or not name.known:
        return
    known = [image for image in asked.catalogue.images if image.repository == name.repository]
    kept = [image for image in known if not image.retired]
    image = asked.image(stage)
    if image is None:
        if name.repository == TOOLKIT and _all_are_known(name.tag, known):
            text = f"the image {name.repository}:{name.tag} does not exist, as far as the catalogue knows"
            yield Finding(stage.line, "image-unknown", "error", text, _nearest(name.tag, kept))
        return
    if image.retired:
        # Retired toolkit images are deleted. Docker's official images of Python stay, but are not built any more.
        is_python = name.repository == "python"
        what = "it no longer receives fixes" if is_python else "its publisher deletes retired tags after some time"
        alike = (other for other in kept if other.distribution == image.distribution)
        remedies = ("use a Python version that still receives fixes",) if is_python else _nearest(name.tag, alike)
        text = f"{name.repository}:{name.tag} is retired: {what}"
        yield Finding(stage.line, "image-retired", "warning", text, remedies)


def driver(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The container runtime starts the final image only if the driver meets the condition of the image."""
    variables = asked.final.variables
    # The file itself may replace the condition, or switch it off.
    off = variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true")
    if off or stage is not asked.final.root:
        return
    if "NVIDIA_REQUIRE_CUDA" in variables:
        yield from _required_here(variables["NVIDIA_REQUIRE_CUDA"], stage, asked)
    elif requirement := _requirement(stage, asked):
        for machine in asked.machines:
            if not _starts_on(requirement, machine, asked):
                yield _refused(stage, requirement, machine, asked)


def _required_here(condition: str, stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The condition that the file itself sets, ``cuda>=12.8 brand=tesla,driver>=470``: one of its parts must hold."""
    least = re.fullmatch(r"\s*cuda>=(\d+\.\d+)\s*", condition)
    for machine in asked.machines if least else ():
        driver = machine.driver
        if least and driver and driver.cuda and CudaVersion.parse(driver.cuda) < CudaVersion.parse(least[1]):
            text = (
                f"NVIDIA_REQUIRE_CUDA={condition}: on {one_line(machine)} the container runtime refuses to start the "
            )
            text += f"image, because driver {driver.version} reports CUDA {driver.cuda}"
            remedies = ("remove NVIDIA_REQUIRE_CUDA, or set it to a CUDA version that the driver supports",)
            yield Finding(asked.final.line, "image-driver", "error", text, remedies)


def platform(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``FROM --platform`` of the final image against the machines."""
    system, _, arch = stage.platform.partition("/")
    meant = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch.partition("/")[0], arch)
    machine = next((m for m in asked.machines if m.platform and m.platform.arch not in (None, meant)), None)
    # A variable stands for the platform of the build, which is not known.
    if stage is asked.final.root and machine is not None and system and "$" not in stage.platform:
        text = f"the image is built for {stage.platform} and does not run on {one_line(machine)}"
        yield Finding(
            stage.line,
            "image-platform",
            "error",
            text,
            ("remove --platform from this line, and pass it to the build command instead",),
        )


def _all_are_known(tag: str, known: Sequence[Image]) -> bool:
    """Whether every tag of its version is known. Of newer versions the catalogue has only those seen in use."""
    seen = {image.version for image in known if not image.source.endswith("dockerfiles")}
    first = min((DriverVersion.parse(version) for version in seen), default=())
    return not DriverVersion.parse(tag) or not first or DriverVersion.parse(tag.partition("-")[0]) < first


def _refused(stage: Stage, requirement: ImageRequirement, machine: Machine, asked: Asked) -> Finding:
    driver = machine.driver
    have = f"driver {driver.version} reports CUDA {driver.cuda}" if driver else "the driver is older"
    text = (
        f"{stage.image} requires a driver for CUDA {requirement.cuda}; on {one_line(machine)} the container runtime "
        f"refuses to start it, because {have}"
    )
    cuda = CudaVersion.parse(driver.cuda) if driver and driver.cuda else (0, 0)
    kept = [DriverVersion.parse(i.version) for i in asked.catalogue.images if i.repository == TOOLKIT and not i.retired]
    best = max((release for release in kept if release[:2] <= cuda), default=None)
    remedies = [f"start from an image of CUDA {best} or older"] if best else []
    remedies.append("if your wheels contain CUDA, start from an image without CUDA: python:3.12-slim-bookworm")
    # Toolkit images refuse by a condition on the driver that ignores minor-version compatibility.
    fit = driver_runs(requirement.cuda, driver, "linux", asked.facts.toolkits, asked.facts.floors)
    if fit.mode == "minor-version":
        remedies.append(f"ENV NVIDIA_DISABLE_REQUIRE=1: this driver runs CUDA {cuda[0]} by minor-version compatibility")
    return Finding(stage.line, "image-driver", "error", text, tuple(remedies), asked.title(requirement.source))


def _nearest(tag: str, images: Iterable[Image]) -> tuple[str, ...]:
    """The ``FROM`` line of the tag most like another one: of its release or the next, then by kind and distribution."""
    release, cuda, wanted = tag.partition("-")[0], CudaVersion.parse(tag), tag_parts(tag)
    ranked = []
    for image in images:
        if CudaVersion.parse(image.version) < cuda:
            continue
        for other in image.tags:
            parts = tag_parts(other)
            another_system = system_family(parts[-1]) != system_family(wanted[-1])
            # The newest release of a distribution, whose Python is new enough for most packages.
            older = -float(re.sub(r"^\D+", "", parts[-1]) or 0)
            unlike = len(set(parts) ^ set(wanted)), another_system, DriverVersion.parse(image.version), older
            place = CudaVersion.parse(image.version), image.version != release
            ranked.append((place, unlike, f"FROM {image.repository}:{other}"))
    return (min(ranked)[-1],) if ranked else ()


def tag_parts(tag: str) -> list[str]:
    """``12.9.1``, ``cudnn``, ``devel`` and ``ubuntu22.04`` of a tag."""
    # Newer tags say cudnn without its major version.
    return re.sub(r"cudnn\d+", "cudnn", tag).split("-")


def system_family(distribution: str) -> str:
    """``ubuntu`` of ``ubuntu22.04``, and of the last part of a tag that names no distribution."""
    return distribution.rstrip("0123456789.") if distribution[-1:].isdigit() else _UNNAMED


def _requirement(stage: Stage, asked: Asked) -> ImageRequirement | None:
    """The condition of the image; the devel images of PyTorch's are built on NVIDIA's, and keep its variables."""
    known, image, name = asked.catalogue.image_requirements, asked.image(stage), Name.of(stage.root.image)
    tag = {TOOLKIT: r"(\d+\.\d+(?:\.\d+)*)-", PYTORCH: r".*-cuda(\d+\.\d+)-.*devel$"}
    found = re.match(tag.get(image.repository if image else name.repository, "(?!)"), name.tag)
    if found is None:
        return None
    # Releases of one CUDA version differ in nothing that the condition names.
    alike = (one for one in known.values() if CudaVersion.parse(one.cuda) == CudaVersion.parse(found[1]))
    return known.get(found[1]) or next(alike, None)


def starts(image: Image, asked: Asked) -> bool:
    """Whether the container runtime starts an image of NVIDIA's on every machine."""
    requirement = asked.catalogue.image_requirements.get(image.version)
    return requirement is None or all(_starts_on(requirement, machine, asked) for machine in asked.machines)


def _starts_on(requirement: ImageRequirement, machine: Machine, asked: Asked) -> bool:
    """Whether the container runtime starts an image on a machine; an unknown driver does not count as no.

    The condition names older driver branches together with the GPU brands that the compat ``libcuda`` supports.
    """
    driver = machine.driver
    if driver is None or driver.cuda is None or CudaVersion.parse(driver.cuda) >= CudaVersion.parse(requirement.cuda):
        return True
    branch = (driver.version or "").partition(".")[0]
    if not any(branch in older.branches for older in requirement.or_drivers):
        return False
    serves = compat_serves(machine.with_compat(requirement.cuda), asked.facts.forward)
    return serves is None or serves.ok is not False


# The libraries of the driver.


def compat_libcuda(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """A compat ``libcuda`` that comes first on the library path (rule 8)."""
    path = stage.variables.get("LD_LIBRARY_PATH", "")
    # A build sees no driver, so another stage does not fail.
    image = asked.image(stage) if stage is asked.final else None
    if not any(part.rstrip("/").endswith("compat") for part in path.split(":")) or image is None or not image.cuda:
        return
    cuda = str(CudaVersion.parse(image.cuda))
    for machine in asked.machines:
        reason = compat_serves(machine.with_compat(cuda), asked.facts.forward)
        if reason is not None and reason.ok is False:
            text = (
                f"LD_LIBRARY_PATH makes the loader use the cuda-compat libcuda of CUDA "
                f"{cuda}; on {one_line(machine)}: {reason.text}"
            )
            remedies = ("remove the compat directory from LD_LIBRARY_PATH",)
            yield Finding(stage.root.line, "compat-libcuda", "error", text, remedies, asked.title(reason.source))


_INSTALLERS = frozenset({"apt", "apt-get", "aptitude", "dnf", "yum", "microdnf", "zypper"})
# The packages cuda and cuda-12-4 contain a driver, cuda-toolkit-12-4 does not. Source: CUDA Installation Guide for
# Linux, "Meta Packages".
_WHOLE = re.compile(r"cuda(-\d+-\d+)?")
_DRIVER = re.compile(
    r"cuda-drivers(-\d+)?|nvidia-(driver|utils|headless|dkms|kernel-\w+)(-[\w-]+)?|libnvidia-(compute|gl|ml|cfg)\w*(-(?!dev$)[\w-]+)?"
)


def driver_in_image(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """A driver in the image clashes with the host's, which the container runtime mounts.

    Source: NVIDIA Container Toolkit documentation.
    """
    for command in stage.commands:
        if command.program not in _INSTALLERS or "install" not in command.words:
            continue
        for word in command.words[command.words.index("install") + 1 :]:
            name = re.split("[=:]", word, maxsplit=1)[0]
            if _WHOLE.fullmatch(name) or _DRIVER.fullmatch(name):
                text = (
                    f"{name} installs driver libraries into the image, but the "
                    "container runtime adds the host's; programs "
                )
                text += "that load libraries of both versions fail (Driver/library version mismatch)"
                toolkit = name.replace("cuda", "cuda-toolkit", 1)
                remedy = f"install {toolkit} instead" if _WHOLE.fullmatch(name) else "do not install it"
                yield Finding(command.line, "driver-in-image", "warning", text, (remedy,))


# The Python and the libc, which decide which wheels pip finds.


def python(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The distribution's Python is too old for every newer torch.

    A torch that was chosen, has a wheel for that Python and runs is not a finding.
    """
    own_python = asked.within(stage).python
    chosen = [install for install in asked.installs(stage.commands) if install.names("torch")]
    if own_python is None or not chosen or all(_is_fine(install, own_python, asked) for install in chosen):
        return
    # The order of plans, not the newest version: a newer torch need not run on the machines.
    known = asked.offers("torch")
    best, own = next(running(known, Within()), None), next(running(known, Within(own_python)), None)
    if best is None or (own is not None and own.version.release >= best.version.release):
        return
    text = f"{stage.root.image} has Python {own_python}: "
    text += (
        f"the newest torch that has a wheel for it and runs on the machines is "
        f"{own.build.version}; with another Python it is {best.build.version}"
        if own
        else f"no torch that runs on the machines has a wheel for this Python; torch "
        f"{best.build.version} has wheels for others"
    )
    yield Finding(stage.root.line, "base-python", "warning", text, tuple(_newer_python(stage, best, asked)))


def _is_fine(install: Install, own_python: str, asked: Asked) -> bool:
    """Whether the pinned torch runs with that Python."""
    if not any(wanted.name == "torch" and pinned(wanted.requirement.specifier) for wanted in install.wanted):
        return False
    taken = asked.taken(install, "torch", Within(own_python))
    return install.places.unknown or (taken is not None and taken.refused is None)


def _newer_python(stage: Stage, best: Offer, asked: Asked) -> Iterator[str]:
    """An official image of Python if nothing is compiled; the same image on a newer distribution otherwise."""
    if not any(map(nvcc_code, stage.commands)) and not any(compiled_in(stage, asked)):
        kept = (i for i in asked.catalogue.images if i.repository == "python" and not i.retired)
        if images := [image for image in kept if best.for_python(image.version)]:
            # The middle one: the newest Python lacks wheels of many packages, the oldest is retired first.
            image = sorted(images, key=lambda i: DriverVersion.parse(i.version))[len(images) // 2]
            yield f"FROM {image.repository}:{image.tags[0]}"
    yield (
        f"install a newer Python in the image (uv venv --python "
        f"{asked.catalogue.pythons[0]}), and use the pip of that Python"
    )


def libc(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """pip finds no wheel that requires a newer glibc, or glibc on a musl system (rule 11)."""
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
            text += f"{wanted.requirement} requires "
            text += "glibc" if within.libc[0] == "musl" else f"{libc_text(needed)} or newer"
            remedies = (_newer_libc(within, asked),)
            yield Finding(install.command.line, "image-libc", "error", text + ", so pip finds no wheel", remedies)


def _newer_libc(within: Within, asked: Asked) -> str:
    """The official image of the same Python."""
    wanted = within.python or asked.catalogue.pythons[0]
    tags = [i.tags[0] for i in asked.catalogue.images if (i.repository, i.version) == ("python", wanted)]
    return (
        f"FROM python:{tags[0]}" if tags else f"start from an image with a newer glibc: python:{wanted}-slim-bookworm"
    )


def of_other_vendor(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """The final image holds the builds of another vendor's GPUs, and a machine has NVIDIA's."""
    image, wanted = stage.root.image, next((gpu for machine in asked.machines for gpu in machine.gpus or ()), None)
    routes = (route for route in asked.catalogue.vendor_routes if route.images and re.search(route.images, image))
    route = next(routes, None)
    if stage is asked.final.root and route and wanted:
        text = f"{image} contains {route.name}'s {route.build} builds, which do not run on {wanted.label}"
        remedy = f"start from an image for NVIDIA GPUs: envsolve plan torch {asked.targets} --format dockerfile"
        yield Finding(stage.line, "image-gpu", "error", text, (remedy,))


CHECKS = (compat_libcuda, driver_in_image, libc, python, platform, tag, driver, of_other_vendor)

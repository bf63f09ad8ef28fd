"""The image that a stage starts from: whether there is such a one, and whether the machines' drivers start it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envsolve.dockerfile.model import Finding, Stage
from envsolve.dockerfile.offers import Name
from envsolve.dockerfile.packages import Asked, started
from envsolve.facts.channels import Image, ImageRequirement
from envsolve.machine.describe import one_line
from envsolve.machine.model import Machine
from envsolve.rules.nvidia.driver import driver_runs
from envsolve.values import CudaVersion, DriverVersion


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """Look at the tag, then at what it asks of the driver."""
    name = Name.of(stage.image)
    if stage is asked.final.root:
        yield from _for_another_platform(stage, asked)
    if stage.base is not None or not name.known:
        return
    known = [image for image in asked.catalogue.images if image.repository == name.repository]
    image = asked.image(stage)
    if image is None:
        if name.repository == "nvidia/cuda" and _all_are_known(name.tag, known):
            text = f"no image {name.repository}:{name.tag} is known to have been published"
            yield Finding(stage.line, "image-unknown", "error", text, _near(known, name.tag))
        return
    if image.retired:
        yield _retired(stage, name, image, known)
    requirement = asked.catalogue.image_requirements.get(image.version) if image.cuda else None
    if requirement is not None and stage is asked.final.root and not _overruled(asked.final):
        for machine in asked.machines:
            if not started(requirement, machine, asked):
                yield _refused(stage, requirement, machine, asked)


def _for_another_platform(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``FROM --platform`` against the machines; a variable there stands for the platform of the build."""
    system, _, arch = stage.platform.partition("/")
    meant = {"amd64": "x86_64", "arm64": "aarch64"}.get(arch.partition("/")[0], arch)
    machine = next((m for m in asked.machines if m.platform and m.platform.arch not in (None, meant)), None)
    if machine is not None and system and "$" not in stage.platform:
        text = f"the image is for {stage.platform}, and does not run on {one_line(machine)}"
        yield Finding(stage.line, "image-platform", "error", text, ("leave --platform out, and give it to the build",))


def _retired(stage: Stage, name: Name, image: Image, known: Sequence[Image]) -> Finding:
    """NVIDIA deletes what it has retired; Docker's official images of Python stay, and are built no more."""
    text = f"{name.repository}:{name.tag} is retired: "
    if name.repository == "python":
        remedies: tuple[str, ...] = ("take a Python that is maintained",)
        text += "it gets no more fixes"
    else:
        remedies = _newer(known, image, name.tag)
        text += "its publisher deletes such tags in time"
    return Finding(stage.line, "image-retired", "warning", text, remedies)


def _all_are_known(tag: str, known: Sequence[Image]) -> bool:
    """Whether every tag of its version is: of newer versions the catalogue has those that somebody was seen to use."""
    seen = {image.version for image in known if not image.source.endswith("dockerfiles")}
    first = min((DriverVersion.parse(version) for version in seen), default=())
    return not DriverVersion.parse(tag) or not first or DriverVersion.parse(tag.partition("-")[0]) < first


def _overruled(final: Stage) -> bool:
    """Whether the file itself puts another condition in the place of the image's, or none."""
    switched_off = final.variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true")
    return switched_off or "NVIDIA_REQUIRE_CUDA" in final.variables


def _refused(stage: Stage, requirement: ImageRequirement, machine: Machine, asked: Asked) -> Finding:
    driver = machine.driver
    have = f"driver {driver.version} reports CUDA {driver.cuda}" if driver else "the driver is older"
    text = (
        f"{stage.image} asks for CUDA {requirement.cuda} of the driver; on {one_line(machine)} the container runtime "
        f"refuses to start it, since {have}"
    )
    cuda = CudaVersion.parse(driver.cuda) if driver and driver.cuda else (0, 0)
    older = [
        i
        for i in asked.catalogue.images
        if i.repository == "nvidia/cuda" and not i.retired and CudaVersion.parse(i.version) <= cuda
    ]
    best = max(older, key=lambda image: DriverVersion.parse(image.version), default=None)
    remedies = [f"start from an image of CUDA {best.version} or older"] if best else []
    remedies.append("where wheels bring CUDA, start from an image without it: python:3.12-slim-bookworm")
    fit = driver_runs(requirement.cuda, driver, "linux", asked.facts.toolkits, asked.facts.floors)
    if fit.mode == "minor-version":
        remedies.append(f"ENV NVIDIA_DISABLE_REQUIRE=1: this driver runs CUDA {cuda[0]} by minor-version compatibility")
    source = asked.catalogue.source(requirement.source)
    return Finding(stage.line, "image-driver", "error", text, tuple(remedies), source.title if source else None)


def _near(known: Sequence[Image], tag: str) -> tuple[str, ...]:
    """The tag that shares the most with what was written, of the same version or the next one."""
    wanted = set(tag.split("-"))
    family = tag.split("-")[-1].rstrip("0123456789.")
    version = CudaVersion.parse(tag)
    tags = [
        (image, t)
        for image in known
        if not image.retired and CudaVersion.parse(image.version) >= version
        for t in image.tags
    ]

    def distance(pair: tuple[Image, str]) -> tuple[tuple[int, ...], int, bool]:
        """Of those that share as much, one on the same distribution."""
        image, other = pair
        return (
            CudaVersion.parse(image.version),
            -len(wanted & set(other.split("-"))),
            other.split("-")[-1].rstrip("0123456789.") != family,
        )

    best = min(tags, key=distance, default=None)
    return (f"FROM {best[0].repository}:{best[1]}",) if best else ()


def _newer(known: Sequence[Image], image: Image, tag: str) -> tuple[str, ...]:
    """The nearest release that is kept and has the same kind on the same distribution."""
    kind = tag.removeprefix(f"{image.version}-").removesuffix(f"-{image.distribution}")
    plain = kind.replace("cudnn8", "cudnn").replace("cudnn9", "cudnn")
    kept = [
        (DriverVersion.parse(i.version), own != kind, f"FROM {i.repository}:{i.version}-{own}-{i.distribution}")
        for i in known
        for own in i.kinds
        if not i.retired
        and i.distribution == image.distribution
        and DriverVersion.parse(i.version) > DriverVersion.parse(image.version)
        if own in (kind, plain)
    ]
    return tuple(text for _, _, text in sorted(kept)[:1])

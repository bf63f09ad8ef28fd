"""``no-such-build``, ``python-caps-build`` and ``index-confusion``: what was asked for, and what is published where."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve.diagnose.causes._asked import Asked, asked_for
from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import image_remedies
from envsolve.diagnose.remedies.torch import (
    conda_remedies,
    installer,
    jetson_remedies,
    led_by,
    pair_with,
    replacements,
    with_another_python,
)
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.facts.builds import Build
from envsolve.machine.model import Platform

_NONE = (
    "{asked} is not published, here or elsewhere: {published}. Not every version exists in every CUDA flavour, and a "
    "flavour is not the CUDA version that nvidia-smi shows. A build of a neighbouring version or flavour does the "
    "same work."
)
_PYTHON = (
    "{asked} is published, but not for Python {python}: its wheels are for {pythons}. An installer sees only the "
    "files for its own interpreter, and so reports that there is no such version. Another Python finds it; so does "
    "another version in this one."
)
_ELSEWHERE = (
    "{asked} is published on {where}, and the installer did not look there, or looked there last. pip takes the "
    "highest version of all its indexes, uv the first index that has the name at all. The index must be named for "
    "this package."
)
_PLATFORM = (
    "{asked} is published, but not for {platform}. An installer sees only the files for its own platform, and so "
    "reports that there is no such version. A version that has a file for this platform does."
)
_UNKNOWN = (
    "What was asked for is not on the index or channel that was asked: {asked}. A name, a version or a tag that "
    "never was, or was withdrawn, looks the same to an installer. The list of what there is decides."
)
_REQUIRES_PYTHON = (
    "The package states which Pythons it serves, and {python} is none of them: {range}. Installers skip all releases "
    "that do not serve the interpreter. Another Python, or an older release, is needed."
)
_FIRST_INDEX = (
    "uv takes a package from the first index that has its name, to keep look-alikes out, and looks no further: "
    "{index} has the name but not this version. pip, in contrast, merges all indexes. The index that is meant must "
    "be bound to the package."
)
_FIRST_INDEX_TOOK = (
    "uv takes a package from the first index that has its name. {index} also has copies of some packages that torch "
    "depends on, but not for every Python and platform, and it was asked first for all of them: so {package} was taken "
    "from there. The index must be bound to torch alone, and all else then comes from the default index."
)
_CHANNEL = (
    " The channels were asked for {subdir}: the pytorch channel has no CUDA build for {subdir} at all; conda-forge "
    "publishes such builds, and NVIDIA those for a Jetson."
)
_DEPENDENCY = (
    "{package}, which torch pins, has no file on the index in use, so the whole set cannot be met: an --index-url "
    "takes the place of the default index, and single files have vanished from PyTorch's own. The torch that was "
    "asked for does exist. The pinned package is still on PyPI."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Look what was asked for up in the catalogue."""
    if match := scene.first("conflict-unavailable"):
        yield _dependency(scene, match)
        return
    if match := scene.first("uv-first-index"):
        text = _FIRST_INDEX.format(index=match.group("index") or "it")
        yield Finding("index-confusion", Grounds.STATED, text, lines(match), tuple(_bind_index(scene)), _OTHERS)
    elif (match := scene.first("uv-from-index")) and not scene.catalogue.builds(match.groups["package"].lower()):
        text = _FIRST_INDEX_TOOK.format(package=match.groups["package"], index=match.groups["index"])
        yield Finding("index-confusion", Grounds.STATED, text, lines(match), tuple(_bind_index(scene)), _OTHERS)
    elif asked := asked_for(scene):
        yield from _ignored(scene, asked) or _looked_up(scene, asked)
    if match := scene.first("requires-python"):
        text = _REQUIRES_PYTHON.format(
            python=match.group("have") or scene.python or "this one", range=match.group("range", "other")
        )
        another = with_another_python(scene)
        remedies = (another[1],) if another else (_another_python(scene, match.group("range", "other") or ""),)
        yield Finding("python-caps-build", Grounds.STATED, text, lines(match), remedies)
    if match := scene.first("uv-wheels"):
        yield from _wheels(scene, match)
    if match := scene.first("conda-python"):
        text = _REQUIRES_PYTHON.format(python=scene.python or "this one", range=match.groups["range"])
        yield Finding(
            "python-caps-build",
            Grounds.STATED,
            text,
            lines(match),
            (_another_python(scene, match.groups["range"]), *_conda(scene)),
        )
    if match := scene.first("conda-none", "conda-needed"):
        text = _UNKNOWN.format(asked=match.group("package", "name", "spec")) + _of_channels(scene)
        yield Finding("no-such-build", Grounds.STATED, text, lines(match), tuple(_conda(scene)))
    if match := scene.first("image-gone"):
        parts = ":".join(filter(None, (match.group("where"), match.group("tag"))))
        image = match.group("image", "ref") or parts or "the image"
        text = _UNKNOWN.format(asked=image)
        yield Finding("no-such-build", Grounds.STATED, text, lines(match), tuple(image_remedies(scene, image)))
    if (match := scene.first("wheel-gone")) and not scene.mentions(".lock", "pylock", "--require-hashes"):
        text = _UNKNOWN.format(asked=match.group("url", "file", "named"))
        elsewhere = jetson_remedies(scene) or replacements(scene)
        yield Finding("no-such-build", Grounds.STATED, text, lines(match), elsewhere)


_OTHERS = frozenset({"no-such-build", "python-caps-build"})


def _wheels(scene: Scene, match: Match) -> Iterator[Finding]:
    """uv says itself which part of the tags does not fit."""
    name, version = match.group("package", "name") or "it", match.group("version")
    asked = f"{name} {version}" if version else name
    remedies = _nearest(scene, canonicalize_name(name), f"=={version}" if version else "")
    if match.groups["what"].lower() == "platform":
        platform = scene.machine.platform or Platform()
        text = _PLATFORM.format(asked=asked, platform=f"{platform.os} {platform.arch}")
        yield Finding("no-such-build", Grounds.STATED, text, lines(match), remedies)
        return
    listed = sorted(set(re.findall(r"cp3(\d+)", scene.report.text)), key=int)
    pythons = ", ".join(f"3.{minor}" for minor in listed) or "others"
    text = _PYTHON.format(asked=asked, python=scene.python or "this one", pythons=pythons)
    yield Finding(
        "python-caps-build", Grounds.STATED, text, lines(match), (*remedies, _another_python(scene, "")), _OTHERS
    )


def _ignored(scene: Scene, asked: Asked) -> tuple[Finding, ...]:
    """What pip itself says: it has the versions asked for, and passed over them for their Pythons."""
    match = scene.first("pip-ignored")
    if match is None:
        return ()
    listed = re.findall(r"([\w.+!]{1,40}) Requires-Python ([<>=!~][^ ;]{1,40})", match.groups["listed"])
    ranges = [pythons for version, pythons in listed if asked.takes(version)]
    if not ranges:
        return ()
    text = _REQUIRES_PYTHON.format(python=scene.python or "this one", range=ranges[-1])
    another = with_another_python(scene)
    remedies = (another[1],) if another else (_another_python(scene, ranges[-1]),)
    return (Finding("python-caps-build", Grounds.STATED, text, lines(asked.match, match), remedies, _OTHERS),)


def _looked_up(scene: Scene, asked_: Asked) -> Iterator[Finding]:
    name, wanted, asked, evidence = asked_.name, asked_.wanted, asked_.words, lines(asked_.match)
    if name.startswith("nvidia-") and scene.mentions("torch"):
        # Torch pins it exactly, and uv looks no further than the first index that has the name.
        text = _FIRST_INDEX.format(index="the index that was asked first")
        remedies = (_pinned_first(asked), *_bind_index(scene))
        yield Finding("index-confusion", Grounds.STATED, text, evidence, remedies, _OTHERS)
        return
    if not asked_.known and (index := _TORCH_ONLY.search(scene.report.text)):
        text = _FIRST_INDEX_TOOK.format(package=name, index=index["address"])
        yield Finding("index-confusion", Grounds.STATED, text, evidence, tuple(_bind_index(scene)), _OTHERS)
        return
    if not asked_.known:
        remedy = Remedy("See which versions the index has.", f"pip index versions {name}")
        yield Finding("no-such-build", Grounds.SUGGESTED, _UNKNOWN.format(asked=asked), evidence, (remedy,))
        return
    if asked_.libc:
        return  # ``libc.py`` tells it
    here, fitting, platform = asked_.here, asked_.fitting, scene.machine.platform or Platform()
    if not asked_.meant:
        text = _NONE.format(asked=asked, published=_published(asked_.known, wanted))
        yield Finding("no-such-build", Grounds.CONFIRMED, text, evidence, _nearest(scene, name, wanted))
    elif not here:
        text = _PLATFORM.format(asked=asked, platform=f"{platform.os} {platform.arch}")
        yield Finding("no-such-build", Grounds.CONFIRMED, text, evidence, _nearest(scene, name, wanted))
    elif not fitting:
        pythons = ", ".join(sorted({_python(p) for b in here for p in b.pythons}, key=Version))
        text = _PYTHON.format(asked=asked, python=scene.python, pythons=pythons)
        newest = max({_python(p) for b in here for p in b.pythons}, key=Version)
        remedies = (*_nearest(scene, name, ""), _another_python(scene, newest))
        yield Finding("python-caps-build", Grounds.CONFIRMED, text, evidence, remedies, frozenset({"no-such-build"}))
    else:
        indexes = sorted({build.index for build in fitting})
        where = " and ".join("PyPI" if index == "default" else "PyTorch's own index" for index in indexes)
        text = _ELSEWHERE.format(asked=asked, where=where)
        remedies = _nearest(scene, name, wanted)
        if "+" in wanted:
            # It exists to the letter: another flavour is no remedy.
            remedies = remedies[-1:]
        if scene.python is None:
            # Which Python it is decides first, and the report does not tell.
            yield Finding(
                "python-caps-build",
                Grounds.SUGGESTED,
                _PYTHON.format(
                    asked=asked,
                    python="(not told)",
                    pythons=", ".join(sorted({_python(p) for b in here for p in b.pythons}, key=Version)),
                ),
                evidence,
                remedies,
            )
        yield Finding("index-confusion", Grounds.SUGGESTED, text, evidence, (*_bind_index(scene), *remedies), _OTHERS)


#: An index given in the place of the default one, which has torch and a few more.
_TORCH_ONLY = re.compile(r"--(?:default-)?index(?:-url)?[= ](?:[\w-]+=)?(?P<address>https?://\S{1,100}/whl/\w+)")


def _pinned_first(asked: str) -> Remedy:
    return Remedy(
        f"Leave the extra index out, or install {asked} from PyPI first: the very version that torch pins is there.",
        f"pip install {asked}",
    )


def _published(builds: tuple[Build, ...], wanted: str) -> str:
    version = re.search(r"\d+(?:\.\d+)+", wanted)
    variants = sorted({b.variant for b in builds if version and b.version == version[0]})
    if variants and version:
        return f"{version[0]} exists as {', '.join(variants)}"
    versions = sorted({b.version for b in builds}, key=Version)
    return f"versions {versions[0]} to {versions[-1]} exist"


def _python(tag: str) -> str:
    """``cp312`` as ``3.12``."""
    match = re.match(r"(?:cp|py)(\d)(\d*)", tag)
    return f"{match[1]}.{match[2] or 0}" if match else "0"


def _nearest(scene: Scene, name: str, wanted: str) -> tuple[Remedy, ...]:
    """The same version in a flavour that exists, then the best there is."""
    found = []
    version = re.search(r"\d+(?:\.\d+)+", wanted)
    if version:
        found.append(pair_with(scene, {name: SpecifierSet(f"=={version[0]}")}))
    found.append(pair_with(scene, {name: SpecifierSet()}))
    return tuple(remedy for remedy in found if remedy)


def _another_python(scene: Scene, text: str) -> Remedy:
    version = re.search(r"3\.\d+", text)
    python = version[0] if version else scene.catalogue.pythons[0]
    return Remedy(f"Make an environment with Python {python}.", f"uv venv --python {python}")


def _bind_index(scene: Scene) -> Iterator[Remedy]:
    """The index named for torch alone, by whichever tool is at work."""
    named = re.search(r"\btorch==(?P<version>\d[\w.]*)\+(?P<flavour>cu\d{2,3})", scene.report.text)
    index = re.search(r"/whl/(?P<flavour>cu\d{2,3})\b", scene.report.text)
    match = named or index
    flavour = match["flavour"] if match else next(iter(scene.family.flavours), "cu126")
    address = f"https://download.pytorch.org/whl/{flavour}"
    if named:
        yield Remedy(
            f"Ask the index of {flavour} alone for torch.",
            f"{installer(scene)} install torch=={named['version']}+{flavour} --index-url {address}",
        )
    if scene.mentions("poetry"):
        yield Remedy(
            'Bind torch to its index: a source of priority "explicit" serves only what names it.',
            f"poetry source add --priority=explicit pytorch-{flavour} {address} && poetry add --source "
            f"pytorch-{flavour} torch",
        )
        return
    yield Remedy(
        "Bind torch to its index in pyproject.toml ([tool.uv.sources], and explicit = true in [[tool.uv.index]]), "
        "so that only "
        "torch is taken from there.",
        f"uv add torch --index pytorch-{flavour}={address}",
    )
    if scene.mentions("[tool.uv.pip]"):
        yield Remedy(
            "Move the indexes from [tool.uv.pip] to [tool.uv]: the former is for `uv pip` alone, not `uv sync`."
        )
    if scene.mentions("uv "):
        yield Remedy("Or let uv choose the index for the driver.", "uv pip install torch --torch-backend=auto")


def _dependency(scene: Scene, match: Match) -> Finding:
    package = match.groups["package"]
    pin = re.search(rf"{re.escape(package)}==([\w.]+)", scene.report.text)
    wanted = f"{package}=={pin[1]}" if pin else package
    torch = re.search(r"\btorch==(\d[\w.]*)(?:\+(cu\d+))?", scene.report.text)
    index = re.search(r"https?://download\.pytorch\.org/whl/(cu\d+)", scene.report.text)
    variant = (torch[2] if torch else None) or (index[1] if index else None)
    again = (
        f"torch=={torch[1]}+{variant} --index-url https://download.pytorch.org/whl/{variant}"
        if torch and variant
        else "torch"
    )
    first = Remedy(
        f"Install {wanted} from PyPI first, the default index; then torch from its own index finds it in place.",
        f"pip install {wanted} && pip install {again}",
    )
    if torch and variant:
        merged = Remedy(
            "Or let the default index stand in for what PyTorch's lacks, with the build named to the letter, so "
            "that no other "
            "can win.",
            f"pip install 'torch=={torch[1]}+{variant}' --extra-index-url https://download.pytorch.org/whl/{variant}",
        )
        return Finding(
            "no-such-build", Grounds.STATED, _DEPENDENCY.format(package=package), lines(match), (first, merged)
        )
    return Finding("no-such-build", Grounds.STATED, _DEPENDENCY.format(package=package), lines(match), (first,))


def _of_channels(scene: Scene) -> str:
    """What there is for a platform that the pytorch channel does not serve."""
    subdir = re.search(r"conda\.anaconda\.org/pytorch/(?P<subdir>linux-aarch64|linux-ppc64le)", scene.report.text)
    return _CHANNEL.format(subdir=subdir["subdir"]) if subdir else ""


def _conda(scene: Scene) -> Iterator[Remedy]:
    for remedy in conda_remedies(scene)[-1:]:
        yield led_by("The pytorch channel ended with 2.5.1, and pytorch-cuda with it", remedy)
    yield from replacements(scene)[:1]

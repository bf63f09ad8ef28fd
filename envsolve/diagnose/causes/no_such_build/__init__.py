"""``no-such-build``: what was requested is not published, or is gone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve._default_index import DEFAULT_INDEX
from envsolve.diagnose.causes._asked import Asked, is_locked, looked_up, nearest
from envsolve.diagnose.causes._shared import Cause, lines, pytorch_index, vendors_own
from envsolve.diagnose.fixes import (
    conda_remedies,
    installer,
    jetson_package,
    jetson_remedies,
    led_by,
    pair_with,
    replacements,
)
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.project_fixes import project_of_report
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import image_remedies

CAUSE = Cause.of(__name__)
_FILE = re.compile(r"(?:-f|--file)[ =](?P<file>[\w./-]+\.ya?ml)")
#: Pins of one variant in a command or a file: ``torchvision==0.16.0+cu118``.
_PINNED = re.compile(r"\b([A-Za-z][\w.-]{0,60})={2,3}(\d[\w.]{0,30})(\+(?:cu\d+|cpu))?(?=[\s,;'\"`]|$)", re.MULTILINE)


def from_report(scene: Scene) -> Iterator[Finding]:
    """Look up what was requested; an installer, a channel or a registry names it."""
    if match := scene.first("conflict-unavailable"):
        yield _dependency(scene, match)
        return
    if match := CAUSE.first(scene, "arm-variant"):
        have = match.group("have", "needs") or "sbsa"
        yield CAUSE.finding("arm-variant", Grounds.STATED, lines(match), _of_other_kind(scene, have), have=have)
    if asked := looked_up(scene):
        yield from _not_published(scene, asked)
    if (match := scene.first("uv-wheels")) and match.groups["what"].lower() == "platform" and not is_locked(scene):
        yield _of_uv(scene, match)
    if (match := scene.first("conda-needed")) and scene.on_mac and re.match("cuda|pytorch-cuda", match.groups["name"]):
        file = _FILE.search(scene.report.text)
        fixes = [CAUSE.fix("conda-mac", file=file["file"] if file else "environment.yml")]
        yield CAUSE.finding("conda-mac", Grounds.STATED, lines(match), fixes, asked=match.groups["name"])
    elif match := scene.first("conda-none", "conda-needed"):
        yield _unknown(match, match.group("package", "name", "spec", "wanted"), _conda(scene), channel=_channels(scene))
    if match := scene.first("image-gone"):
        parts = ":".join(filter(None, (match.group("where"), match.group("tag"))))
        image = match.group("image", "ref") or parts or "the image"
        yield _unknown(match, image, image_remedies(scene, image))
    if (match := scene.first("wheel-gone")) and not scene.mentions(".lock", "pylock", "--require-hashes"):
        yield _unknown(match, match.group("url", "file", "named"), jetson_remedies(scene) or replacements(scene))


def _of_uv(scene: Scene, match: Match) -> Finding:
    """uv itself says that a version has no wheel for the platform."""
    name, version = match.group("package", "name") or "it", match.group("version")
    if scene.on_mac and scene.catalogue.builds(canonicalize_name(name)) and "+" in (version or ""):
        return _on_mac(scene, match, name, f"=={version}")
    words = f"{name} {version}" if version else name
    if plain := plain_version(scene, name, version):
        arch = scene.platform.arch
        fix = CAUSE.fix("uv-local", package=name, local=version, plain=plain, arch=arch)
        values = {"asked": words, "version": plain, "platform": _platform(scene)}
        return CAUSE.finding("local-uv", Grounds.CONFIRMED, lines(match), [fix], ("lock-incomplete",), **values)
    fixes = nearest(scene, canonicalize_name(name), f"=={version}" if version else "")
    return CAUSE.finding("platform", Grounds.STATED, lines(match), fixes, asked=words, platform=_platform(scene))


def plain_version(scene: Scene, name: str, version: str | None) -> str | None:
    """The version without its local part, if this platform has only that one: ``2.6.0`` for ``2.6.0+cpu``."""
    plain, _, local = (version or "").partition("+")
    here = [b for b in scene.published(canonicalize_name(name)) if b.version == plain]
    return plain if local and here and all(b.local != f"+{local}" for b in here) else None


def _of_other_kind(scene: Scene, have: str) -> Iterator[Fix]:
    """The newest pytorch of conda-forge for the other kind of aarch64 systems, then for the kind of the candidates."""
    tool = "pixi add" if scene.mentions("pixi") else "conda install -c conda-forge"
    for kind in ({"sbsa": "tegra", "tegra": "sbsa"}[have], have):
        records = [record for record in scene.catalogue.conda if record.arm == kind and record.cuda]
        newest = max(records, key=lambda record: (Version(record.version), record.cuda or ""), default=None)
        if newest:
            yield CAUSE.fix("arm-variant", tool=tool, kind=kind, version=newest.version, cuda=newest.cuda)


def _unknown(match: Match, asked: str | None, fixes: Iterable[Fix], channel: str = "") -> Finding:
    return CAUSE.finding("unknown", Grounds.STATED, lines(match), fixes, asked=asked, channel=channel)


def _not_published(scene: Scene, asked: Asked) -> Iterator[Finding]:
    evidence, words = lines(asked.match), asked.words
    if asked.why == "mac":
        yield _on_mac(scene, asked.match, asked.name, asked.wanted)
    elif asked.match.signature.id == "poetry-none" and asked.lacks_local:
        values = {"version": asked.wanted.lstrip("=").partition("+")[0], "platform": _platform(scene)}
        fixes = [CAUSE.fix("poetry-local", version=values["version"], arch=scene.platform.arch)]
        yield CAUSE.finding("local", Grounds.CONFIRMED, evidence, fixes, ("cpu-build",), asked=words, **values)
    elif asked.known and scene.is_jetson and (own := jetson_package(scene, asked.name)):
        yield CAUSE.finding("platform", Grounds.STATED, evidence, [own], asked=words, platform=CAUSE.words("jetson"))
    elif asked.why == "unknown":
        fixes = [CAUSE.fix("versions", package=asked.name)]
        if asked.name in ("jax", "jaxlib") and "+cuda" in scene.report.text:
            fixes.insert(0, CAUSE.fix("jax"))
        if _lags(scene, asked):
            values = {"asked": asked.words, "index": DEFAULT_INDEX.rstrip("/")}
            fixes.insert(0, CAUSE.fix("default-index", pip=installer(scene), **values))
        yield CAUSE.finding("unknown", Grounds.SUGGESTED, evidence, fixes, asked=words, channel="")
    elif asked.name == "triton" and scene.os == "windows":
        fixes = [CAUSE.fix("triton-windows")]
        yield CAUSE.finding("platform", Grounds.CONFIRMED, evidence, fixes, asked=words, platform=_platform(scene))
    elif asked.why in ("never", "platform"):
        fixes_ = (*_spelt(scene, asked), *nearest(scene, asked.name, asked.wanted, asked.no_variant))
        name = "none" if asked.why == "never" else "platform"
        words += f" ({asked.no_variant})" if asked.no_variant else ""
        values = {"published": _published(asked)} if asked.why == "never" else {"platform": _platform(scene)}
        yield CAUSE.finding(name, Grounds.CONFIRMED, evidence, fixes_, asked=words, **values)


_SPELT_OTHERWISE = re.compile(
    r"==(?P<version>\d[\w.]*)\+(?:cu|cuda)[-_.]?(?P<major>\d\d?)[._]?(?P<minor>\d)$", re.IGNORECASE
)


def _spelt(scene: Scene, asked: Asked) -> Iterator[Fix]:
    """The same build under the name that its index gives it: ``+cu110`` for ``+cu11.0``."""
    if match := _SPELT_OTHERWISE.match(asked.wanted):
        name = f"cu{match['major']}{match['minor']}"
        if any(build.version == match["version"] and build.variant == name for build in asked.known):
            pinned = SpecifierSet(f"=={match['version']}+{name}")
            yield from filter(None, [pair_with(scene, {asked.name: pinned})])


def _on_mac(scene: Scene, match: Match, name: str, wanted: str) -> Finding:
    """A variant of torch on macOS, whose wheels have none: the same versions without it."""
    if match.signature.id == "poetry-none":
        fixes = [CAUSE.fix("poetry-mac")]
    elif project_of_report(scene) or scene.mentions("@ registry+"):  # uv names the lock's index so
        fixes = [CAUSE.fix("project-mac")]
    else:
        pins = {canonicalize_name(one): (version, local) for one, version, local in _PINNED.findall(scene.report.text)}
        same = [one for one in pins if one in ("torch", "torchvision", "torchaudio")] or [canonicalize_name(name)]
        version = wanted.lstrip("=").partition("+")[0]
        pinned = {one: pins[one][0] if one in pins else version for one in same}
        names = " ".join(f"{one}=={pin}" if pin else one for one, pin in pinned.items())
        fixes = [CAUSE.fix("mac", pip=installer(scene), names=names)]
    consequences = ("lock-incomplete", "index-confusion", "python-caps-build")
    return CAUSE.finding("mac", Grounds.STATED, lines(match), fixes, consequences, asked=f"{name}{wanted}")


_LISTED = re.compile(r"from versions: ([^)\n]{1,4000})\)")


def _lags(scene: Scene, asked: Asked) -> bool:
    """Whether the index has only older versions of a package than the one requested: it may be a mirror that lags."""
    listed = _LISTED.search(scene.report.text)
    return listed is not None and "none" not in listed[1] and ">" in asked.wanted


def _platform(scene: Scene) -> str:
    return f"{scene.platform.os} {scene.platform.arch}"


def _published(asked: Asked) -> str:
    version = re.search(r"\d+(?:\.\d+)+", asked.wanted)
    variants = sorted({b.variant for b in asked.known if version and b.version == version[0]})
    if variants and version:
        return CAUSE.words("variants", version=version[0], variants=", ".join(variants))
    versions = sorted({b.version for b in asked.known}, key=Version)
    return CAUSE.words("versions", first=versions[0], last=versions[-1])


def _dependency(scene: Scene, match: Match) -> Finding:
    package, text = match.groups["package"], scene.report.text
    pin = re.search(rf"{re.escape(package)}==([\w.]+)", text)
    torch = re.search(r"\btorch==(\d[\w.]*)(?:\+(cu\d+))?", text)
    index = re.search(rf"{re.escape(pytorch_index(scene, ''))}(cu\d+)", text)
    variant = (torch[2] if torch else None) or (index[1] if index else None)
    wanted = f"{package}=={pin[1]}" if pin else package
    if torch and variant:
        url = pytorch_index(scene, variant)
        again = f"torch=={torch[1]}+{variant} --index-url {url}"
        merged = CAUSE.fix("merged", version=torch[1], variant=variant, index=url)
        fixes = [CAUSE.fix("pinned-first", wanted=wanted, torch=again), merged]
    else:
        fixes = [CAUSE.fix("pinned-first", wanted=wanted, torch="torch")]
    return CAUSE.finding("dependency", Grounds.STATED, lines(match), fixes, package=package)


def _channels(scene: Scene) -> str:
    """The builds for a platform that the pytorch channel does not support."""
    subdir = re.search(r"conda\.anaconda\.org/pytorch/(?P<subdir>linux-aarch64|linux-ppc64le)", scene.report.text)
    return " " + CAUSE.words("channel", subdir=subdir["subdir"]) if subdir else ""


def _conda(scene: Scene) -> Iterator[Fix]:
    if own := vendors_own(scene):
        yield own
        return
    for remedy in conda_remedies(scene)[-1:]:
        yield led_by(CAUSE.words("conda-forge"), remedy)
    yield from replacements(scene)[:1]

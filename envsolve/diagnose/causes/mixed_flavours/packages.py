"""Packages whose own words say that they do not go with the torch beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.diagnose.causes._shared import Cause, fixes_here, lines, pytorch_index, torch_evidence
from envsolve.diagnose.fixes import for_torch_at_hand, pair_with, release_for, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, public
from envsolve.diagnose.rebuilding import source_tree
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.facts.builds import Build
from envsolve.solve.preferences import DEFAULT
from envsolve.values import CudaVersion, Variant

CAUSE = Cause("mixed-flavours")


def of_packages(scene: Scene) -> Iterator[Finding]:
    """The packages whose own words say that they are not compatible with torch."""
    if match := scene.first("torchao-extensions"):
        yield from _of_torchao(scene, match)
    if match := scene.first("torchcodec-library", "torchcodec-symbol"):
        yield from _of_torchcodec(scene, match)
    if match := CAUSE.first(scene, "torchaudio-api"):
        older = pair_with(scene, {"torch": SpecifierSet("<2.9"), "torchaudio": SpecifierSet("<2.9")})
        ways = (*filter(None, [older]), CAUSE.fix("torchaudio-callers"))
        name = match.group("name", "imported", "module")
        yield CAUSE.finding("torchaudio-api", Grounds.STATED, lines(match), ways, name=name)
    if (match := CAUSE.first(scene, "extension-dll")) and (wheel := _of_other_torch(scene)):
        yield _by_file_name(scene, match, wheel)
    if match := CAUSE.first(scene, "conda-pins"):
        yield CAUSE.finding("conda-pins", Grounds.STATED, lines(match), _of_conda(scene, match), **match.groups)
    if match := CAUSE.first(scene, "sgl-kernel"):
        yield CAUSE.finding("sgl-kernel", Grounds.STATED, lines(match), _of_sglang(scene, match))
    if match := CAUSE.first(scene, "bitsandbytes"):
        others = CAUSE.words("newer-has" if _bitsandbytes_for(scene, match) else "none-has")
        values = {"library": match.groups["library"], "others": others}
        yield CAUSE.finding("bitsandbytes", Grounds.STATED, lines(match), _of_bitsandbytes(scene, match), **values)
    elif match := CAUSE.first(scene, "bitsandbytes-any"):
        ways = (CAUSE.fix("bitsandbytes"), CAUSE.fix("bitsandbytes-report"))
        yield CAUSE.finding("bitsandbytes-any", Grounds.STATED, lines(match), ways)
    if (match := CAUSE.first(scene, "mmcv")) and scene.mentions("mmcv", "mmdet", "mmseg", "mmpose"):
        yield CAUSE.finding("mmcv", Grounds.STATED, (*lines(match), *torch_evidence(scene)), _of_mmcv(scene), ())


#: A wheel for Windows that has the torch it was compiled against in its name.
_TAGGED = re.compile(
    r"(?P<package>[A-Za-z]\w+)-(?P<version>\d[\w.]*)\+(?:(?P<variant>cu\d{3})\.?)?torch(?P<torch>\d\.?\d{1,2})\S{0,40}?\.whl"
)


def _of_other_torch(scene: Scene) -> re.Match[str] | None:
    """The wheel of a report that was compiled against another torch than the installed one."""
    own = scene.torch.version.split(".")[:2] if scene.torch and scene.torch.version else None
    found = _TAGGED.search(scene.report.text)
    return found if found and own and _minor(found["torch"]) != ".".join(own) else None


def _minor(tag: str) -> str:
    """``2.10`` of ``2.10`` or ``210``."""
    return tag if "." in tag else f"{tag[0]}.{tag[1:]}"


def _by_file_name(scene: Scene, match: Match, wheel: re.Match[str]) -> Finding:
    """The torch that a wheel's name has, with the companions that are installed; otherwise without the package."""
    close, torch = [name for name in scene.report.installed if scene.family.follows_torch(name)], _minor(wheel["torch"])
    every = {name: SpecifierSet() for name in ("torchvision", "torchaudio", *close)}
    exact = SpecifierSet(f"=={torch}.0+{wheel['variant']}" if wheel["variant"] else f"=={torch}.*")
    pair = pair_with(scene, {"torch": exact, **every})
    label = scene.torch.label if scene.torch else "this torch"
    ways = (*filter(None, [pair]), CAUSE.fix("uninstall", package=wheel["package"], torch=label))
    reason = CAUSE.words("file-name", torch=torch)
    values = {"package": wheel["package"], "version": wheel["version"], "reason": reason}
    evidence = (*lines(match), wheel[0], *torch_evidence(scene))
    return CAUSE.finding("companion", Grounds.CONFIRMED, evidence, ways, ("library-mismatch",), **values)


def _of_conda(scene: Scene, match: Match) -> Iterator[Fix]:
    """The newest CUDA that what excludes the requested one is built for; otherwise a new solve without such pins."""
    name, text = match.groups["package"], scene.report.text
    wanted = re.search(rf"\b{name} =={{0,1}}(?P<cuda>\d+\.\d)\S* \S* ?is requested", text)
    others = {CudaVersion.parse(one) for one in re.findall(rf"\b{name} [=>]*(\d+\.\d)\.\*", text)}
    others -= {CudaVersion.parse(wanted["cuda"])} if wanted else set()
    if wanted and others:
        yield CAUSE.fix("conda-pin", package=name, wanted=wanted["cuda"], cuda=str(max(others)))
    yield CAUSE.fix("conda-pins", usual=scene.usual_cuda)


#: The torch for which most projects of OpenMMLab have a wheel of mmcv that they accept.
_USUAL = "2.1"


def _of_mmcv(scene: Scene) -> Iterator[Fix]:
    """The wheel with operations for this torch; otherwise the torch of one that all projects accept."""
    releases = dict(line.split(" ") for line in CAUSE.words("mmcv-releases").split("; "))
    torch = scene.torch
    minor = ".".join(torch.version.split(".")[:2]) if torch and torch.version else ""
    variant = torch.variant if torch and torch.variant in ("cu118", "cu121") else "cu121"
    strict = scene.mentions("mmdet", "mmseg", "mmpose") and releases.get(minor) not in (None, releases[_USUAL])
    if minor in releases and not strict:
        yield CAUSE.fix("mmcv", version=releases[minor], variant=variant, minor=minor)
        return
    if found := pair_with(scene, {"torch": SpecifierSet(f"=={_USUAL}.*"), "torchvision": SpecifierSet()}):
        wheel = CAUSE.fix("mmcv", version=releases[_USUAL], variant="cu121", minor=_USUAL)
        pair = CAUSE.fix("mmcv-torch", version=releases[_USUAL], minor=_USUAL)
        yield Fix(pair.text, f"{found.command} && {wheel.command}")
    yield CAUSE.fix("mmcv-compile", version=releases[_USUAL])


#: SGLang's kernels had the second name before their release 0.4.
_SGLANG_KERNELS = ("sglang-kernel", "sgl-kernel")


def _of_sglang(scene: Scene, match: Match) -> Iterator[Fix]:
    """The sglang kernels for this torch, or the torch of a SGLang release if there are none."""
    if tree := source_tree(scene, match.quote):
        yield CAUSE.fix("compile-tree", torch=scene.torch.label if scene.torch else "this torch", tree=tree)
        return
    torch = scene.torch
    if torch and torch.version:
        exact = SpecifierSet(f"=={torch.version}" + (f"+{torch.variant}" if torch.variant else ""))
        pairs = (pair_with(scene, {"torch": exact, name: SpecifierSet()}) for name in _SGLANG_KERNELS)
        if found := next(filter(None, pairs), None):
            yield found
    release = public(scene.report.installed, "sglang")
    values = _of_release(scene, release)
    missing = scene.first("cuda-library-missing")
    usual = CudaVersion.parse(scene.usual_cuda)
    if not values["backend"] and missing and missing.groups["soname"] == str(usual.major):
        # SGLang's newest torch is for another CUDA than these kernels: the same torch for theirs.
        values["backend"] = f"--torch-backend {usual.variant} "
    yield CAUSE.fix("sgl-kernel", **values)


#: The first release of SGLang that requires torch and its kernels without an extra.
_WITHOUT_EXTRA = Version("0.5.5")


def _of_release(scene: Scene, release: str | None) -> dict[str, str]:
    """How SGLang is requested, and uv's option for its torch if the default index's one lacks code for the GPU."""
    if release is None:
        return {"release": "", "backend": ""}
    extra = "[all]" if Version(release) < _WITHOUT_EXTRA else ""
    # Up to SGLang 0.5.5 its torch is 2.8 or older, which the default index has for CUDA 12.8 at most.
    new = extra and any(gpu.cc and gpu.cc.major >= 10 for gpu in scene.gpus)
    return {"release": f"{extra}=={release}", "backend": "--torch-backend cu128 " if new else ""}


def _of_bitsandbytes(scene: Scene, match: Match) -> Iterator[Fix]:
    """A release that has a library for torch's CUDA; without one, a torch of a CUDA that it has."""
    tree = match.groups.get("tree")
    variable = [CAUSE.fix("bitsandbytes-variable")] if scene.mentions("bnb_cuda_version=") else []
    if tree and "-packages" not in tree:
        source = [CAUSE.fix("bitsandbytes-tree", tree=tree)]
        # A tree without the library for the CPU was never compiled, whatever the variable says.
        bare = scene.mentions("libbitsandbytes_cpu.so: cannot open")
        yield from (*source, *variable) if bare else (*variable, *source)
        return
    yield from variable
    releases = {Version(b.version) for b in scene.published("bitsandbytes")}
    cuda, fitting = _cuda_of(match), _bitsandbytes_for(scene, match)
    if cuda and fitting and max(fitting) < max(releases):
        yield CAUSE.fix("bitsandbytes-release", version=max(fitting), cuda=cuda)
    elif cuda and not fitting:
        yield from replacements(scene)[-1:] or [CAUSE.fix("bitsandbytes-torch", cuda=cuda)]
    if fitting or not cuda:
        yield CAUSE.fix("bitsandbytes")
    if not variable:
        yield CAUSE.fix("bitsandbytes-variable")


def _cuda_of(match: Match) -> str | None:
    """``11.6`` of ``libbitsandbytes_cuda116``."""
    number = re.search(r"cuda(\d\d)(\d)", match.groups["library"])
    return f"{number[1]}.{number[2]}" if number else None


def _bitsandbytes_for(scene: Scene, match: Match) -> set[Version]:
    """The releases of bitsandbytes that have a library for the CUDA that a message names."""
    cuda = _cuda_of(match)
    variant = CudaVersion.parse(cuda).variant if cuda else None
    return {Version(b.version) for b in scene.published("bitsandbytes") if b.variant == variant}


def _of_torchcodec(scene: Scene, match: Match) -> Iterator[Finding]:
    """torchcodec names FFmpeg first, but on Linux it was most often built for another torch."""
    version, (torch, variant) = public(scene.report.installed, "torchcodec"), _torch_of_torchcodec(scene)
    build = _build_of_torchcodec(scene, torch, variant) if torch else None
    built = next((b.torch for b in scene.published("torchcodec") if b.version == version and b.torch), None)
    fixes = [_install_torchcodec(scene, build, torch, variant)] if build and torch else []
    ffmpeg, symbol = fixes_here("library-mismatch", "ffmpeg", scene), scene.first("torchcodec-symbol")
    fits = SpecifierSet(built).contains(torch, prereleases=True) if torch and built else None
    if fits is False:
        values = {"version": version, "torch": torch, "built": built}
        evidence = (*lines(match), *torch_evidence(scene))
        yield CAUSE.finding("torchcodec", Grounds.CONFIRMED, evidence, fixes, ("library-mismatch",), **values)
    elif fits or (scene.os == "windows" and not symbol):
        # A pair, or a loader that does not say what is missing: Windows brings no FFmpeg.
        ways = ffmpeg if fits else [*ffmpeg, *fixes]
        yield Cause("library-mismatch").finding("ffmpeg", Grounds.STATED, lines(match), ways)
    elif symbol or not scene.first("ffmpeg-libraries"):
        fixes = fixes or list(filter(None, [for_torch_at_hand(scene, "torchcodec")]))
        yield CAUSE.finding("torchcodec-any", Grounds.STATED, lines(match), [*fixes, *ffmpeg])


def _torch_of_torchcodec(scene: Scene) -> tuple[str | None, str | None]:
    """The version and variant of the torch that torchcodec's message names, otherwise of the report's."""
    told = re.search(r"The PyTorch version \((\d+\.\d+\.\d+)(?:\+(\w+))?", scene.report.text)
    own = scene.torch
    if told:
        return told[1], told[2] or (own.variant if own and own.version == told[1] else None)
    return (own.version, own.variant) if own else (None, None)


def _build_of_torchcodec(scene: Scene, torch: str, variant: str | None) -> Build | None:
    """The torchcodec of the default index if it goes with torch's CUDA, otherwise that of torch's own variant."""
    usual, parsed = release_for(scene, "torchcodec", torch=torch), Variant.parse(variant) if variant else None
    if usual is None or parsed is None or not parsed.cuda or not parsed.version:
        return usual
    major, published = parsed.version.partition(".")[0], scene.published("torchcodec")
    same = [b for b in published if b.index == DEFAULT and b.version == usual.version]
    if same and all(b.cuda is None or b.cuda.partition(".")[0] == major for b in same):
        return same[0]
    own = [b for b in published if b.variant == variant and b.index != DEFAULT and b.torch]
    fitting = [b for b in own if SpecifierSet(b.torch or "").contains(torch, prereleases=True)]
    return max(fitting, key=lambda b: Version(b.version), default=usual)


def _install_torchcodec(scene: Scene, build: Build, torch: str, variant: str | None) -> Fix:
    if build.index == DEFAULT or build.variant != variant:
        return CAUSE.fix("torchcodec", wanted=build.version, torch=torch)
    url = pytorch_index(scene, build.variant)
    return CAUSE.fix("torchcodec-variant", wanted=f"{build.version}+{build.variant}", torch=torch, index=url)


def _of_torchao(scene: Scene, match: Match) -> Iterator[Finding]:
    """torchao leaves its kernels out with another torch than the one it is built against, and goes on."""
    torch, build = match.groups["torch"], release_for(scene, "torchao")
    values = {"torch": torch.partition("+")[0], "version": match.groups["torchao"]}
    known = builds_of(scene, "torchao") if "torchao" in scene.report.installed else scene.published("torchao")
    built = next((b.torch for b in known if b.version == values["version"] and b.torch), None)
    values["built"] = CAUSE.words("built-for", torch=built) if built else ""
    fixes = [CAUSE.fix("ignore-torchao")]
    if build and build.version != values["version"]:
        fixes.insert(0, CAUSE.fix("torchao", wanted=build.version, **values))
    yield CAUSE.finding("torchao", Grounds.STATED, lines(match), fixes, (), **values)


def builds_of(scene: Scene, name: str) -> list[Build]:
    """The published builds that the installed companion may be."""
    version, _, local = scene.report.installed[name].value.partition("+")
    builds = [b for b in scene.published(name) if b.version == version]
    if local:
        return [b for b in builds if b.variant == local] or builds
    # A version without a local part is the default index's if it is a wheel's own, or if the error says so.
    if is_of_default_index(scene, name) or scene.first("vision-cuda", "vision-nms", "vision-ops"):
        return [b for b in builds if b.index == DEFAULT] or builds
    return builds


def is_of_default_index(scene: Scene, name: str) -> bool:
    """Whether a companion is known to be a wheel of the default index."""
    return name in scene.report.wheels and "+" not in scene.report.installed[name].value


def of_other_vendor(scene: Scene, package: str) -> Fix | None:
    """The companion of an XPU or ROCm torch, or none on a Mac; None if torch is another."""
    torch, close = scene.torch, package in ("torchvision", "torchaudio", "torchcodec")
    if scene.on_mac and not close:
        return CAUSE.fix("uninstall", package=package, torch="macOS")
    if torch is None or torch.variant is None or not torch.variant.startswith(("xpu", "rocm")):
        return None
    values = {"package": package, "torch": torch.label, "variant": torch.variant}
    return CAUSE.fix("vendor-companion" if close else "uninstall", **values)

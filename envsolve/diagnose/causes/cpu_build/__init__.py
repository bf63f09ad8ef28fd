"""``cpu-build``: a build without CUDA where a GPU is to be used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, shown_variable, torch_evidence, vendors_own
from envsolve.diagnose.fixes import conda_remedies, jetson_remedies, led_by, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, RuledOut
from envsolve.diagnose.rebuilding import archs_for, source_of
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import with_libraries
from envsolve.diagnose.torch_build import Torch
from envsolve.facts.hardware import VendorRoute
from envsolve.solve.preferences import DEFAULT

CAUSE = Cause.of(__name__)
#: Lines of a list of what is installed: nobody complains in them.
_LISTED = frozenset({"cpu-local", "cpu-conda", "torch-cuda-none"})
_OF_A_MISSING_GPU = frozenset(
    {
        *("cpu-build", "no-driver", "driver-needs-reload", "driver-too-old", "torch-replaced", "mixed-flavours"),
        *("index-confusion", "no-such-build", "virtual-package-missing", "no-kernel-for-gpu", "nvcc-missing"),
    }
)


def from_report(scene: Scene) -> Iterator[Finding | RuledOut]:
    """A CPU build is proven by its version, by its own message, or by the catalogue."""
    if match := CAUSE.first(scene, "extension"):
        yield _extension(scene, match)
    if hidden := CAUSE.first(scene, "jax-plugin"):
        yield _plugin_hidden(scene, hidden)
    providers = CAUSE.first(scene, "onnxruntime")
    if providers:
        package = with_libraries(scene, "onnxruntime-gpu") or "onnxruntime-gpu"
        fix = CAUSE.fix("onnxruntime", package=package)
        yield CAUSE.finding("onnxruntime", Grounds.STATED, lines(providers), [fix])
    # Otherwise another module than torch is the subject.
    if not (hidden or providers or CAUSE.first(scene, *CAUSE.file.stated)):
        yield from _of_torch(scene)


def _plugin_hidden(scene: Scene, match: Match) -> Finding:
    """JAX's plug-in is registered, but another directory hides its module or its files are gone."""
    path = shown_variable(scene, "PYTHONPATH")
    names = ("jax-path", "jax-plugin") if path else ("jax-plugin",)
    fixes = [CAUSE.fix(name, **match.groups) for name in names]
    return CAUSE.finding("jax-plugin", Grounds.STATED, (*lines(match), *path), fixes, **match.groups)


def _of_torch(scene: Scene) -> Iterator[Finding | RuledOut]:
    torch, strong, weak = scene.torch, _strong(scene), _weak(scene)
    proved = torch is not None and torch.variant == "cpu"
    if torch and torch.variant not in (None, "cpu"):
        if torch.cuda and strong is None:
            yield CAUSE.ruled_out("cuda-build", torch=torch.label)
            return
        if strong and strong.signature.id in ("cpu-local", "cpu-torch-words"):
            return
    if not (strong or weak or proved) or (strong is None and _is_another_fault(scene, weak)):
        return
    lacks = _cuda_library(scene) if strong else None
    grounds = Grounds.CONFIRMED if lacks else _grounds(scene, strong, proved)
    evidence = (*lines(strong or weak, lacks), *torch_evidence(scene), *scene.gpu_evidence)
    if scene.other_vendor:
        yield _of_another_vendor(scene, scene.other_vendor, evidence)
        return
    what, text = _name(torch), "jax" if _is_jax(scene) else "cpu"
    explains = (*CAUSE.file.explains, *(["mixed-flavours"] if lacks or _is_alone_wrong(scene, proved) else []))
    yield CAUSE.finding(text, grounds, evidence, _fixes(scene), explains, what=what, why=_why(scene))


def _is_another_fault(scene: Scene, weak: Match | None) -> bool:
    """Whether a weak message comes from a machine without a GPU, or from a container that sees none."""
    if scene.machine.gpus == ():
        return True
    # Images for GPUs contain a CUDA build.
    inferred = weak is not None and weak.signature.id == "infer-device"
    return inferred and scene.torch is None and scene.in_container


def _is_jax(scene: Scene) -> bool:
    return "jax" in scene.report.installed or scene.first("jax-cpu", "jaxlib-cpu", "jax-platforms") is not None


def _of_environment(scene: Scene, proved: bool) -> bool:
    """Whether this is an environment for a GPU, without an error.

    Its companions for CUDA are right then: the fix of torch keeps them, and a fix of the companions would replace them
    by CPU builds first, and once more when torch is fixed.
    """
    return proved and bool(scene.gpus) and not scene.matches


def _is_alone_wrong(scene: Scene, proved: bool) -> bool:
    """Whether the companions are right: in an environment for a GPU, or by what one says that it is built for."""
    if _of_environment(scene, proved):
        return True
    built = scene.first("xformers-built")
    versions = [built.groups[name].partition("+") for name in ("built", "have")] if built else []
    return len({version for version, _, _ in versions}) == 1 and versions[1][2] == "cpu"


def _extension(scene: Scene, match: Match) -> Finding:
    """An extension that was compiled without CUDA, with the place that its project is installed from."""
    sources = dict(line.split(" ", 1) for line in CAUSE.words("sources").split("; "))
    name = next((one for one in sources if scene.mentions(one)), None)
    told = source_of(scene)
    source = sources[name] if name and "git+" not in told else told
    listed = archs_for(scene, scene.gpus)
    fix = CAUSE.fix("extension", archs=f'TORCH_CUDA_ARCH_LIST="{listed}" ' if listed else "", source=source)
    package = name or CAUSE.words("the-extension")
    return CAUSE.finding("extension", Grounds.STATED, lines(match), [fix], package=package)


def _name(torch: Torch | None) -> str:
    return f"torch {torch.version} [cpu]" if torch and torch.version else CAUSE.words("installed")


def _strong(scene: Scene) -> Match | None:
    """Words that state a CPU build, and are not of one that was requested and not found."""
    found = CAUSE.first(scene)
    if found is None or found.signature.id != "cpu-local":
        return found
    not_found = re.search("could not find|no matching|can't be installed|no version of", found.quote, re.I)
    # A lock for the processor, which lacks a file for this platform.
    wanted = _is_wanted(scene) and scene.first("uv-lock-platform")
    return None if not_found or wanted else found


def _of_another_vendor(scene: Scene, route: VendorRoute, evidence: tuple[str, ...]) -> Finding:
    fixes = tuple(filter(None, [vendors_own(scene), CAUSE.fix("vendor-kept")]))
    explains = (*CAUSE.file.explains, "no-driver")
    values = {"vendor": route.name, "build": route.build}
    return CAUSE.finding("vendor", Grounds.STATED, (*evidence, *scene.vendor_evidence), fixes, explains, **values)


def _cuda_library(scene: Scene) -> Match | None:
    """Torch's library for CUDA, if it is missing: it is part of every CUDA build."""
    match = scene.first("torch-library-missing")
    return match if match and "cuda" in match.groups["library"] else None


def _weak(scene: Scene) -> Match | None:
    """Messages that a missing driver also causes; on a Jetson, a build that was not made for it."""
    found = CAUSE.first(scene, "weak")
    if found is None and not scene.mentions("jax_platform"):
        found = scene.first("jax-platforms")
    if found is None and scene.is_jetson and not _is_jetsons(scene.torch):
        return scene.first("cuda-unavailable")
    return found


def _is_jetsons(torch: Torch | None) -> bool:
    """Whether torch is one of the vendor's own builds, ``2.1.0a0+41361538.nv23.06``."""
    return torch is not None and torch.version is not None and "a0" in torch.version


def _grounds(scene: Scene, strong: Match | None, proved: bool) -> Grounds:
    if proved and scene.gpus:
        complained = strong is not None and strong.signature.id in ("cpu-assert", "cpu-backend")
        return Grounds.CONFIRMED if complained else Grounds.DERIVED
    # A text that only shows a CPU build's version, on a machine of which no GPU is known, may be what was wanted.
    listed = strong is not None and strong.signature.id in _LISTED
    wanted = listed and _is_wanted(scene)
    if strong is None or wanted or (listed and any(_of_another_kind(m) for m in scene.matches)):
        return Grounds.SUGGESTED
    if proved:
        return Grounds.CONFIRMED
    # People also speak of the CPU build that they do not have.
    spoken = strong.signature.id == "cpu-torch-words" and not scene.first("cuda-unavailable")
    return Grounds.SUGGESTED if spoken else Grounds.STATED


def _is_wanted(scene: Scene) -> bool:
    """Whether a listed CPU build may be intended: no GPU is known, and the error is about something else."""
    if scene.gpus:
        return False
    if scene.mentions("whl/cpu`") and scene.first("uv-lock-platform"):  # uv names the lock's index so
        return True
    # A companion that does not go with a CPU build: the companion is wrong.
    if scene.first("cudart-missing", "pip-incompatible"):
        return True
    asked = any("whl/cpu" in seen.value or "torch-backend cpu" in seen.value for seen in scene.report.commands)
    return asked and not scene.first("cuda-unavailable")


def _of_another_kind(match: Match) -> bool:
    """Whether words are about something that has nothing to do with a missing GPU."""
    return bool(match.signature.causes) and not _OF_A_MISSING_GPU & set(match.signature.causes)


def _why(scene: Scene) -> str:
    if scene.is_jetson:
        return CAUSE.words("jetson")
    version = scene.torch.version if scene.torch else None
    here = [b for b in scene.published("torch") if b.version == version and b.index == DEFAULT]
    if here and all(b.variant == "cpu" for b in here):
        return CAUSE.words("platform", version=version, platform=f"{scene.platform.os} {scene.platform.arch}")
    if scene.mentions("whl/cpu"):
        return CAUSE.words("index")
    return CAUSE.words("conda" if scene.mentions_conda else "unknown")


_JAX_BY_CONDA = re.compile(r"\b(?:conda|mamba) (?:create|install)\b[^\n|&;]{0,200}\bjax|\bconda-forge/\S{0,60}jax")


def _fixes(scene: Scene) -> tuple[Fix, ...]:
    if _is_jax(scene):
        asked = (CAUSE.fix("jax-conda", usual=scene.usual_cuda),) if _JAX_BY_CONDA.search(scene.report.text) else ()
        return (*asked, CAUSE.fix("jax"), CAUSE.fix("jax-absent"))
    by_conda = conda_remedies(scene) if scene.first("cpu-conda") or scene.by_conda else ()
    if jetson := jetson_remedies(scene):
        return (*by_conda, *jetson)
    found = replacements(scene)
    if not by_conda:
        return found
    cuda = (scene.driver.cuda if scene.driver else None) or scene.usual_cuda
    # conda solves for the host it runs on: without a driver there it takes the CPU build again.
    blind = led_by(CAUSE.words("blind"), by_conda[0])
    return (*by_conda, Fix(blind.text, f"CONDA_OVERRIDE_CUDA={cuda} {by_conda[0].command}"), *found)

"""``no-kernel-for-gpu``: a build, torch's or an extension's, has no code for the GPU (rules 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import Cause, gpu_names, hip_version, lines, shown_variable, torch_evidence
from envsolve.diagnose.causes.mixed_flavours.linker import published_wheel
from envsolve.diagnose.fixes import (
    companions_for_torch,
    jetson_remedies,
    pair_with,
    replacements,
    self_built,
    with_another_python,
)
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.rebuilding import arch_list, extension_named, rebuild
from envsolve.diagnose.rebuilding import rebuild_package as rebuild_installed
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Distribution, Environment
from envsolve.facts.builds import ANY
from envsolve.machine.model import Gpu
from envsolve.values import ComputeCapability

CAUSE = Cause.of(__name__)
#: The oldest compute capability that FAISS's wheels for CUDA 12 have code for (its build file names 70 and 80).
_FAISS_FIRST = (7, 0)
#: What a kernel's failure says, in TensorFlow's words.
_FAILED = ("error_invalid_ptx", "error_invalid_handle", "no kernel image", "error_no_binary", "internalerror")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Find which binary lacks code for the GPU, if any."""
    if hip := CAUSE.first(scene, "hip"):  # an AMD GPU, whose words are like those of CUDA
        ways = (CAUSE.fix("hip-override", version=hip_version(scene)), CAUSE.fix("hip-build"))
        yield CAUSE.finding("hip", Grounds.STATED, (*lines(hip), *torch_evidence(scene)), ways)
        return
    limit, match, missing = CAUSE.first(scene, "limit"), failure(scene), lacking(scene)
    if setting := _of_ptx_setting(scene, match):
        yield setting
        return
    if faiss := CAUSE.first(scene, "faiss"):
        yield CAUSE.finding("faiss", Grounds.STATED, (*lines(faiss), *scene.gpu_evidence), _of_faiss(scene))
    if limit and not CAUSE.first(scene):
        evidence = (*lines(limit), *scene.gpu_evidence)
        yield CAUSE.finding("limited", Grounds.STATED, evidence, [CAUSE.fix("attention")], gpus=gpu_names(scene.gpus))
    if (tensorflow := CAUSE.first(scene, "tensorflow")) and scene.mentions(*_FAILED):
        cc = tensorflow.groups.get("cc") or next((str(gpu.cc) for gpu in scene.gpus if gpu.cc), "of this GPU")
        fixes = (CAUSE.fix("tensorflow-container"), CAUSE.fix("tensorflow-newer", cc=cc))
        evidence = (*lines(tensorflow), *scene.gpu_evidence)
        explained = (*CAUSE.file.explains, "ptx-newer-than-driver", "no-driver")
        yield CAUSE.finding("tensorflow", Grounds.CONFIRMED, evidence, fixes, explained, cc=cc)
        return
    if compiler := _of_compiler(scene):
        yield compiler
    elif missing:
        yield _torch_lacks(scene, match, missing)
    elif match and not harmless(scene):
        yield _another_binary(scene, match)


def _of_ptx_setting(scene: Scene, failed: Match | None) -> Finding | None:
    """A variable of the driver by which only PTX counts, or only machine code."""
    disabled = CAUSE.first(scene, "ptx-disabled")
    set_ = {name for name, seen in scene.report.variables.items() if seen.value != "0"}
    if failed and "CUDA_FORCE_PTX_JIT" in set_:
        variable = "CUDA_FORCE_PTX_JIT"
    elif disabled or (failed and "CUDA_DISABLE_PTX_JIT" in set_):
        variable = "CUDA_DISABLE_PTX_JIT"
    else:
        return None
    evidence = (*lines(disabled or failed), *shown_variable(scene, variable))
    return CAUSE.finding(variable, Grounds.STATED, evidence, [CAUSE.fix("ptx", variable=variable)])


def _of_compiler(scene: Scene) -> Finding | None:
    """A program that compiles for the GPU itself, and does not know it: by its own words, or by those of the driver."""
    words, cc = CAUSE.first(scene, "llvm"), next((str(gpu.cc) for gpu in scene.gpus if gpu.cc), "of this GPU")
    evidence = (*lines(words or scene.first("jit-invalid") or failure(scene)), *scene.gpu_evidence)
    if scene.torch is None and scene.mentions("numba.cuda", "numba cuda", "numba's cuda") and failure(scene):
        return CAUSE.finding("numba", Grounds.STATED, evidence, [CAUSE.fix("numba")], cc=cc)
    if words is None and not (scene.first("jit-invalid") and scene.gpus and scene.torch is None):
        return None
    explained = (*CAUSE.file.explains, "ptx-newer-than-driver", "no-driver")
    if scene.mentions("tensorflow"):
        fixes = (CAUSE.fix("tensorflow-container"), CAUSE.fix("tensorflow-newer", cc=cc))
        return CAUSE.finding("tensorflow", Grounds.STATED, evidence, fixes, explained, cc=cc)
    if words and scene.mentions("jax", "xla"):
        return CAUSE.finding("jax", Grounds.STATED, evidence, [CAUSE.fix("jax")], explained, cc=cc)
    return None


def _of_faiss(scene: Scene) -> Iterator[Fix]:
    """Its wheels have code from Volta on, its conda packages for newer generations too; an older GPU needs a build."""
    known = [gpu.cc for gpu in scene.gpus if gpu.cc]
    if known and min(known) < _FAISS_FIRST:
        numbers = arch_list(scene.gpus).replace(".", "")
        yield CAUSE.fix("faiss-build", archs=numbers)
        yield CAUSE.fix("faiss-cpu")
        return
    yield from (CAUSE.fix("faiss-conda"), CAUSE.fix("faiss"))


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Compare all code of every extension with the GPUs."""
    told = lacking(scene)
    for extension in environment.extensions or ():
        distribution = environment.distribution(extension.package)
        if distribution is None or not extension.every or _optional(scene, distribution):
            continue
        # If torch itself has no code for a GPU, that is what is wrong.
        missing = tuple(g for g in scene.gpus if g not in told and not scene.level(extension.every, g).usable)
        if missing:
            companion = companions_for_torch(scene, [extension.package])
            code = " ".join(extension.every)
            yield CAUSE.finding(
                "extension",
                Grounds.READ,
                (f"{distribution.site}/{extension.libraries[0]}: {code}", *scene.gpu_evidence),
                (*filter(None, [companion]), *rebuild_installed(environment, scene, extension.package)),
                package=distribution.label,
                code=code,
                gpus=gpu_names(missing),
            )


def _optional(scene: Scene, distribution: Distribution) -> bool:
    """Whether the catalogue knows the release as one that works without its kernels, or compiles them for the GPU."""
    version = (distribution.version or "").partition("+")[0]
    return any(b.variant == ANY for b in scene.catalogue.builds(distribution.name) if b.version == version)


def _torch_lacks(scene: Scene, match: Match | None, missing: tuple[Gpu, ...]) -> Finding:
    torch, another = scene.torch, with_another_python(scene)
    assert torch is not None and torch.code is not None
    fixes = (*filter(None, [another]), *replacements(scene), *_hide_others(scene, missing))
    if self_built(scene):
        fixes = (*replacements(scene), *_hide_others(scene, missing))
    return CAUSE.finding(
        "torch",
        Grounds.CONFIRMED if match else Grounds.DERIVED,
        (*lines(match), *torch.evidence, torch.code_from or "", *scene.gpu_evidence),
        fixes or (*jetson_remedies(scene), *rebuild(scene, missing)),
        torch=torch.label,
        code=" ".join(torch.code),
        gpus=gpu_names(missing),
    )


def _another_binary(scene: Scene, match: Match) -> Finding:
    own = torch_runs(scene)
    evidence = (*lines(match), *torch_evidence(scene), *scene.gpu_evidence)
    known = own and not about_libtorch(scene)
    return CAUSE.finding(
        "another" if known or (own and scene.torch) else "unread",
        Grounds.SUGGESTED if own else Grounds.STATED,
        evidence,
        _for_extension(scene) if known else _for_unread(scene),
        torch=scene.torch.label if scene.torch else "torch",
        gpus=gpu_names(scene.gpus),
    )


def _for_extension(scene: Scene) -> Iterator[Fix]:
    name = extension_named(scene)
    if name and scene.gpus and (wheel := published_wheel(scene, name)):
        yield wheel
    yield from rebuild(scene, scene.gpus)
    yield from jetson_remedies(scene)
    yield CAUSE.fix("newer-release", package=name) if name else CAUSE.fix("newer-extension")


def _for_unread(scene: Scene) -> Iterator[Fix]:
    """The code of the binary that failed is not known: torch first, if the report is about torch."""
    # If neither the torch nor the GPUs are known, no other torch is known to be better.
    others = replacements(scene) if scene.torch is not None or (scene.gpus and scene.about_torch) else ()
    yield from others
    if scene.torch is None and not scene.gpus and extension_named(scene) is None:
        yield CAUSE.fix("torch-for-gpu")
    if others and scene.first("kernel-plain") and extension_named(scene) in (None, "torchaudio", "torchvision"):
        return  # people's words about a torch
    yield from _of_family(scene)
    yield from _hide_others(scene, scene.gpus)
    yield from (jetson := jetson_remedies(scene))
    if scene.torch and scene.gpus and not others and not jetson and extension_named(scene) is None:
        listed = arch_list(scene.gpus)  # torch itself is the binary, and none is published
        yield CAUSE.fix("torch-from-source", gpus=gpu_names(scene.gpus), list=listed)
    else:
        yield from rebuild(scene, scene.gpus)


def _of_family(scene: Scene) -> Iterator[Fix]:
    """The extension that is named in a build with code for the GPUs, with its torch if that is not known."""
    name = extension_named(scene)
    if name is None or not scene.gpus or not scene.family.follows_torch(name) or not scene.mentions("built for sm"):
        return
    pair = {"torch": SpecifierSet(), name: SpecifierSet()}
    found = companions_for_torch(scene, [name]) if scene.torch else pair_with(scene, pair)
    if found:
        yield found


def _hide_others(scene: Scene, missing: tuple[Gpu, ...]) -> tuple[Fix, ...]:
    """If a machine has several kinds of GPUs, use only those that are supported; otherwise only the newest."""
    gpus = scene.machine.gpus or ()
    kinds = {gpu.compute_capability for gpu in gpus if gpu.compute_capability}
    if len(kinds) < 2:
        return ()
    lacking_kinds = {gpu.compute_capability for gpu in missing}
    if len(missing) < len(kinds) and lacking_kinds:
        kept = [gpu for gpu in gpus if gpu.compute_capability not in lacking_kinds]
    else:
        # Without knowing whose code is missing, the newest GPU is the one that current builds support.
        kept = [max(gpus, key=lambda gpu: gpu.cc or (0, 0))]
    wanted = {gpu.compute_capability for gpu in kept}
    numbers = ",".join(str(n) for n, gpu in enumerate(gpus) if gpu.compute_capability in wanted)
    return (CAUSE.fix("hide", gpus=gpu_names(kept), numbers=numbers),)


# Whose code the words "no kernel image" are about: torch's own, an extension's, or nobody's. The words say that some
# binary lacks code for the GPU. Whether that binary is torch itself, the catalogue says; if torch runs on the GPU, an
# extension is meant.


def lacking(scene: Scene) -> tuple[Gpu, ...]:
    """The GPUs for which the installed torch has no code."""
    torch = scene.torch
    return scene.unserved(torch.code, scene.toolkit) if torch and torch.code else ()


def failure(scene: Scene) -> Match | None:
    """The error, otherwise the warning, about missing code."""
    return CAUSE.first(scene, "error", "warning")


def harmless(scene: Scene) -> Literal["code", "range"] | None:
    """How a warning is known to be harmless: by torch's code, or by the range that the warning itself states."""
    warning = CAUSE.first(scene, "warning")
    if warning is None or CAUSE.first(scene) or lacking(scene) or not scene.gpus:
        return None
    if scene.torch and scene.torch.code:
        return "code"
    most = warning.group("most")
    code = (ComputeCapability.parse(most).sm,) if most else ()
    return "range" if code and all(scene.level(code, gpu).usable for gpu in scene.gpus) else None


def torch_runs(scene: Scene) -> bool:
    """Whether torch's own kernels are known to run, by its code or by the report."""
    return bool(scene.torch and scene.torch.code and scene.gpus) or scene.first("torch-works") is not None


def about_libtorch(scene: Scene) -> bool:
    """Whether the report is about torch's C++ distribution, whose code the catalogue does not describe."""
    return "libtorch" in scene.report.installed

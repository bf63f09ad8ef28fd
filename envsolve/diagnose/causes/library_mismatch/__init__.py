"""``library-mismatch``: another major of cuDNN, NCCL, MKL or NumPy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import Cause, lines, torch_evidence
from envsolve.diagnose.causes.library_mismatch._wheels import overlapping_wheels
from envsolve.diagnose.model import Finding, Fix, Grounds
from envsolve.diagnose.scene import Scene, shown
from envsolve.diagnose.signatures import Match
from envsolve.environment.model import Environment, release
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)
#: Programs beside torch that bring no CUDA libraries and are built for one CUDA major.
_PROGRAMS = ("onnxruntime", "cupy", "ctranslate2", "paddle", "tensorflow")
#: Wheels whose name has the CUDA major, and whose libraries have another version behind ``.so``.
_WHEEL = re.compile(r"nvidia-(?P<library>nccl|cudnn|cusparselt|nvshmem)-cu\d\d")


def from_report(scene: Scene) -> Iterator[Finding]:
    """The symbol or file that is missing tells which library is the wrong one."""
    if match := CAUSE.first(scene, "mkl"):
        symbol = match.groups["symbol"]
        yield CAUSE.finding("mkl", Grounds.STATED, lines(match), [CAUSE.fix("mkl")], ("mixed-flavours",), symbol=symbol)
    if match := CAUSE.first(scene, "numpy"):
        # Many programs print this warning and work: it decides only if nothing else is known.
        alone = not any(m.signature.causes for m in scene.matches if m.signature.id != "numpy-abi")
        fixes = (CAUSE.fix("older-numpy", last=""), CAUSE.fix("newer-modules"))
        yield CAUSE.finding("numpy", Grounds.STATED if alone else Grounds.SUGGESTED, lines(match), fixes)
    if match := CAUSE.first(scene, "infer"):
        consequences = ("lock-incomplete", "library-shadowed")
        yield CAUSE.finding("infer", Grounds.STATED, lines(match), _for_cudnn8(scene), consequences)
    if match := CAUSE.first(scene, "sublibrary"):
        yield CAUSE.finding("sublibrary", Grounds.STATED, lines(match), _one_cudnn(scene))
    program = next((p for p in _PROGRAMS if scene.mentions(p)), None)
    if program and (match := scene.first("cuda-library-missing")):
        library = f"{match.groups['library']}.so.{match.groups['soname']}"
        fixes = (_program_fix(program), CAUSE.fix("list-libraries"))
        yield CAUSE.finding("other-program", Grounds.STATED, lines(match), fixes, program=program, library=library)
    if (match := Cause("library-shadowed").first(scene)) and (finding := wheels_of_two_majors(scene, match)):
        yield finding


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Modules compiled against NumPy 1 beside NumPy 2, then wheels that overwrite each other."""
    yield from _numpy_installed(environment)
    yield from overlapping_wheels(environment)


def wheels_of_two_majors(scene: Scene, match: Match) -> Finding | None:
    """Two wheels of the library for two CUDA majors, if torch's own major is known."""
    symbol = match.group("symbol", "library") or ""
    cuda = scene.torch.cuda if scene.torch else None
    installed = scene.report.installed
    found = {name: wheel for name in installed if (wheel := _WHEEL.fullmatch(name))}
    same = [name for name, wheel in found.items() if symbol.lower().lstrip("_").startswith(wheel["library"])]
    right = next((name for name in same if cuda and name.endswith(f"-cu{CudaVersion.parse(cuda).major}")), None)
    wrong = [name for name in same if name != right]
    if right is None or not wrong:
        return None
    pin = f"{right}=={installed[right].value}"
    names = " and ".join(wrong)
    fix = CAUSE.fix("untwin", wrong=names, right=right, names=" ".join(wrong), pin=pin)
    evidence = (*lines(match), *(shown(installed[name]) for name in same), *torch_evidence(scene))
    values = {"wrong": names, "right": right, "cuda": cuda, "missing": symbol}
    consequences = ("library-shadowed", "mixed-flavours")
    return CAUSE.finding("two-majors", Grounds.CONFIRMED, evidence, [fix], consequences, **values)


def _program_fix(program: str) -> Fix:
    command = CAUSE.file.words.get(program)
    return CAUSE.fix("program" if command else "program-build", program=program, command=command)


def _for_cudnn8(scene: Scene) -> Iterator[Fix]:
    if scene.mentions("ctranslate2", "faster-whisper", "faster_whisper", "whisperx"):
        yield CAUSE.fix("ctranslate2")
    if scene.mentions("onnxruntime"):
        yield CAUSE.fix("onnxruntime-cudnn9")
    yield CAUSE.fix("cudnn9")
    yield CAUSE.fix("cudnn8")


def _one_cudnn(scene: Scene) -> Iterator[Fix]:
    yield CAUSE.fix("unset")
    build = scene.torch.build if scene.torch else None
    pins = [line for line in (build.requires if build else None) or () if "cudnn" in line]
    if pins:
        yield CAUSE.fix("pinned-cudnn", pin=pins[0].split(";")[0].strip())
    yield CAUSE.fix("list-cudnn")


def _numpy_installed(environment: Environment) -> Iterator[Finding]:
    """Compare what the headers left in the binaries with the NumPy that is imported."""
    numpy, torch = environment.distribution("numpy"), environment.torch
    if numpy is None or release(numpy.version) < (2,):
        return
    old = [(torch.label, f"{torch.site}/torch/lib")] if torch and torch.numpy == 1 else []
    old += [
        (d.label, f"{d.site}/{e.libraries[0]}")
        for e in environment.extensions or ()
        if e.numpy == 1 and (d := environment.distribution(e.package))
    ]
    if old:
        who = f"{', '.join(name for name, _ in old)} beside numpy {numpy.version}"
        evidence = (*(f"{place}: {name} looks for NumPy where NumPy 1 had it" for name, place in old), numpy.info)
        fix = CAUSE.fix("older-numpy", last="; 1.26 is its last release")
        yield CAUSE.finding("numpy-installed", Grounds.READ, evidence, [fix], who=who)

"""``library-mismatch``: another major of cuDNN, NCCL, MKL or NumPy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import PurePosixPath

from packaging.requirements import Requirement
from packaging.version import Version

from envsolve.binaries.names import LIBRARY_FILE, is_toolkit_package
from envsolve.diagnose.causes._shared import Cause, lines, listed, torch_evidence
from envsolve.diagnose.causes.library_mismatch.libraries import (
    of_ctranslate2,
    of_cuda_11,
    of_cudnn8,
    of_cudnn_dll,
    of_jax,
    of_native,
    of_own_cudnn,
    of_paddle,
    of_tensorflow,
    one_cudnn,
    own_is_older,
)
from envsolve.diagnose.fixes import release_for
from envsolve.diagnose.model import Finding, Fix, Grounds, shown
from envsolve.diagnose.rebuilding import extension_named, importer
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import with_libraries
from envsolve.environment.model import (
    Distribution,
    Environment,
    needs,
    pinned,
    pinned_version,
    release,
    requiring,
    satisfies,
    torch_distribution,
)
from envsolve.values import CudaVersion

CAUSE = Cause.of(__name__)
#: Programs beside torch that bring no CUDA libraries and are built for one CUDA major.
_PROGRAMS = ("onnxruntime", "cupy", "ctranslate2", "paddle", "tensorflow")
#: The package of which the catalogue knows the CUDA of each release.
_PACKAGES = {"onnxruntime": "onnxruntime-gpu"}
#: Wheels whose name has the CUDA major, and whose libraries have another version behind ``.so``.
_WHEEL = re.compile(r"nvidia-(?P<library>nccl|cudnn|cusparselt|nvshmem)-cu\d\d")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Find the wrong library by the symbol or file that is missing."""
    if match := CAUSE.first(scene, "mkl"):
        symbol = match.groups["symbol"]
        yield CAUSE.finding("mkl", Grounds.STATED, lines(match), [CAUSE.fix("mkl")], ("mixed-flavours",), symbol=symbol)
    if match := CAUSE.first(scene, "numpy"):
        # Many programs print this warning and work: it decides only if nothing else is known.
        alone = not any(m.signature.causes for m in scene.matches if m.signature.id != "numpy-abi")
        yield _of_numpy(match, Grounds.STATED if alone else Grounds.SUGGESTED)
    if match := CAUSE.first(scene, "infer"):
        yield of_cudnn8(scene, match)
    if match := CAUSE.first(scene, "ctranslate2"):
        yield of_ctranslate2(scene, match)
    if match := CAUSE.first(scene, "cudnn-dll"):
        yield of_cudnn_dll(scene, match)
    elif match := CAUSE.first(scene, "sublibrary"):
        yield CAUSE.finding("sublibrary", Grounds.STATED, lines(match), one_cudnn(scene))
    if match := CAUSE.first(scene, "dll-dependency"):
        yield _of_dependency(scene, match)
    if match := CAUSE.first(scene, "paddle"):
        yield of_paddle(scene, match)
    if match := CAUSE.first(scene, "onnxruntime"):
        by_dll = of_native(scene, match) or [_of_onnxruntime(scene, windows=True)]
        yield CAUSE.finding("onnxruntime", Grounds.STATED, lines(match), by_dll)
    if match := CAUSE.first(scene, "windows-dll"):
        yield _of_torchs_dll(scene, match)
    if match := CAUSE.first(scene, "tensorflow"):
        # The lines of the loader that come before name the libraries one by one.
        consequences = ("mixed-flavours", "lock-incomplete")
        yield CAUSE.finding("tensorflow", Grounds.STATED, lines(match), of_tensorflow(scene), consequences)
    if match := CAUSE.first(scene, "jax-plugin"):
        yield of_jax(scene, match)
    if (match := Cause("library-shadowed").first(scene)) and (own := own_is_older(scene, match)):
        yield of_own_cudnn(scene, match, own)
    yield from _of_program(scene)
    if match := Cause("library-shadowed").first(scene):
        yield from filter(None, (wheels_of_two_majors(scene, match), pinned_otherwise(scene, match)))


def _of_numpy(match: Match, grounds: Grounds) -> Finding:
    """A module that was compiled against another NumPy: an older one, or a newer one if the sizes of a type say so."""
    expected, got = match.groups.get("expected"), match.groups.get("got")
    if expected and got and int(expected) > int(got):
        fixes = (CAUSE.fix("newer-numpy"), CAUSE.fix("same-numpy"))
        return CAUSE.finding("numpy-older", grounds, lines(match), fixes, expected=expected, got=got)
    return CAUSE.finding(
        "numpy", grounds, lines(match), (CAUSE.fix("older-numpy", last=""), CAUSE.fix("newer-modules"))
    )


def _of_program(scene: Scene) -> Iterator[Finding]:
    """A program beside torch looks for a CUDA library that the loader does not find."""
    match = scene.first("cuda-library-missing") if not CAUSE.first(scene, "nvinfer") else None
    if found := of_cuda_11(scene):
        yield found
        return
    program = _looking(scene, match) if match else None
    # Another CUDA than torch's: mixed-flavours says which build of the companion goes with it.
    mixed = scene.first("cudart-missing") and program is not None and scene.family.follows_torch(program)
    if match and program and not mixed and not CAUSE.first(scene, "tensorflow"):
        library = f"{match.groups['library']}.so.{match.groups['soname']}"
        ways = (*_program_fixes(scene, program, match), CAUSE.fix("list-libraries"))
        values = {"program": program, "library": library}
        # A program that is not compiled against torch does not care for torch's CUDA.
        alone = program in match.quote.lower() or program in (*CAUSE.file.words, "onnxruntime")
        explained = ["lock-incomplete", *(["mixed-flavours"] if alone else [])]
        yield CAUSE.finding("other-program", Grounds.STATED, lines(match), ways, explained, **values)


def _looking(scene: Scene, match: Match) -> str | None:
    """The program beside torch that looks for a library; None if it is torch, or not known."""
    if program := next((p for p in _PROGRAMS if scene.mentions(p)), None):
        return program
    if module := importer(scene, match):
        return module if module != "torch" else None
    # A report that a torch with CUDA made: it found its own libraries.
    loads = scene.mentions("cuda available: true", "is cuda available: true")
    return extension_named(scene) if loads else None


def _of_dependency(scene: Scene, match: Match) -> Finding:
    """A missing DLL of a package other than torch, which needs libraries of CUDA or of the compiler."""
    named = re.search(r"\bcu(?:da)?[ -]?v?(1[1-4])", scene.report.text, re.IGNORECASE)
    major = scene.torch.cuda.partition(".")[0] if scene.torch and scene.torch.cuda else named[1] if named else "12"
    wheels, directory = _wheels("llama_cpp", major), match.groups["path"].rpartition("\\")[0]
    ways = (CAUSE.fix("dll-wheels", major=major, wheels=wheels, directory=directory), CAUSE.fix("windows-dll"))
    values = {"package": match.groups["package"], "major": f"CUDA {major}"}
    return CAUSE.finding("dll-dependency", Grounds.STATED, lines(match), ways, **values)


def _wheels(program: str, major: str) -> str:
    """The wheels of the CUDA libraries that a program needs; those of CUDA 13 have no suffix."""
    names = CAUSE.words(program, major=major)
    return (
        names
        if int(major) < 13
        else " ".join(f'"{name}=={major}.*"' for name in names.replace(f"-cu{major}", "").split())
    )


def _of_torchs_dll(scene: Scene, match: Match) -> Finding:
    """A DLL of torch's own that does not load: it lacks another library, or the others are of another release."""
    mixed = match.groups["number"] in ("127", "182")
    again = CAUSE.fix("windows-dll-again", variant=_variant(scene))
    newer = [CAUSE.fix("windows-dll-openmp", variant=_variant(scene))] if scene.mentions("fbgemm.dll") else []
    ways = (again, CAUSE.fix("windows-dll")) if mixed else (*newer, CAUSE.fix("windows-dll"))
    return CAUSE.finding("windows-mixed" if mixed else "windows-dll", Grounds.STATED, lines(match), ways)


def _variant(scene: Scene) -> str:
    """The variant of the installed torch, otherwise the one that the report names, otherwise what most GPUs run."""
    known = scene.torch.variant if scene.torch else None
    named = re.search(r"[/_](cu1[1-9]\d)(?!\d)", scene.report.text)
    return known or (named[1] if named else "cu126")


def from_environment(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Modules compiled against NumPy 1 beside NumPy 2, then wheels that overwrite each other."""
    yield from _numpy_installed(environment)
    yield from overlapping_wheels(environment)


def wheels_of_two_majors(scene: Scene, match: Match) -> Finding | None:
    """Two wheels of the library for two CUDA majors, if torch's own major is known."""
    symbol = match.group("symbol", "library") or ""
    cuda = scene.toolkit
    installed = scene.report.installed
    found = {name: wheel for name in installed if (wheel := _WHEEL.fullmatch(name))}
    same = [name for name, wheel in found.items() if symbol.lower().lstrip("_").startswith(wheel["library"])]
    # The names end in the major of the toolkit that the wheel is for.
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


def pinned_otherwise(scene: Scene, match: Match) -> Finding | None:
    """The library's own wheel in an older release than torch pins, if the report lists both."""
    symbol = (match.group("symbol", "library") or "").lower().lstrip("_")
    build = scene.torch.build if scene.torch else None
    for line in (build.requires if build else None) or ():
        wheel = _WHEEL.match(line)
        seen = scene.report.installed.get(wheel[0]) if wheel else None
        if wheel is None or seen is None or not symbol.startswith(wheel["library"]):
            continue
        requirement = Requirement(line)
        pin, got = pinned_version(requirement), release(seen.value)
        if pin and got and got < release(pin):
            evidence = (*lines(match), shown(seen), *torch_evidence(scene))
            values = {"pin": pinned(requirement), "have": f"{wheel[0]} {seen.value}", "how": "which is older"}
            fix = CAUSE.fix("pinned", pins=values["pin"])
            return CAUSE.finding("pinned", Grounds.CONFIRMED, evidence, [fix], ("library-shadowed",), **values)
    return None


def _of_several(scene: Scene, program: str, library: str, soname: str) -> Fix | None:
    """The wheels for a program that looks for another library next, after the one that it named."""
    if program == "ctranslate2":
        return CAUSE.fix("ctranslate2-wheels" if soname == "12" else "ctranslate2-newer")
    if program == "llama_cpp" and scene.os != "windows":
        wheels = _wheels(program, soname)
        return CAUSE.fix("library-wheel", program=program, library=f"{library}.so.{soname}", wheels=wheels)
    return None


def _of_onnxruntime(scene: Scene, *, windows: bool) -> Fix:
    package = with_libraries(scene, "onnxruntime-gpu") or "onnxruntime-gpu[cuda,cudnn]"
    return CAUSE.fix("onnxruntime-libraries" if windows else "onnxruntime-path", package=package)


def _program_fixes(scene: Scene, program: str, match: Match) -> Iterator[Fix]:
    """The newest release for the CUDA of the torch beside it; without one, the program with its own CUDA libraries."""
    soname, library = match.groups["soname"], match.groups["library"]
    if fix := _of_several(scene, program, library, soname):
        yield fix
        return
    package, cuda = _PACKAGES.get(program), scene.torch.cuda if scene.torch else None
    build = release_for(scene, package) if package and cuda else None
    if build and cuda:
        values = {"package": build.package, "version": build.version, "major": CudaVersion.parse(cuda).major}
        yield CAUSE.fix("program-release", **values)
        return
    if program == "onnxruntime":
        if native := of_native(scene, match):
            yield from native
            return
        yield _of_onnxruntime(scene, windows=scene.os == "windows")
        return
    command = CAUSE.file.words.get(program)
    if command and program == "cupy":
        if _brings(scene, soname):
            yield CAUSE.fix("torch-libraries", library=f"{library}.so.{soname}", program=program, major=soname)
        command = _of_cupy(scene, command, int(soname))
    known = dict(line.split(" ", 1) for line in CAUSE.file.words["library-wheels"].split("; "))
    wheel = known.get(f"{library.lower()}.so.{soname}")
    if wheel and not command and scene.os != "windows":
        yield CAUSE.fix("library-wheel", program=program, wheels=wheel, library=f"{library}.so.{soname}")
    else:
        yield CAUSE.fix("program" if command else "program-build", program=program, command=command)


def _of_cupy(scene: Scene, command: str, major: int) -> str:
    """The command that replaces CuPy's wheels by the one for a CUDA major that the driver runs."""
    driver = CudaVersion.parse(scene.driver.cuda).major if scene.driver and scene.driver.cuda else 99
    wheels = [name for name in scene.report.installed if name.startswith("cupy-cuda")]
    names = " ".join(wheels) or "cupy-cuda11x cupy-cuda12x cupy-cuda13x"
    return command.format(installed=names, major=min(max(major, 11), driver))


#: The first torch whose wheels require NVIDIA's wheels of all CUDA libraries.
_WITH_WHEELS = Version("2.0")


def _brings(scene: Scene, major: str) -> bool:
    """Whether the wheels that torch requires include the libraries of a CUDA major."""
    torch = scene.torch
    if torch is None or torch.version is None or torch.cuda is None or scene.by_conda or scene.os == "windows":
        return False
    return Version(torch.version) >= _WITH_WHEELS and torch.cuda.partition(".")[0] == major


def _numpy_installed(environment: Environment) -> Iterator[Finding]:
    """Compare what the headers left in the binaries with the NumPy that is imported."""
    numpy, torch = environment.distribution("numpy"), environment.torch
    if numpy is None or release(numpy.version) < (2,):
        return
    old = [(torch.label, f"{torch.site}/torch/lib")] if torch and torch.numpy == 1 else []
    old += [(d.label, path) for name, path in environment.numpy_1.items() if (d := environment.distribution(name))]
    extensions = environment.extensions or ()
    if old:
        labels = [name for name, _ in old]
        who = f"{listed(labels)} beside numpy {numpy.version}"
        evidence = (*(f"{place}: {name} looks for NumPy where NumPy 1 had it" for name, place in old), numpy.info)
        of_torch = bool(torch and torch.numpy == 1) or any(e.package in environment.numpy_1 for e in extensions)
        found = CAUSE.finding("numpy-installed", Grounds.READ, evidence, _numpy_fixes(environment), who=who)
        yield replace(found, beside_torch=not of_torch)


#: The first Python for which NumPy 1 has no wheels; 1.26 is its last release.
_WITHOUT_NUMPY_1 = (3, 13)


def _numpy_fixes(environment: Environment) -> Iterator[Fix]:
    """NumPy 1 if nothing that is installed forbids it, then releases of the modules that support NumPy 2."""
    wants = (needs(environment, d).get("numpy") for d in environment.distributions)
    newer = any(r is not None and not satisfies("1.26.4", r.specifier) for r in wants)
    if not newer and release(environment.python)[:2] < _WITHOUT_NUMPY_1:
        yield CAUSE.fix("older-numpy", last="; 1.26 is its last release")
    if environment.numpy_1:
        yield CAUSE.fix("newer-packages", packages=" ".join(environment.numpy_1))


# Wheels of GPU libraries that overwrite each other, or are not those that torch pins.


def overlapping_wheels(environment: Environment) -> Iterator[Finding]:
    """The first fault among the wheels; overlaps explain the rest."""
    wheels = [d for d in environment.distributions if is_toolkit_package(d.name)]
    wanted = needs(environment, torch_distribution(environment))
    found = chain(_overlaps(environment, wheels), _twice(wheels, wanted), _others(wheels, wanted))
    return islice(found, 1)


def _overlaps(environment: Environment, wheels: Sequence[Distribution]) -> Iterator[Finding]:
    """A wheel that something requires, whose library another wheel has overwritten."""
    for one in wheels:
        claimed = {path for path in one.altered if LIBRARY_FILE.search(path)}
        for other in wheels if claimed else ():
            shared = sorted(claimed & set(other.files or ())) if other.site == one.site and other is not one else []
            asking = requiring(environment, one.name) if shared else []
            if asking:
                keeps = requiring(environment, other.name)
                evidence = (
                    f"{one.site}/{shared[0]}: of another size than {PurePosixPath(one.info).name}/RECORD says",
                    f"{one.info}: {one.label}, which {asking[0].label} requires",
                    f"{other.info}: {other.label}, which has the same files",
                )
                values = {"one": one.label, "other": other.label, "file": shared[0], "asks": asking[0].label}
                yield CAUSE.finding("overlap", Grounds.READ, evidence, _untangle(one, other, keeps), **values)


def _untangle(one: Distribution, other: Distribution, keeps: Sequence[Distribution]) -> Iterator[Fix]:
    pin = f"{one.name}=={one.version}"
    if not keeps:
        yield CAUSE.fix("remove-other", other=other.name, one=one.label, pin=pin)
        return
    names = " and ".join(dict.fromkeys(d.label for d in keeps))
    yield CAUSE.fix("put-back", one=one.label, names=names, pin=pin)
    yield CAUSE.fix("separate", names=names, other=other.name)


def _twice(wheels: Sequence[Distribution], wanted: Mapping[str, Requirement]) -> Iterator[Finding]:
    """A wheel with two records in one directory."""
    for name in dict.fromkeys(d.name for d in wheels):
        same = [d for d in wheels if d.name == name and d.site == next(w.site for w in wheels if w.name == name)]
        if len(same) > 1:
            newest = max(same, key=lambda d: release(d.version))
            keep = pinned(wanted[name]) if name in wanted else f"{name}=={newest.version}"
            # pip removes one record at a time.
            removals = " && ".join([f"pip uninstall -y {name}"] * len(same))
            fix = CAUSE.fix("remove-both", keep=keep, removals=removals)
            versions = " and ".join(d.version or "?" for d in same)
            evidence = (f"{d.info}: {d.label}" for d in same)
            yield CAUSE.finding("twice", Grounds.READ, evidence, [fix], name=name, versions=versions)


def _others(wheels: Sequence[Distribution], wanted: Mapping[str, Requirement]) -> Iterator[Finding]:
    """Pinned libraries that are installed in an older release or another major; a newer one of the same major works."""
    found = []
    for name, requirement in wanted.items():
        have = next((d for d in wheels if d.name == name), None)
        pin = pinned_version(requirement)
        if have is None or pin is None or satisfies(have.version, requirement.specifier):
            continue
        got, need = release(have.version), release(pin)
        if got and (got < need or got[0] != need[0]):
            found.append((have, requirement, "which is older" if got < need else "which is another major"))
    if not found:
        return
    have, requirement, how = found[0]
    evidence = (f"{d.info}: {d.label}, and torch pins {r.specifier}" for d, r, _ in found)
    fix = CAUSE.fix("pinned", pins=" ".join(pinned(r) for _, r, _ in found))
    # If only the numbers after the second differ, that mostly does no harm.
    far = any(release(d.version)[:2] != release(pinned_version(r))[:2] for d, r, _ in found)
    grounds = Grounds.READ if far else Grounds.NOTICED
    yield CAUSE.finding("pinned", grounds, evidence, [fix], pin=pinned(requirement), have=have.label, how=how)

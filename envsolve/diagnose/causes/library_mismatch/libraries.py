"""Libraries of another major or release than a program was built for: cuDNN, and those of programs beside torch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from envsolve.diagnose.causes._shared import Cause, lines, shown_variable, torch_evidence
from envsolve.diagnose.fixes import led_by, pair_with, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, public, shown
from envsolve.diagnose.scene import Scene
from envsolve.diagnose.signatures import Match
from envsolve.diagnose.tool_fixes import image_with_cudnn
from envsolve.environment.model import release

CAUSE = Cause("library-mismatch")


#: The packages that hold cuDNN: conda's, then the wheels.
_CUDNN = re.compile(r"cudnn|libcudnn|nvidia-cudnn-cu\d\d")


def own_is_older(scene: Scene, match: Match) -> str | None:
    """The environment's own package of cuDNN, if it is the very copy that the program found too old."""
    found, built = match.groups.get("found", ""), match.groups.get("built", "")
    if not found or "cudnn" not in match.quote.lower():
        return None
    have = numbers(found)
    if _BY_CONDA.search(scene.report.text) and not scene.mentions("ld_library_path"):
        return "cudnn"
    owned = [(name, seen.value) for name, seen in scene.report.installed.items() if _CUDNN.fullmatch(name)]
    owned += _pinned_by_torch(scene)
    older = bool(built) and have < numbers(built)
    return next((name for name, version in owned if older and release(version)[: len(have)] == have), None)


def _pinned_by_torch(scene: Scene) -> list[tuple[str, str]]:
    """The cuDNN wheel that the report's torch pins, which is there even if the report does not list it."""
    build = scene.torch.build if scene.torch else None
    named = map(Requirement, (line for line in (build.requires if build else None) or () if "-cudnn-" in line))
    return [(one.name, pin.version) for one in named for pin in one.specifier if pin.operator == "=="]


_BY_CONDA = re.compile(
    r"\b(?:conda|mamba|pixi)\b[^\n]{0,40}\b(?:create|install|add)\b[^\n]{0,120}\b(?:jax|tensorflow|pytorch)"
)


def numbers(text: str) -> tuple[int, ...]:
    """``9.10.1``, ``(9, 10, 1)`` or, as cuDNN numbers itself, ``91001``."""
    if text.isdigit() and len(text) >= 4:
        number = int(text)
        base = 10000 if number >= 90000 else 1000
        return number // base, number % base // 100, number % 100
    return tuple(int(part) for part in re.findall(r"\d+", text))


def of_own_cudnn(scene: Scene, match: Match, package: str) -> Finding:
    """The finding for a program whose own cuDNN package is older than it was built with."""
    built = ".".join(map(str, numbers(match.groups["built"])[:2]))
    seen, conda = scene.report.installed.get(package), not package.startswith("nvidia-")
    have = seen.value if seen else ".".join(map(str, numbers(match.groups["found"])))
    names = {"package": "cudnn" if conda else package, "built": built, "have": have}
    fixes = [CAUSE.fix("newer-cudnn-conda" if conda else "newer-cudnn", **names)]
    evidence = (*lines(match), *([shown(seen)] if seen else []))
    return CAUSE.finding(
        "own-cudnn", Grounds.CONFIRMED if seen else Grounds.STATED, evidence, fixes, ("library-shadowed",), **names
    )


def of_cudnn8(scene: Scene, match: Match) -> Finding:
    """A part of cuDNN 8 that is not there, or one that lacks another library."""
    if missing := match.groups.get("missing"):
        in_wsl = missing.startswith("libcuda.") and scene.platform.wsl
        name = "wsl-libcuda" if in_wsl else "link-nvrtc" if missing.startswith("libnvrtc.") else "link-library"
        fix = CAUSE.fix(name, missing=missing)
        explained = ("lock-incomplete", "library-shadowed", "no-driver")
        return CAUSE.finding("infer-needs", Grounds.STATED, lines(match), [fix], explained, missing=missing)
    consequences = ("lock-incomplete", "library-shadowed")
    return CAUSE.finding("infer", Grounds.STATED, lines(match), for_cudnn8(scene), consequences)


def for_cudnn8(scene: Scene) -> Iterator[Fix]:
    """A release of the program for cuDNN 9, then a cuDNN 8 for this one."""
    if image := image_with_cudnn(scene, "8"):
        yield image
    if scene.mentions("ctranslate2", "whisper", "transcri"):
        yield CAUSE.fix("ctranslate2")
    if scene.mentions("onnxruntime"):
        yield CAUSE.fix("onnxruntime-cudnn9")
    yield CAUSE.fix("cudnn9")
    yield CAUSE.fix("cudnn8")


#: The first torch that brings cuDNN 9.
_CUDNN_9 = (2, 4)


def of_cudnn_dll(scene: Scene, match: Match) -> Finding:
    """A program for Windows that finds no cuDNN DLL of its major: torch contains another major, or is not loaded."""
    major, torch = match.groups["major"], scene.torch
    own = None if torch is None or torch.version is None else "9" if release(torch.version) >= _CUDNN_9 else "8"
    other, translates = own is not None and own != major, scene.mentions("ctranslate2", "whisper", "transcri")
    fixes = []
    if other and major == "9":
        every = {name: SpecifierSet() for name in scene.report.installed if scene.family.follows_torch(name)}
        newer = pair_with(scene, {**every, "torch": SpecifierSet(">=2.4")})
        fixes = [led_by(CAUSE.words("newer-torch-cudnn"), newer)] if newer else []
        fixes += [CAUSE.fix("ctranslate2-cudnn8")] if translates else []
    elif other and translates:
        fixes = [CAUSE.fix("ctranslate2")]
    have = CAUSE.words("cudnn-of-torch", major=own) if other else CAUSE.words("no-cudnn")
    evidence = (*lines(match), *torch_evidence(scene))
    last = "frozen" if frozen(scene) else "cudnn-windows"
    ways = (*fixes, CAUSE.fix(last, major="11" if major == "8" and frozen(scene) else "12", cudnn=major))
    return CAUSE.finding("cudnn-dll", Grounds.STATED, evidence, ways, major=major, have=have)


#: A part of cuDNN at a place that the loader searches without being told.
_SYSTEM_CUDNN = re.compile(
    r"(?<![\w.-])(?P<path>/(?:usr/)?(?:lib|lib64|local/cuda[\w.-]*/lib64)/(?:[\w-]+/)?libcudnn\w*\.so[\d.]*)"
)


def one_cudnn(scene: Scene) -> Iterator[Fix]:
    """Leave one cuDNN on the loader's path, that of torch."""
    if system := _SYSTEM_CUDNN.search(scene.report.text):
        # The loader finds it by itself: LD_LIBRARY_PATH does not matter.
        yield CAUSE.fix("system-cudnn", path=system["path"])
        newer = replacements(scene)[-1:]
        yield from (led_by(CAUSE.words("complete-cudnn"), fix) for fix in newer)
        return
    yield CAUSE.fix("unset")
    build = scene.torch.build if scene.torch else None
    pins = [line for line in (build.requires if build else None) or () if "cudnn" in line]
    if pins:
        yield CAUSE.fix("pinned-cudnn", pin=pins[0].split(";")[0].strip())
    yield CAUSE.fix("list-cudnn")


#: The cuDNN that CTranslate2 loads beside each CUDA major.
_CUDNN_OF = {"11": "8"}


def frozen(scene: Scene) -> bool:
    """Whether a Windows program that includes its own Python failed: PyInstaller's words, or such a release's name."""
    return scene.mentions("failed to execute script", "standalone faster-whisper", "_mei")


def of_ctranslate2(scene: Scene, match: Match) -> Finding:
    """CTranslate2 finds no cuBLAS of its CUDA major: by the system, and by the CUDA of the torch beside it."""
    major, windows = match.groups["major"], "dll" in match.groups or scene.os == "windows"
    cuda = scene.torch.cuda if scene.torch else None
    if frozen(scene):
        fixes = [CAUSE.fix("frozen", major=major, cudnn=_CUDNN_OF.get(major, "9"))]
    elif major == "11":
        fixes = [CAUSE.fix("ctranslate2-newer")]
    else:
        fixes = [CAUSE.fix("ctranslate2-windows" if windows else "ctranslate2-wheels")]
        fixes += [CAUSE.fix("ctranslate2-cuda11")] if cuda and cuda.startswith("11.") else []
    other = CAUSE.words("torch-of-another", cuda=cuda) if cuda and not cuda.startswith(f"{major}.") else ""
    beside = f"{other} " if other else ""
    evidence = (*lines(match), *torch_evidence(scene))
    consequences = ("lock-incomplete", "mixed-flavours")
    values = {"library": match.groups["library"], "major": major, "beside": beside}
    return CAUSE.finding("ctranslate2", Grounds.STATED, evidence, fixes, consequences, **values)


#: The CUDA that a wheel from Paddle's own pages was built for, ``2.5.2.post120``: these wheels load cuDNN 8.
_PADDLE = re.compile(r"\.post(?P<major>1[012])\d\b")


def of_paddle(scene: Scene, match: Match) -> Finding:
    """Paddle finds no cuDNN under the name without a version, which wheels do not have."""
    built = _PADDLE.search(scene.report.text)
    driver = scene.driver.cuda.partition(".")[0] if scene.driver and scene.driver.cuda else "12"
    major = built["major"] if built else "11" if driver == "11" else "12"
    values = {"cudnn": "8", "major": major}
    fixes, consequences = [CAUSE.fix("paddle", **values)], ("lock-incomplete",)
    return CAUSE.finding("paddle", Grounds.STATED, lines(match), fixes, consequences, **values)


# TensorFlow, JAX, ONNX Runtime outside Python, and programs for CUDA 11.

#: TensorFlow 1, by its number or by the CUDA that its last release looks for.
_TENSORFLOW_1 = re.compile(
    r"tensorflow(?:-gpu)?\W{0,12}1\.1\d\b|nvidia-tensorflow|libcud\w+\.so\.10\.0\b", re.IGNORECASE
)
#: What the loader of TensorFlow up to 2.13 looks for; newer ones do not name the libraries.
_OF_CUDA_11 = re.compile(
    r"(?:dynamic library |Successfully opened dynamic library )'?"
    r"lib(?:cudart\.so\.11|cublas\w*\.so\.11|cusparse\.so\.11|cufft\.so\.10|cusolver\.so\.1[01]|cudnn\.so\.8)"
)
#: A wheel or a loader of CUDA 11 that ends at a library which only CUDA 12's libcusolver and libcusparse need.
_NEEDS_NVJITLINK = re.compile(r"libnvJitLink\.so\.12: cannot open shared object")
_BUILT_FOR_11 = re.compile(r"cupy-cuda11[0-8x]\b|libcudart\.so\.11|\+cu11\d\b")


def of_tensorflow(scene: Scene) -> Iterator[Fix]:
    """TensorFlow's libraries by the system, by its major and by how it was installed."""
    if _TENSORFLOW_1.search(scene.report.text):
        yield from (CAUSE.fix("tensorflow-1"), CAUSE.fix("tensorflow-1-wheel"))
    elif scene.os == "windows":
        yield from (CAUSE.fix("tensorflow-windows"), CAUSE.fix("tensorflow-wsl"))
    else:
        if scene.mentions("[and-cuda]"):
            yield CAUSE.fix("tensorflow-path")
        elif _OF_CUDA_11.search(scene.report.text):
            yield CAUSE.fix("cuda-11-wheels", program="TensorFlow")
        yield CAUSE.fix("tensorflow")


def of_cuda_11(scene: Scene) -> Finding | None:
    """A program for CUDA 11 that was given a library of CUDA 12, because both have one file name."""
    needed = _NEEDS_NVJITLINK.search(scene.report.text)
    if needed is None or not _BUILT_FOR_11.search(scene.report.text):
        return None
    match = scene.first("cuda-library-missing") or CAUSE.first(scene, "tensorflow")
    program = "CuPy" if scene.mentions("cupy") else "TensorFlow" if scene.mentions("tensorflow") else "The program"
    evidence = (*lines(match), *shown_variable(scene, "LD_LIBRARY_PATH"))
    explained = ("library-shadowed", "mixed-flavours", "lock-incomplete")
    ways = (CAUSE.fix("cuda-11-wheels", program=program), CAUSE.fix("unset"))
    return CAUSE.finding("cuda-12-library", Grounds.STATED, evidence, ways, explained, program=program)


#: Traces of ONNX Runtime in programs that are not written in Python.
_NATIVE = re.compile(
    r"/target/(?:debug|release)/|\.rs:\d|\bcargo |\bgo (?:run|build)\b|Golang|onnxruntime_go|\.(?:cs|go|cpp):\d"
)
_DIRECTORY = re.compile(r"(?P<directory>[A-Z]:\\[^\"\n]{1,240})\\onnxruntime_providers_\w+\.dll")
_WANTED = re.compile(r"cublas(?:Lt)?(?:64_|\.so\.)(?P<major>1[1-9])|cudnn64_(?P<cudnn>[89])")


def of_native(scene: Scene, match: Match) -> list[Fix]:
    """NVIDIA's libraries for ONNX Runtime in a program of another language, which pip cannot install into."""
    text = scene.report.text
    if not _NATIVE.search(text) or scene.mentions("site-packages", "dist-packages"):
        return []
    wanted, place = _WANTED.search(text), _DIRECTORY.search(text)
    major = (wanted["major"] if wanted else None) or "12"
    wheels = CAUSE.words("onnxruntime-wheels" if major == "12" else "onnxruntime-wheels-13")
    if scene.os == "windows":
        directory = place["directory"] if place else "PROGRAM_DIRECTORY"
        return [CAUSE.fix("dll-wheels", major=major, wheels=wheels, directory=directory)]
    return [CAUSE.fix("native-wheels", major=major, wheels=wheels), CAUSE.fix("native-build", major=major)]


def of_jax(scene: Scene, match: Match) -> Finding:
    """Parts of JAX in two versions: those of the installed jax, then the newest of all."""
    parts = [seen for name, seen in scene.report.installed.items() if name.startswith("jax")]
    cuda = "cuda13" if scene.mentions("cuda13") else "cuda12"
    version = public(scene.report.installed, "jax")
    own = CAUSE.fix("jax-version", cuda=cuda, version=version) if version else CAUSE.fix("jax-own-version", cuda=cuda)
    ways = (own, CAUSE.fix("jax-plugin", cuda=cuda))
    return CAUSE.finding("jax-plugin", Grounds.STATED, (*lines(match), *map(shown, parts)), ways)

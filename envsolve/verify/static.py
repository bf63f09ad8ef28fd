"""Checks of an environment's files without a run: whether its libraries carry code for a GPU, and are all found."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from envsolve.binaries.elf import MAGIC
from envsolve.binaries.library import read_library
from envsolve.binaries.model import arch_order
from envsolve.binaries.names import LIBRARY_FILE
from envsolve.environment.layout import interpreter_of, prefix_of
from envsolve.environment.linking import Linking, Problem, read_linking
from envsolve.environment.loader import Loader, loader_of, shadows
from envsolve.environment.model import Environment, Library
from envsolve.environment.read import read_outline
from envsolve.errors import UsageError, VerificationError
from envsolve.facts.catalogue import Catalogue
from envsolve.rules.nvidia.code import best_code
from envsolve.rules.verdict import Level
from envsolve.system.files import is_file
from envsolve.values import ComputeCapability
from envsolve.verify.installed import check_files, check_here
from envsolve.verify.report import FILES, LOADER, Check, Explain, Report, Status, describe, unexplained
from envsolve.verify.runner import run_compile_checks
from envsolve.verify.scripts import expect_known, find_scripts

COVERAGE = "arch-coverage"
NAMES = (FILES, LOADER, COVERAGE)
_NAMED = 3
_STACK = re.compile(r"torch|triton|nvidia-[\w-]+")
#: CUDA's own without a distribution: each with its parts. Others (cuFFTW, cuFile) hold next to no code, for few GPUs.
_OF_CONDA = re.compile(r"lib(torch_cuda|cublas|cudnn|cufft(?!w)|curand|cusolver|cusparse(?!Lt)|nccl)")


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one distribution.

    Attributes:
        owner: Its name; if conda installed it, the library's, ``cublas``.
        archs: All SASS and PTX in its libraries; of torch the list that its kernels are compiled for.
    """

    owner: str
    archs: tuple[str, ...]


def static_checks(
    python: Path,
    gpus: Sequence[ComputeCapability],
    names: Sequence[str],
    environ: Mapping[str, str],
    time_limit: float = 120.0,
) -> Iterator[Check]:
    """Check the files of an interpreter's environment; nothing of it is run.

    Args:
        python: The interpreter.
        gpus: The GPUs that its libraries shall carry code for.
        names: Which of :data:`NAMES` to check.
        environ: Variables that decide beside the files, LD_LIBRARY_PATH among them.
        time_limit: Seconds for looking up symbols.
    """
    if not names:
        return
    if FILES in names:
        yield check_files(python)
    if set(names) == {FILES}:
        return
    started = time.monotonic()
    environment = read_outline(prefix_of(python), environ)
    if LOADER in names:
        yield _loader(environment, time.monotonic() - started, time_limit)
    if COVERAGE in names and gpus:
        started = time.monotonic()
        codes = tuple(_codes(environment))
        seconds = time.monotonic() - started
        yield from (coverage(codes, gpu, seconds / len(gpus)) for gpu in gpus)


def coverage(codes: Sequence[Code], gpu: ComputeCapability, seconds: float) -> Check:
    """Judge the code of every distribution for a GPU, by the rules for SASS and PTX."""
    if not codes:
        return Check(COVERAGE, str(gpu), "skip", 0.0, "no library of this environment carries CUDA code")
    architectures = Catalogue().architectures
    best = {code.owner: best_code(code.archs, gpu, architectures) for code in codes}
    without = [code for code in codes if best[code.owner][0] is Level.NONE]
    if without:
        lines = [f"{code.owner} carries no code for {gpu}: it has {' '.join(code.archs)}" for code in without]
        return Check(COVERAGE, str(gpu), "fail", round(seconds, 3), "\n".join(lines), "no-kernel-for-gpu")
    by_ptx = [f"{owner} ({arch.name})" for owner, (level, arch) in best.items() if level is Level.PTX and arch]
    detail = f"{len(codes)} distributions carry code for it"
    if "torch" in best and (arch := best["torch"][1]):
        detail += f", torch {arch.name}"
    if by_ptx:
        detail += f"; only as PTX, which the driver must be new enough for: {', '.join(by_ptx)}"
    return Check(COVERAGE, str(gpu), "pass", round(seconds, 3), detail)


def _codes(environment: Environment) -> Iterator[Code]:
    files = {library.real: library for library in environment.gpu_libraries if _owner(library)}
    for owner, group in groupby(sorted(files.values(), key=_owner), key=_owner):
        archs = {arch: None for library in group for arch in _archs(library)}
        torch = environment.torch if owner == "torch" else None
        if torch and torch.code:
            archs = dict.fromkeys(torch.code)
        if archs:
            yield Code(owner, tuple(sorted(archs, key=lambda arch: (arch.startswith("compute"), arch_order(arch)))))


def _archs(library: Library) -> tuple[str, ...]:
    try:
        with Path(library.path).open("rb") as file:
            read = read_library(file, Path(library.path).name)
    except (OSError, UsageError):  # damaged: the loader's check tells
        return ()
    return (*read.sass, *read.ptx)


def _owner(library: Library) -> str:
    """The owner a library is judged with; empty for libraries that decide nothing: auditwheel's copies in a wheel."""
    if Path(library.path).parent.name.endswith(".libs"):
        return ""
    match = _OF_CONDA.match(library.soname)
    return library.owner or (match[1] if match else "")


def _loader(environment: Environment, seconds: float, time_limit: float) -> Check:
    started = time.monotonic()
    loader = loader_of(environment)
    lost = tuple(_lost(environment))
    if not loader.own and not lost:
        return Check(LOADER, None, "skip", round(seconds, 3), "this environment has no library")
    try:
        linking = read_linking(loader, time_limit)
    except TimeoutError:
        detail = f"the symbols of {len(loader.own)} libraries were not looked up within {time_limit:g} s"
        return Check(LOADER, None, "fail", round(seconds + time.monotonic() - started, 3), detail)
    problems = (*lost, *_cut_off(environment), *linking.problems, *_shadowed(environment))
    detail = "\n".join(problem.text for problem in problems) or _sound(loader, linking)
    cause = next((problem.cause for problem in problems if problem.cause), None)
    status: Status = "fail" if problems else "pass"
    return Check(LOADER, None, status, round(seconds + time.monotonic() - started, 3), detail, cause)


def _sound(loader: Loader, linking: Linking) -> str:
    text = f"{len(loader.own)} libraries find all libraries and {linking.symbols} symbols that they need"
    if not linking.elsewhere:
        return text
    lacking = [f"{owner} ({_some(names)})" for owner, names in linking.elsewhere]
    return f"{text}; some load only if more is installed: {', '.join(lacking)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def _lost(environment: Environment) -> Iterator[Problem]:
    """Libraries that packages of the GPU's stack installed, and that are gone.

    Much of it is loaded by name, when it is first used: nothing that is there need show the lack.
    """
    for distribution in environment.distributions:
        if not _STACK.fullmatch(distribution.name):
            continue
        for file in filter(LIBRARY_FILE.search, distribution.missing):
            yield Problem(f"{distribution.site}/{file} of {distribution.label} is missing", "lock-incomplete")
        for file in distribution.altered:
            if not _is_elf(Path(distribution.site) / file):
                text = f"{distribution.site}/{file} of {distribution.label} is not a library"
                yield Problem(text, "lock-incomplete")


def _is_elf(path: Path) -> bool:
    """Whether a file begins as a library does; an empty or too short file is reported as truncated."""
    if not is_file(path):
        return False
    try:
        with path.open("rb") as file:
            return MAGIC.startswith(file.read(len(MAGIC)))
    except OSError:
        return False


def _cut_off(environment: Environment) -> Iterator[Problem]:
    for library in environment.gpu_libraries:
        if library.cut_off:
            yield Problem(f"{library.path} is cut off: its file is shorter than its headers say")


def _shadowed(environment: Environment) -> Iterator[Problem]:
    for shadow in shadows(environment):
        text = f"{shadow.name}: LD_LIBRARY_PATH puts {shadow.outside} before the environment's own {shadow.own}"
        yield Problem(text, "library-shadowed")


# The nearest thing to proof without a GPU: what compiles for a GPU, and what an environment's files carry for it.


def check_without_gpu(
    python: str | os.PathLike[str],
    gpus: Sequence[ComputeCapability],
    *,
    time_limit: float = 120.0,
    only: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    explain: Explain = unexplained,
) -> Report:
    """Check that an environment compiles kernels for GPUs, carries code for them, and that its libraries are found.

    Args:
        python: The environment's interpreter.
        gpus: The GPUs, by compute capability.
        time_limit: Seconds for each check that runs something.
        only: Names of the checks to run; all where empty.
        environ: Variables by which the loader finds libraries.
        explain: Finds the root cause of a failure in its text.

    Raises:
        UsageError: As :func:`run_compile_checks`.
        InterruptedBySignalError: SIGTERM or SIGHUP came.
    """
    compiling = [script.name for script in find_scripts() if script.runs_on == "architecture"]
    expect_known(only, [*NAMES, *compiling], "those that run on a GPU are there without --compile-only")
    gpus = tuple(dict.fromkeys(gpus))
    wanted = only or (*NAMES, *compiling)
    compiled = [name for name in wanted if name in compiling]
    ran = run_compile_checks(python, gpus, time_limit=time_limit, only=compiled, explain=explain)
    static, started = [name for name in wanted if name in NAMES], time.monotonic()
    checks = tuple(static_checks(Path(ran.python or python), gpus, static, environ, time_limit))
    seconds = (ran.seconds or 0.0) + time.monotonic() - started
    return replace(ran, checks=(*checks, *ran.checks), seconds=round(seconds, 3))


# The condition for putting an environment in place: no check of what it runs fails, on any one GPU.
#
# Compilers for CUDA and the ties between GPUs are the machine's affair: an environment is not refused for them.


def prove(prefix: Path, explain: Explain = unexplained) -> bool:
    """Run the checks; skipped ones (no GPU here) are not failures.

    Returns:
        Whether anything was proved: False if every check was skipped.

    Raises:
        VerificationError: A check failed.
    """
    names = [script.name for script in find_scripts() if script.runs_on in ("host", "gpu") and not script.builds]
    report = check_here(interpreter_of(prefix), only=[FILES, *names], explain=explain)
    if report.failed:
        raise VerificationError(
            "the environment was made, but does not work:\n" + describe(report),
            hint="nothing was installed; to install it anyway, add --no-verify",
        )
    return report.passed

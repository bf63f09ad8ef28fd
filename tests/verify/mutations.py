"""Damage a copy of a real environment in one way at a time, and count what verification reports.

    python -m tests.verify.mutations [--python EXE] [--workers N] [--seconds N] [--json FILE] [GROUP...]

Groups: ``files`` (every library and program in turn, read only), ``use`` (each library while checks use it, needs a
GPU), ``custom`` (replaced operators, another torch, other variables), ``conda`` (packages that rattler installed; needs
the extra ``conda``), ``sound`` (undamaged, 20 runs of all checks), ``quick`` (undamaged, three runs of the quick ones).
The GPU stack is linked into a new environment; a file is copied before it is changed, so the original stays as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.binaries.names import LIBRARY_FILE
from envsolve.diagnose.signatures import explain
from envsolve.environment.installed import record_rows
from envsolve.environment.layout import prefix_of, read_layout
from envsolve.environment.model import Distribution
from envsolve.environment.read import read_distributions
from envsolve.verify.installed import check_files, check_here
from envsolve.verify.report import FILES, Report, describe
from tests.environment.test_installed import put

STACK = ("torch", "triton", "torchvision", "torchaudio")
PROGRAMS = ("bin/ptxas", "bin/ptxas-blackwell", "lib/libdevice.10.bc", "torch/__init__.py", "torch/functional.py")
SOUND_RUNS = 20
WITHOUT_DAMAGE = ("sound", "quick")
#: The check that uses a library, by how the library's file name begins.
USED_BY = {
    "libnvrtc-builtins": "lib-nvrtc",
    "libnvrtc.": "lib-nvrtc",
    "libcublas.": "lib-cublas",
    "libcublasLt": "lib-cublas",
    "libcudnn_cnn": "lib-cudnn",
    "libcudnn_adv": "lib-cudnn",
    "libcudnn_ops": "lib-cudnn",
    "libcudnn_graph": "lib-cudnn",
    "libcudnn_heuristic": "lib-cudnn",
    "libcudnn_engines_precompiled": "torch-convolution",
    "libcudnn.": "lib-cudnn",
    "libcusparse.": "lib-cusparse",
    "libcusolver.": "lib-cusolver",
    "libcufft.": "lib-cufft",
    "libcurand.": "lib-curand",
    "libcusparseLt": "lib-cusparselt",
    "libnccl": "lib-nccl",
    "libcupti": "lib-cupti",
    "libnvJitLink": "lib-cusparse",
    "libcudart": "lib-loads",
    "libnvshmem_host": "lib-nvshmem",
    "nvshmem_bootstrap_uid": "lib-nvshmem",
    "libcufile.": "lib-cufile",
    "libtorch_cuda.": "torch-elementwise",
    "libtorch_cpu": "torch-import",
    "libtorch_python": "torch-import",
    "libc10.": "torch-import",
    "libc10_cuda": "torch-import",
    "libtriton": "triton-kernel",
    "libdevice": "torch-compile",
    "ptxas": "triton-kernel",
}


class Customizing(NamedTuple):
    """What a module of the environment does to torch before the user's program runs, and the check that sees it."""

    what: str
    source: str
    check: str = "torch-operators"


CUSTOM = (
    Customizing("wrong values", "import torch; f = torch.matmul; torch.matmul = lambda *a, **k: f(*a, **k) + 1"),
    Customizing("another operator", "import torch; f = torch.conv2d; torch.conv2d = lambda *a, **k: -f(*a, **k)"),
    Customizing("a method replaced", "import torch; f = torch.Tensor.add; torch.Tensor.add = lambda s, o: f(s, o) * 2"),
    Customizing("an answer replaced", "import torch; torch.Tensor.tolist = lambda s: list(range(len(s)))"),
    Customizing("a function of nn", "import torch.nn.functional as F; F.linear = lambda x, w, b=None: x"),
    Customizing("another type", "import torch; f = torch.Tensor.to; torch.Tensor.to = lambda s, *a, **k: f(s).half()"),
    Customizing("another default type", "import torch; torch.set_default_dtype(torch.float64)"),
    Customizing(
        "a mode that replaces operators",
        "import torch\nfrom torch.overrides import TorchFunctionMode\nclass Mode(TorchFunctionMode):\n"
        "    def __torch_function__(self, f, types, a=(), k=None): return f(*a, **(k or {}))\nMode().__enter__()",
    ),
    Customizing(
        "a kernel registered over torch's own",
        "import torch\nlibrary = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('mm', lambda a, b: torch.zeros(a.shape[0], b.shape[1], device=a.device), 'CUDA')",
        "torch-matmul",
    ),
)


class Outcome(NamedTuple):
    """How one mutation ended: which failed checks name the file, and which failed at all."""

    what: str
    named: tuple[str, ...]
    failed: tuple[str, ...]


def outcome(what: str, report: Report, word: str) -> Outcome:
    failed = [check for check in report.checks if check.status == "fail"]
    return Outcome(what, tuple(c.name for c in failed if word in c.detail), tuple(c.name for c in failed))


def needed(distributions: Sequence[Distribution]) -> dict[str, Distribution]:
    """The GPU stack and all that it requires."""
    by_name = {one.name: one for one in reversed(distributions)}
    names = [name for name in by_name if name in STACK or name.startswith(("nvidia-", "cuda-"))]
    chosen: dict[str, Distribution] = {}
    while names:
        name = names.pop()
        if name in by_name and name not in chosen:
            chosen[name] = by_name[name]
            lines = map(Requirement, by_name[name].requires)
            names += [canonicalize_name(one.name) for one in lines if not one.marker or one.marker.evaluate()]
    return chosen


def linked(python: Path, folder: Path) -> list[Path]:
    """Make an environment with the GPU stack of another one; return the files to damage."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    layout = read_layout(prefix_of(python), {})
    (site,) = folder.glob("lib/python3*/site-packages")
    everything = [one for place in layout.sites for one in read_distributions(Path(place.path))]
    files = []
    for distribution in needed(everything).values():
        info = Path(distribution.info)
        shutil.copytree(info, site / info.name)
        for row in record_rows(info) or ():
            source, target = Path(distribution.site, row[0]), site / row[0]
            if row[0].startswith("../") or row[0].endswith(".pyc") or not source.is_file() or target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            link(source, target)
            for compiled in source.parent.glob(f"__pycache__/{source.stem}.*.pyc") if source.suffix == ".py" else ():
                (target.parent / "__pycache__").mkdir(exist_ok=True)
                link(compiled, target.parent / "__pycache__" / compiled.name)
            of_stack = distribution.name in STACK or distribution.name.startswith("nvidia-")
            if of_stack and (LIBRARY_FILE.search(row[0]) or row[0].endswith(PROGRAMS)):
                files.append(target)
    return files


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy on another file system; a file that is there stays."""
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def remove(path: Path) -> None:
    """The file is gone."""
    path.unlink()


def truncate(path: Path) -> None:
    """Its second half is gone."""
    os.truncate(path, path.stat().st_size // 2)


def corrupt(path: Path) -> None:
    """Some bytes are others, at the same size."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for part in range(1, 64):
            file.seek(size * part // 64)
            byte = file.read(1)
            file.seek(size * part // 64)
            file.write(bytes([byte[0] ^ 0xFF]) if byte else b"")


def swap(path: Path) -> None:
    """It is another file, sound in itself."""
    path.unlink()
    shutil.copy2(sys.executable, path)


KINDS: dict[str, Callable[[Path], None]] = {one.__name__: one for one in (remove, truncate, corrupt, swap)}


@contextlib.contextmanager
def damaged(path: Path, change: str) -> Iterator[None]:
    """A file that is damaged within the block, and as it was afterwards."""
    kept = path.with_name(path.name + ".kept")
    path.rename(kept)
    try:
        shutil.copy2(kept, path)
        path.chmod(0o755)
        KINDS[change](path)
        yield
    finally:
        path.unlink(missing_ok=True)
        kept.rename(path)


class Worker:
    """One environment of a process of its own."""

    python = Path()
    site = Path()

    @classmethod
    def start(cls, source: str, folder: str) -> None:
        place = Path(tempfile.mkdtemp(dir=folder)) / "env"
        linked(Path(source), place)
        cls.python = place / "bin" / "python"
        (cls.site,) = place.glob("lib/python3*/site-packages")


def by_file(file: str, change: str) -> Outcome:
    """Only the comparison with records, which runs nothing."""
    path = Worker.site / file
    with damaged(path, change):
        check = check_files(Worker.python, hashes=change == "corrupt")
    return outcome(f"files: {change} {file}", Report(checks=(check,)), str(path))


def by_conda(python: str, file: str, change: str) -> Outcome:
    """The comparison with conda's records."""
    path = Path(python).parents[1] / file
    with damaged(path, change):
        check = check_files(Path(python), hashes=True)
    return outcome(f"conda: {change} {file}", Report(checks=(check,)), str(path))


def by_use(file: str, change: str, name: str) -> Outcome:
    """A check that uses the file, and the comparison with records."""
    path = Worker.site / file
    with damaged(path, change):
        report = check_here(Worker.python, only=[FILES, name], time_limit=60)
    return outcome(f"use: {change} {file} ({name})", report, str(path))


def by_custom(number: int, place: str) -> Outcome:
    """A module that changes torch in every process, by either of the two ways that run it.

    ``sitecustomize`` comes from PYTHONPATH, because Debian's Python has one that hides an environment's.
    """
    one = CUSTOM[number]
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ):
        path, module = Path(folder) / place, Path(folder) / place
        if place.endswith(".pth"):
            path, module = Worker.site / place, Worker.site / "changing.py"
            path.write_text("import changing\n")
        else:
            os.environ["PYTHONPATH"] = folder
        module.write_text(one.source + "\n")
        try:
            report = check_here(Worker.python, only=[one.check], explain=explain)
        finally:
            path.unlink()
            module.unlink(missing_ok=True)
    return outcome(f"custom: {place}: {one.what}", report, str(path))


def by_path(what: str) -> Outcome:
    """Another torch, library or package that comes before that of the environment."""
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ):
        if what == "another torch on PYTHONPATH":
            (Path(folder) / "torch").mkdir()
            (Path(folder) / "torch" / "__init__.py").write_text("__version__ = '2.0'\n")
            os.environ["PYTHONPATH"] = folder
            report, word = Report(checks=(check_files(Worker.python),)), folder
        elif what == "another package's file":
            path = next(Worker.site.glob("nvidia/*/lib/libcufft.so.*"))
            with damaged(path, "swap"):
                put(Worker.site, "nvidia-cufft-other", {str(path.relative_to(Worker.site)): b"\x7fELF other"})
                report, word = Report(checks=(check_files(Worker.python),)), "nvidia-cufft-other 1.0 has replaced it"
                shutil.rmtree(next(Worker.site.glob("nvidia_cufft_other-*")))
        else:  # cuDNN opens its parts by name, cuSPARSE takes the nvJitLink that is loaded already
            name, used = ("nvJitLink", "lib-cusparse") if what == "LD_PRELOAD" else ("cudnn_graph", "lib-cudnn")
            path = next(Worker.site.glob(f"nvidia/*/lib/lib{name}.so.*"))
            word = shutil.copy(path, folder)
            before = [os.environ[what]] if what in os.environ else []  # the driver's libraries may be found by it
            os.environ[what] = ":".join([word if what == "LD_PRELOAD" else folder, *before])
            report = check_here(Worker.python, only=[used], explain=explain)
    return outcome(f"custom: {what}", report, word)


def sound(number: int, *, quick: bool = False) -> Outcome:
    """All checks of an environment without damage, or the quick ones."""
    started = time.monotonic()
    report = check_here(Worker.python, quick=quick, explain=explain)
    if report.failed or number == 1:
        print(describe(report), flush=True)
    kind = "quick" if quick else "sound"
    return outcome(f"{kind}: run {number + 1} in {time.monotonic() - started:.1f} s", report, "")


Task = tuple[Callable[..., Outcome], tuple[object, ...]]
PATHS = ("another torch on PYTHONPATH", "another package's file")
VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")


def conda_tasks(folder: Path) -> Iterator[Task]:
    """Every mutation of conda packages. One file after another changes in one environment: not for several workers."""
    # Late: it needs an extra, which a machine with a GPU may not have.
    from tests.verify.conda import conda_environment

    python, files = conda_environment(folder)
    yield from ((by_conda, (str(python), file, change)) for file in files for change in KINDS)


def tasks(files: Sequence[str], groups: Sequence[str], *, gpu: bool) -> Iterator[Task]:
    """Every mutation of a virtual environment, as a function of this module and its arguments."""
    if "custom" in groups:
        for number, one in enumerate(CUSTOM):
            if gpu or one.check == "torch-operators":
                yield from ((by_custom, (number, place)) for place in ("sitecustomize.py", "changing.pth"))
        yield from ((by_path, (what,)) for what in (*PATHS, *(VARIABLES if gpu else ())))
    if "use" in groups:
        for begin, name in USED_BY.items():
            for file in (file for file in files if Path(file).name.startswith(begin)):
                yield from ((by_use, (file, change, name)) for change in ("remove", "truncate", "corrupt"))
    if "files" in groups:
        yield from ((by_file, (file, change)) for file in files for change in KINDS)
    if "sound" in groups:
        yield from ((sound, (number,)) for number in range(SOUND_RUNS))
    if "quick" in groups:
        yield from ((partial(sound, quick=True), (number,)) for number in range(3))


def report_of(group: str, ended: Sequence[Outcome]) -> str:
    """The score of a group in words."""
    if group in WITHOUT_DAMAGE:
        return f"{group}: {sum(not one.failed for one in ended)} of {len(ended)} runs without a failure"
    named = sum(bool(one.named) for one in ended)
    used = sum(any(name != FILES for name in one.failed) for one in ended)
    return f"{group}: {named} of {len(ended)} mutations named; a check that runs something failed in {used}"


def main() -> int:
    """Print every mutation that is missed, and the scores; return 1 if one is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) // 4))
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--json", type=Path)
    parser.add_argument("groups", nargs="*", default=["custom", "use", "files", "sound"])
    options = parser.parse_args()
    os.environ.pop("PYTHONPATH", None)
    started, ended = time.monotonic(), list[Outcome]()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        base = Path(folder) / "base"
        paths = linked(options.python, base)  # the workers' are links to this one, also if the source is elsewhere
        (site,) = base.glob("lib/python3*/site-packages")
        # As pip leaves it: importing torch without byte code takes 3.5 s instead of 1.5 s.
        subprocess.run([base / "bin" / "python", "-m", "compileall", "-q", "-j", "0", site], check=False)
        files = [str(path.relative_to(site)) for path in paths]
        start = (str(base / "bin" / "python"), folder)
        ended += [
            run(*given) for run, given in (conda_tasks(Path(folder) / "conda") if "conda" in options.groups else ())
        ]
        with ProcessPoolExecutor(options.workers, initializer=Worker.start, initargs=start) as pool:
            gpu = any(Path("/dev").glob("nvidia[0-9]*"))
            waiting = [pool.submit(run, *arguments) for run, arguments in tasks(files, options.groups, gpu=gpu)]
            try:
                for future in as_completed(waiting, timeout=options.seconds):
                    ended.append(future.result())
                    if (not ended[-1].named and not ended[-1].what.startswith(WITHOUT_DAMAGE)) or ended[-1].what[
                        0
                    ] in "cusq":
                        print("named" if ended[-1].named else "not named", ended[-1].what, ended[-1].failed, flush=True)
            except TimeoutError:
                print(f"stopped by the time limit: {len(waiting) - len(ended)} mutations were not tried", flush=True)
                pool.shutdown(cancel_futures=True)
    groups = {group: [one for one in ended if one.what.startswith(group)] for group in options.groups}
    for group, members in groups.items():
        print(report_of(group, members))
    print(f"{len(ended)} in {time.monotonic() - started:.0f} s with {options.workers} workers")
    if options.json:
        options.json.write_text(json.dumps([one._asdict() for one in ended], indent=1))
    return int(any(bool(one.failed) if one.what.startswith(WITHOUT_DAMAGE) else not one.named for one in ended))


if __name__ == "__main__":
    sys.exit(main())

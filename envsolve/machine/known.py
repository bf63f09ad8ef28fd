"""Machines with what the catalogue knows of them filled in: from this host, a target string, or machine files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.machine.model import NVIDIA, SCHEMA, SCHEMAS, Gpu, Machine
from envsolve.system.files import dump, from_json, is_folder, items, path_of, read_regular
from envsolve.system.limits import single_line
from envsolve.values import ComputeCapability, PythonVersion, processor

if TYPE_CHECKING:
    from envsolve.facts.catalogue import Catalogue


# Machine files: the ``envsolve.machine/2`` JSON, read strictly if a wrong value could mislead, and written whole.
#
# Files of ``envsolve.machine/1``, which lack ``accelerators``, are read too.
#
# Other tools also write these files: unknown keys are ignored, and any field except ``schema`` may be missing or null.


_HINT = f'write one with "envsolve detect --format json -o FILE"; its "schema" is "{SCHEMA}"'
_MAX_CHARACTERS = 1000
_MAX_VARIABLE = 2**17  # what Linux takes as one environment variable; a library path may be long
# No GPU has had, and none announced has, a compute capability outside these majors.
_CC_MAJORS = range(1, 20)
_LISTS = ("gpus", "accelerators", "toolkits", "host_compilers", "pythons", "installers")
_IDENTITY = {
    "accelerators": ("vendor",),
    "host_compilers": ("kind",),
    "pythons": ("version", "path"),
    "installers": ("name",),
}

_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_DRIVER = re.compile(r"\d{2,4}(?:\.\d+){0,3}", re.ASCII)
_CUDA = re.compile(r"\d{1,2}\.\d{1,2}", re.ASCII)
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d+)?", re.ASCII)
_WORD = re.compile(r"\w{1,40}", re.ASCII)
_LIBC = re.compile(r"(?:glibc|musl) \d{1,4}\.\d{1,4}", re.ASCII)


def load_machine(path: Path) -> Machine:
    """Read a machine file.

    Raises:
        UsageError: The file does not exist or is not machine JSON, or a field has an impossible value.
    """
    try:
        data = read_regular(path)
    except IsADirectoryError as error:
        raise UsageError(f"{path}: is a directory, not a machine file", hint="name the files in it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path}: cannot read the machine file: {reason}", hint=_HINT) from error
    return parse_machine(data, name=str(path))


def read_machines(paths: Iterable[Path]) -> tuple[Machine, ...]:
    """Read machine files; a directory means the ``*.json`` files in it, by name.

    Raises:
        UsageError: As :func:`load_machine`, or a directory has no such file.
    """
    return tuple(load_machine(file) for path in paths for file in _files(path))


def parse_machine(data: bytes, *, name: str = "machine") -> Machine:
    """Read machine JSON; messages call it ``name``.

    Raises:
        UsageError: As :func:`load_machine`.
    """
    try:
        raw = from_json(data.removeprefix(b"\xef\xbb\xbf"), object)
        pruned = _without_null(_printable(raw))
    except _TooLongError as error:
        raise UsageError(f"{name}: {error}", hint="correct the field, or set it to null") from None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{name}: not JSON: {error}", hint=_HINT) from error
    if not isinstance(pruned, dict) or pruned.get("schema") not in SCHEMAS:
        found = pruned.get("schema") if isinstance(pruned, dict) else None
        what = f"schema is {found!r}" if found is not None else "there is no schema"
        raise UsageError(f"{name}: not a machine file: {what}, expected {SCHEMA!r}", hint=_HINT)
    try:
        machine = msgspec.convert(_with_gpus(_without_nameless(pruned)), type=Machine)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{name}: {_words(str(error))}", hint="correct the field, or set it to null") from error
    machine = _normal(machine)
    for path, message in faults(machine):
        raise UsageError(f"{name}: {path}: {message}", hint="correct the field, or set it to null where it is unknown")
    return machine


def dump_machine(machine: Machine) -> str:
    """The machine as indented JSON, every field present, null where unknown; the same text for the same value."""
    return dump(machine)


def _files(path: Path) -> list[Path]:
    if not is_folder(path):
        return [path]
    files = sorted(path.glob("*.json"))
    if not files:
        raise UsageError(f"{path}: no machine file (*.json) in this directory", hint=_HINT)
    return files


class _TooLongError(Exception):
    """A text that is too long for what any field means."""


def _printable(value: Any, limit: int = _MAX_CHARACTERS) -> Any:
    """A text without control characters, which could mislead a reader of the terminal.

    Raises:
        _TooLongError: A text is longer than what any field means.
    """
    if isinstance(value, dict):
        return {
            _printable(key): _printable(item, _MAX_VARIABLE if key == "environment" else limit)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_printable(item, limit) for item in value]
    if not isinstance(value, str):
        return value
    if len(value) > limit:
        start = _printable(value[:40])
        raise _TooLongError(f"a text has {len(value)} characters, more than {limit}: {start}...")
    return single_line(value)


def _without_null(value: Any) -> Any:
    """A value without null fields: a null field and a missing one mean the same."""
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    return value


def _without_nameless(raw: dict[str, Any]) -> dict[str, Any]:
    """A value without empty list entries; a GPU about which nothing is known still counts."""
    result = dict(raw)
    for key in _LISTS:
        if isinstance(items := raw.get(key), list):
            needed = _IDENTITY.get(key, ())
            known = [{} if item is None else item for item in items if item is not None or key == "gpus"]
            result[key] = [item for item in known if not isinstance(item, dict) or all(n in item for n in needed)]
    return result


def _with_gpus(raw: dict[str, Any]) -> dict[str, Any]:
    """With ``gpus`` for NVIDIA's accelerators of a file that lists them only as such."""
    accelerators = raw.get("accelerators")
    if not isinstance(accelerators, list) or "gpus" in raw:
        return raw
    own = [one for one in accelerators if isinstance(one, dict) and one.get("vendor") == NVIDIA]
    gpus = [{"compute_capability" if key == "arch" else key: item for key, item in one.items()} for one in own]
    return {**raw, "gpus": gpus}


def _normal(machine: Machine) -> Machine:
    """Spellings of other tools, normalized: ``AMD64``, ``Linux``, ``sm_89``, ``3.12.4``."""
    platform = machine.platform
    if platform is not None:
        os, arch = platform.os, platform.arch
        platform = replace(platform, os=os and os.lower(), arch=arch and processor(arch))
    python = machine.python
    if python is not None and _PYTHON.fullmatch(python):
        python = str(PythonVersion.parse(python))
    gpus = machine.gpus
    return replace(
        machine,
        schema=SCHEMA,
        platform=platform,
        python=python,
        gpus=None if gpus is None else tuple(_normal_gpu(gpu) for gpu in gpus),
    )


def _normal_gpu(gpu: Gpu) -> Gpu:
    try:
        return replace(gpu, compute_capability=str(gpu.cc)) if gpu.cc else gpu
    except ValueError:
        return gpu  # for faults to name


def faults(machine: Machine) -> Iterator[tuple[str, str]]:
    """Fields with the right type but an impossible text: (path, what is wrong)."""
    driver, platform = machine.driver, machine.platform
    texts = [("python", machine.python, _PYTHON, "a Python version such as 3.12")]
    if platform is not None:
        texts.append(("platform.os", platform.os, _WORD, "the name of an operating system"))
        texts.append(("platform.arch", platform.arch, _WORD, "the name of a processor such as x86_64"))
        texts.append(("platform.libc", platform.libc, _LIBC, 'such as "glibc 2.35" or "musl 1.2"'))
    if driver is not None:
        texts.append(("driver.version", driver.version, _DRIVER, "a driver version such as 550.54.15"))
        texts.append(("driver.cuda", driver.cuda, _CUDA, "a CUDA version such as 12.4"))
        texts.append(("driver.compat_libcuda", driver.compat_libcuda, _CUDA, "a CUDA version such as 12.4"))
    for index, toolkit in enumerate(machine.toolkits or ()):
        texts.append((f"toolkits[{index}].version", toolkit.version, _VERSION, "a CUDA version such as 12.4"))
    for path, text, pattern, form in texts:
        if text is not None and not pattern.fullmatch(text):
            yield path, f'"{text}" is not {form}'
    for index, accelerator in enumerate(machine.accelerators or ()):
        if accelerator.vendor != NVIDIA and (accelerator.memory_mib or 0) < 0:
            yield f"accelerators[{index}].memory_mib", f"{accelerator.memory_mib} is negative"
    for index, gpu in enumerate(machine.gpus or ()):
        if gpu.compute_capability is not None and not _possible_cc(gpu.compute_capability):
            yield f"gpus[{index}].compute_capability", f'"{gpu.compute_capability}" is not one such as 8.9'
        if gpu.memory_mib is not None and gpu.memory_mib < 0:
            yield f"gpus[{index}].memory_mib", f"{gpu.memory_mib} is negative"


def _possible_cc(text: str) -> bool:
    try:
        return ComputeCapability.parse(text).major in _CC_MAJORS
    except ValueError:
        return False


def _words(message: str) -> str:
    """msgspec's message with the field first: ``gpus[0].name: expected `str`, got `int```."""
    text, _, path = message.partition(" - at `$")
    return f"{path.rstrip('`').lstrip('.')}: {text[0].lower()}{text[1:]}" if path else text


def detect() -> Machine:
    """Read this host: driver, GPUs, platform, toolkits, compilers, Pythons and installers.

    A machine without a GPU or a driver is fine.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.completed import complete
    from envsolve.machine.detect import detect as read_host

    return complete(read_host(), Catalogue())


def target_of(machine: Machine) -> str:
    """The target string that describes a machine, as far as a string can: the reverse of :func:`describe_target`."""
    from envsolve.machine.target import Target

    names = [gpu.name or gpu.compute_capability for gpu in machine.gpus or ()]
    gpus = tuple((names.count(name), name) for name in dict.fromkeys(names) if name)
    platform, driver = machine.platform, machine.driver
    target = Target(
        gpus=None if machine.gpus is None else gpus,
        driver=driver.version if driver else None,
        cuda=driver.cuda if driver and not driver.version else None,
        python=".".join(machine.python.split(".")[:2]) if machine.python else None,
        os=platform.os if platform else None,
        arch=platform.arch if platform else None,
        libc=platform.libc if platform else None,
    )
    return str(target)


def describe_target(target: str, catalogue: Catalogue | None = None) -> Machine:
    """Return the machine that a target string describes, ``"RTX 4090, driver 550.54, python 3.12, linux-x86_64"``.

    Raises:
        UsageError: The string, or a GPU name in it, cannot be read.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.completed import machine_from_target
    from envsolve.machine.target import parse_target

    facts = catalogue or Catalogue()
    machine = machine_from_target(parse_target(target), facts)
    platform = machine.platform
    known = facts.distributions.get(platform.distro.replace(" ", "")) if platform and platform.distro else None
    if platform is None or known is None:
        return machine
    # People name the system of a machine, not its C library.
    platform = replace(platform, os=platform.os or "linux", libc=platform.libc or known.libc)
    return replace(
        machine, platform=platform, sources={"platform.libc": f"catalogue ({known.name})", **machine.sources}
    )


def load_machines(path: str | os.PathLike[str], catalogue: Catalogue | None = None) -> tuple[Machine, ...]:
    """Read a machine file written by ``envsolve detect -o FILE`` or another tool, or all of those in a directory.

    Raises:
        UsageError: A file does not hold a machine.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.machine.completed import complete

    facts = catalogue or Catalogue()
    return tuple(complete(machine, facts) for machine in read_machines([path_of(path, "path")]))


def machines_given(machines: Sequence[Machine] | None) -> tuple[Machine, ...]:
    """Check that a program passed a list of machines.

    Raises:
        UsageError: It passed something else.
    """
    return items(machines, Machine, "machines")


def machines_or_host(machines: Sequence[Machine] | None) -> tuple[Machine, ...]:
    """Return the machines that a program passed, or this host if it passed none.

    Raises:
        UsageError: As :func:`machines_given`.
    """
    return machines_given(machines) or (detect(),)

"""``compat-libcuda``: a forward-compatibility ``libcuda`` where it may not be used, or too old (rule 8)."""

from __future__ import annotations

from collections.abc import Iterator

from envsolve.diagnose.causes._shared import driver_text, lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.remedies.tools import driver_knowing, is_data_centre
from envsolve.diagnose.scene import Scene

_UNSUPPORTED = (
    "A cuda-compat package brings a newer libcuda.so.1 than the driver's, and NVIDIA allows that on data-centre "
    "cards alone. Here such a library comes before the driver's own on the loader's path{card}, so that every CUDA "
    "call fails with error 804. Neither torch nor the driver is at fault: the loader must find the driver's own "
    "libcuda again."
)
_OLDER = (
    "The libcuda.so.1 that is loaded does not belong to the running driver: a cuda-compat library only works with "
    "drivers older than itself, and a copy from another driver with none. {driver} is newer than the library, or "
    "another release of it, hence error 803. The loader must find the libcuda of the running driver first."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """804 is always a compat library; 803 is one where something speaks of compat or a container."""
    unsupported, mismatch = scene.first("compat-804"), scene.first("mismatch-803")
    evidence = (*lines(unsupported, mismatch), *_loader_lines(scene), *scene.driver_evidence, *scene.gpu_evidence)
    if unsupported:
        known = [gpu for gpu in scene.gpus if gpu.name and not is_data_centre(scene, gpu)]
        card = f", and {known[0].name} is none of those" if known else ""
        grounds = Grounds.CONFIRMED if known else Grounds.STATED
        text = _UNSUPPORTED.format(card=card)
        yield Finding("compat-libcuda", grounds, text, evidence, tuple(_remedies(scene)), _CONSEQUENCES)
    elif mismatch:
        told = scene.compat_libcuda is not None or scene.mentions("compat/", "cuda-compat")
        # Without a word of compat or a container, a driver that was updated under way says the same.
        plain = not told and not scene.in_container and scene.mentions("updat", "upgrad", "reboot")
        grounds = Grounds.CONFIRMED if told else Grounds.SUGGESTED if plain else Grounds.STATED
        text = _OLDER.format(driver=_capital(driver_text(scene)))
        yield Finding("compat-libcuda", grounds, text, evidence, tuple(_remedies(scene)), _CONSEQUENCES)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


_CONSEQUENCES = frozenset({"no-driver", "driver-too-old", "image-requires-newer-driver"})


def _loader_lines(scene: Scene) -> tuple[str, ...]:
    path = scene.report.variables.get("LD_LIBRARY_PATH")
    return (f"{path.where}: {path.quote}",) if path else ()


def _remedies(scene: Scene) -> Iterator[Remedy]:
    have = scene.driver.cuda if scene.driver else None
    yield Remedy(
        "Start the program with a loader path that has no cuda-compat folder on it.",
        "export LD_LIBRARY_PATH=$(printf %s \"$LD_LIBRARY_PATH\" | tr ':' '\\n' | grep -v compat | paste -sd:)",
    )
    if scene.in_container:
        yield Remedy(
            "Take the compat libraries off the loader's path in the image (/usr/local/cuda*/compat, and its entry in "
            "/etc/ld.so.conf.d), so that the libcuda that the host's driver mounts is found.",
            "rm -rf /usr/local/cuda*/compat && grep -l compat /etc/ld.so.conf.d/* | xargs -r rm && ldconfig",
        )
        if have:
            yield Remedy(f"Use an image of CUDA {have} or older, which needs no compat library with this driver.")
    else:
        yield Remedy(
            "Remove the cuda-compat package: the driver's own libcuda is then found again.",
            "sudo apt-get remove 'cuda-compat-*' && sudo ldconfig",
        )
    wanted = scene.compat_libcuda
    if wanted and (driver := driver_knowing(scene, wanted)):
        yield driver

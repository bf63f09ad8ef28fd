"""``out-of-memory``: too little memory, on the card or on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envsolve.diagnose.causes._shared import lines
from envsolve.diagnose.model import Finding, Grounds, Remedy, RuledOut
from envsolve.diagnose.scene import Scene

_ERRORS = ("build-killed", "shared-memory", "nccl-system-error", "host-alloc", "cuda-oom", "library-alloc")

_DEVICE = (
    "The program asked the card for more memory than is free{amount}: a matter of sizes, not of versions. Versions, "
    "drivers and toolkits have no part in it. Smaller batches or tensors, a smaller type, or a card with more memory "
    "help."
)
_HOST = (
    "The program asked the host for more memory than it has{amount}: a matter of sizes, not of versions. "
    "Nothing of the CUDA installation is wrong. Smaller tensors, or a machine with more memory, help."
)
_BUILD = (
    "Compiling CUDA templates takes several gigabytes for each process, and ninja starts one for every core; the "
    "system ended one for lack of memory. The sources and the compilers are in order. Fewer processes at a time, or "
    "fewer architectures, need less."
)
_SHARED = (
    "Processes of a DataLoader hand tensors over through /dev/shm, of which a container gets 64 MB unless asked for "
    "more. It is full. The container must be started with more."
)

_NCCL = (
    "NCCL's processes hand data over through /dev/shm, of which a container gets 64 MB unless asked for more; where "
    "that is full, a system call fails, and NCCL says no more than that. The container must be started with more. "
    "NCCL_DEBUG=INFO names the call, if it is another one."
)


def weigh(scene: Scene) -> Iterator[Finding | RuledOut]:
    """Which memory ran out."""
    match = scene.first(*_ERRORS)
    if match and match.signature.id == "nccl-system-error" and not _in_small_shared_memory(scene):
        yield RuledOut(
            "a system call of NCCL failed: NCCL_DEBUG=INFO names it (sockets and /dev/shm are the usual ones); "
            "versions have no part in it"
        )
        return
    if match is None:
        return
    asked = re.search(r"[Tt]ried to allocate ([\d.]+ ?\w+)", scene.report.text)
    amount = f" ({asked[1]} in one piece)" if asked else ""
    text, remedies = {
        "build-killed": (_BUILD, _build(scene)),
        "shared-memory": (_SHARED, _shared()),
        "nccl-system-error": (_NCCL, _shared()),
        "host-alloc": (_HOST.format(amount=amount), (Remedy("Make the tensor smaller, or work on it in parts."),)),
    }.get(match.signature.id, (_DEVICE.format(amount=amount), _device()))
    grounds = Grounds.SUGGESTED if match.signature.id == "nccl-system-error" else Grounds.STATED
    yield Finding("out-of-memory", grounds, text, lines(match), remedies)


def _in_small_shared_memory(scene: Scene) -> bool:
    """Whether NCCL may have met a container's 64 MB: a call that was not permitted is another matter."""
    return scene.in_container and not scene.mentions("permission denied", "connection refused", "no route to host")


def _shared() -> tuple[Remedy, ...]:
    return (
        Remedy("Give the container more shared memory.", "docker run --shm-size=8g ..."),
        Remedy("Or let it share the host's.", "docker run --ipc=host ..."),
    )


def _build(scene: Scene) -> tuple[Remedy, ...]:
    fewer = Remedy("Let fewer compilers run at a time.", "export MAX_JOBS=2 NVCC_THREADS=1")
    cards = Remedy(
        "Compile for the cards at hand alone.",
        'export TORCH_CUDA_ARCH_LIST="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sort -u | paste '
        '-sd\\;)"',
    )
    return fewer, cards


def _device() -> tuple[Remedy, ...]:
    return (
        Remedy("See what else holds memory on the card.", "nvidia-smi"),
        Remedy("Make batches, sequences or tensors smaller, or use a smaller type (float16, bfloat16)."),
        Remedy(
            "Where much is reserved but not allocated, let the allocator grow its segments.",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
    )

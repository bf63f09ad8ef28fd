"""``torch-replaced``: another torch than the environment's own is imported, or one was put over another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from envsolve.diagnose.environment_advice import very_torch
from envsolve.diagnose.model import Finding, Grounds, Remedy
from envsolve.diagnose.scene import Scene
from envsolve.environment.model import Distribution, Environment, Site, TorchFiles, release, torch_distribution

_CONDA_NAMES = ("pytorch", "libtorch", "pytorch-gpu", "pytorch-cpu")

#: What is found wrong with a torch that should not be the one in use says nothing of the one that should.
CONSEQUENCES = frozenset(
    {
        "cpu-build",
        "driver-too-old",
        "library-mismatch",
        "lock-incomplete",
        "mixed-flavours",
        "no-kernel-for-gpu",
        "triton-torch-mismatch",
    }
)

_SHADOWED = (
    "Python imports the first torch on its path, and here that is {first} {where}, before the environment's own "
    "{own}. So what is installed and what runs are two different builds, and everything that was chosen for the one "
    "meets the other. Nothing has to be installed: the other torch must leave the path."
)
_OVERLAID = (
    "{site} holds the files of one torch and the records of another: {what}. A later install wrote over the first "
    "without removing it whole, so that libraries of both may be loaded together. Installing one of them anew, over "
    "everything, makes files and records agree."
)
_CONDA = (
    "conda installed {conda}, and pip then put {torch} in its place, of which conda knows nothing. Parts of both "
    "are on disk, and conda's next solve will build on a torch that is not there. One manager must own torch: pip's "
    "is removed and conda's put back, or the other way round."
)


def check(environment: Environment, scene: Scene) -> Iterator[Finding]:
    """Find a torch that shadows, and one that was put over another."""
    torch = environment.torch
    if torch is None:
        return
    yield from _shadowing(environment, torch)
    yield from _over_conda(environment, torch)
    yield from _overlaid(environment, scene, torch)


def _shadowing(environment: Environment, first: TorchFiles) -> Iterator[Finding]:
    site = environment.site(first.site)
    own = next((t for t in environment.torches[1:] if _origin(environment, t) == "environment"), None)
    if site is None or own is None or site.origin == "environment" or own.version == first.version:
        return
    where = {
        "user": "of your own packages",
        "PYTHONPATH": "of PYTHONPATH",
        "pth": f"that {Path(site.named_by or '').name} names",
        "system": "of the system",
    }[site.origin]
    text = _SHADOWED.format(first=first.label, where=where, own=own.label)
    evidence = (f"{first.site}/torch: {first.label}, imported", f"{own.site}/torch: {own.label}, not imported")
    remedies = tuple(_out_of_the_way(environment, site))
    yield Finding("torch-replaced", Grounds.READ, text, evidence, remedies, CONSEQUENCES)


def _origin(environment: Environment, torch: TorchFiles) -> str | None:
    site = environment.site(torch.site)
    return site.origin if site else None


def _out_of_the_way(environment: Environment, site: Site) -> Iterator[Remedy]:
    if site.origin == "user":
        yield Remedy("Leave your own packages out when this environment runs.", "export PYTHONNOUSERSITE=1")
        names = [d.name for d in environment.distributions if d.site == site.path and d.name in ("torch", "triton")]
        base = f"{environment.base}/bin/python"
        yield Remedy(
            "Or remove that torch from your own packages, if nothing else uses it.",
            f"{base} -m pip uninstall -y {' '.join(dict.fromkeys(('torch', *names)))}",
        )
    elif site.origin == "PYTHONPATH":
        yield Remedy("Start Python without that folder on PYTHONPATH.", "unset PYTHONPATH")
    elif site.named_by:
        yield Remedy("Take the line that names that folder out of the .pth file, or uninstall what wrote it.")


def _over_conda(environment: Environment, torch: TorchFiles) -> Iterator[Finding]:
    record = next((p for p in environment.conda if p.name in _CONDA_NAMES), None)
    own = torch_distribution(environment)
    if record is None or own is None or own.installer in (None, "conda"):
        return
    if _origin(environment, torch) != "environment":
        return
    conda = f"{record.name} {record.version} ({record.build})"
    text = _CONDA.format(conda=conda, torch=f"{torch.label} (by {own.installer})")
    evidence = (f"{record.record}: {conda}", f"{own.info}: {own.label}, INSTALLER {own.installer}")
    back = Remedy(
        "Remove pip's torch and put conda's back.",
        f'pip uninstall -y torch && conda install --force-reinstall "{record.name}={record.version}={record.build}"',
    )
    keep = Remedy("Or keep pip's, and let conda forget its own.", f"conda remove --force {record.name}")
    yield Finding("torch-replaced", Grounds.READ, text, evidence, (back, keep), CONSEQUENCES)


def _overlaid(environment: Environment, scene: Scene, torch: TorchFiles) -> Iterator[Finding]:
    records = [d for d in environment.named("torch") if d.site == torch.site]
    stated = next((d for d in records if release(d.version) == release(torch.version)), None)
    if not records or torch.version is None or (len(records) == 1 and stated):
        return
    what = f"{torch.label} in torch/version.py, and records of {' and '.join(d.version or '?' for d in records)}"
    evidence = (f"{torch.site}/torch/version.py: {torch.version}", *(f"{d.info}: {d.label}" for d in records))
    text = _OVERLAID.format(site=torch.site, what=what)
    yield Finding("torch-replaced", Grounds.READ, text, evidence, tuple(_anew(scene, torch, records)), CONSEQUENCES)


def _anew(scene: Scene, torch: TorchFiles, records: list[Distribution]) -> Iterator[Remedy]:
    # pip removes one record at a time.
    removals = " && ".join(["pip uninstall -y torch"] * len(records))
    yield Remedy(
        f"Remove every torch and install {torch.label} again; its dependencies stay.",
        f"{removals} && pip install --no-deps {very_torch(scene, torch)}",
    )

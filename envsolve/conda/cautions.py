"""What a user should know about a conda plan that is otherwise good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from envsolve.catalogue.load import Catalogue
from envsolve.catalogue.model import CondaChannel
from envsolve.conda.judge import JudgedBuild
from envsolve.conda.model import VirtualPackage
from envsolve.conda.solve import Solution
from envsolve.plan import Caution

_HOSTS = ("https://conda.anaconda.org/", "http://conda.anaconda.org/", "https://anaconda.org/")
_PROVE = "prove it once installed, on the machine: envsolve verify --prefix DIR"


def about_channels(channels: Sequence[str], catalogue: Catalogue) -> Iterator[Caution]:
    """Channels that ended, that have terms, or that do not mix with others of the list."""
    named = {channel: record for channel in channels if (record := _known(channel, catalogue.conda_channels))}
    for channel, record in named.items():
        yield Caution("channel", f"the channel {channel} {record.says}", record.remedy)
        others = [other for other in channels if channel_name(other) in record.clashes]
        if others:
            text = f"the channels {channel} and {' and '.join(others)} are mixed: {record.clash}"
            yield Caution("channels-mixed", text, record.remedy)


def channel_name(channel: str) -> str:
    """A channel's name by its address: ``https://conda.anaconda.org/pytorch`` is ``pytorch``."""
    address = channel.rstrip("/")
    host = next((host for host in _HOSTS if address.startswith(host)), "")
    return address.removeprefix(host)


def channel_address(channel: str, catalogue: Catalogue) -> str:
    """What rattler is to ask: of ``defaults``, which is a list of channels by another name, the first of them."""
    record = _known(channel, catalogue.conda_channels)
    return record.addresses[0] if record and record.addresses and channel == record.name else channel


def about_virtual(virtual: Sequence[VirtualPackage]) -> Iterator[Caution]:
    """What the solver was told that the machines' descriptions leave open."""
    for package in virtual:
        if package.assumed and package.name == "__cuda":
            text = f"{package.assumed}; it was solved as if it were for CUDA {package.version}"
            yield Caution("cuda-assumed", text, "name it: --driver VERSION (nvidia-smi shows it)")


def about_builds(solution: Solution) -> Iterator[Caution]:
    """Builds that are not known to run, or whose Triton does not, and packages that stay on the CPU."""
    for judged in solution.judged.values():
        if judged.candidate.name == "libtorch" and "pytorch" in solution.judged:
            continue
        name = f"{judged.candidate.name} {judged.candidate.version} ({judged.candidate.build})"
        if not judged.described and judged.build.cuda is not None:
            text = f"what GPU code {name} carries is not in the catalogue; whether it runs here is not known"
            yield Caution("not-judged", text, f"envsolve index update, and plan again; or {_PROVE}")
        for reason in judged.verdict.reasons:
            if reason.rule.startswith("triton") and reason.ok is False:
                text = f"{reason.text}; torch itself runs; torch.compile and Triton kernels do not"
                yield Caution("triton-limited", text, None)
    for name in solution.on_cpu:
        text = f"{name} has a CUDA variant, but none that goes with the rest; its CPU variant was taken"
        yield Caution("cpu-companion", text, f"ask for another version of {name}")
    unjudged = sorted(solution.variants - solution.judged.keys())
    if unjudged:
        text = f"what GPU code {', '.join(unjudged)} carries is not in the catalogue; it was not judged"
        yield Caution("not-judged", text, _PROVE)


def undecided(solution: Solution) -> JudgedBuild | None:
    """A judged build of which it is not known whether it runs; None where all are known to."""
    return next((one for one in solution.judged.values() if not one.verdict.level.usable), None)


def _known(channel: str, records: Sequence[CondaChannel]) -> CondaChannel | None:
    name, address = channel_name(channel), channel.rstrip("/")
    return next((r for r in records if fnmatchcase(name, r.name) or address in r.addresses), None)

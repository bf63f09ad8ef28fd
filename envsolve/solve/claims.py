"""What a candidate claims: things of which an environment has only one, so that their holders exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from packaging.specifiers import SpecifierSet

from envsolve.rules.nvidia.code import cuda_suffix
from envsolve.solve.family import Family
from envsolve.solve.needs import CUDA_MAJOR, AnyCandidate, AnyNeed, Candidate, ClaimNeed, PackageNeed


def _files(owner: str) -> str:
    return f"the files of {owner}"


def claims_of(candidate: Candidate, family: Family) -> Iterator[ClaimNeed]:
    """What a candidate claims: the files that it installs, a CUDA major, and the ABI of a module beside it."""
    name, version = candidate.name, candidate.version
    for owner in dict.fromkeys(family.files_of(name, version)):
        yield ClaimNeed(name, _files(owner), f"installs {_files(owner)}")
    build, suffix = candidate.option.build if candidate.option else None, cuda_suffix(name)
    if name == "torch" and build and build.cuda_version:
        major = build.cuda_version.major
        yield ClaimNeed(str(major), CUDA_MAJOR, f"is built for CUDA {major}")
    elif name == "cuda-toolkit" or (suffix and suffix[0] in family.runtime):
        major = suffix[1] if suffix else version.major
        yield ClaimNeed(str(major), CUDA_MAJOR, f"is a library of CUDA {major}")
    for one in family.catalogue.compiled_against:
        limit = f"{one.module}{one.module_versions}"
        if name == one.package and SpecifierSet(one.versions).contains(version, prereleases=True):
            yield ClaimNeed("those compiled against it", limit, f"was compiled against {limit}")
        elif name == one.module and not SpecifierSet(one.module_versions).contains(version, prereleases=True):
            yield ClaimNeed("newer ones", limit, f"is not {limit}")


def settled(roots: Sequence[AnyNeed], chosen: Mapping[str, AnyCandidate], family: Family) -> Iterator[AnyNeed]:
    """What packages of a request claim in all their versions, and that they stay on releases like those chosen.

    An old release, from before a package required what now clashes, avoids the clash, and nobody wants it.
    """
    modules = {one.module for one in family.catalogue.compiled_against}
    for need in roots:
        candidate = chosen.get(need.key)
        if not isinstance(need, PackageNeed) or not isinstance(candidate, Candidate) or candidate.url:
            continue
        always = set(map(_files, family.files_of(need.name, None)))
        yield from (claim for claim in claims_of(candidate, family) if claim.key in always)
        version = candidate.version
        if candidate.option is None and need.name not in modules and not (version.is_prerelease or version.epoch):
            oldest = ".".join(map(str, version.release[: 1 if version.major else 2]))
            at_least = SpecifierSet(f">={oldest}")
            yield PackageNeed(need.name, need.extra, at_least, None, f"{need.name}{at_least}", need.origin)

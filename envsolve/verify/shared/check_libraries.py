"""The libraries of the toolkit that a process has loaded, and whether they are those of its environment.

A library that is gone or shadowed may be replaced by that of a toolkit of the system without any error: the dynamic
loader takes the first one of that name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from unittest import SkipTest

from check_support import library_directories

#: Of a library's file: its name up to the version; auditwheel puts a hash between.
STEM = re.compile(r"(lib[\w-]+?)(?:-[0-9a-f]{8})?(?:\.alt)?\.so[\d.]*$")
#: Libraries that packages of the toolkit may provide; the driver's own are not among them.
TOOLKIT = re.compile(
    r"lib(?:cu(?:blas|dnn|fft|rand|solver|sparse|pti|file|dart)|nv(?:rtc|JitLink|shmem|ToolsExt)|nccl)"
)
#: Distributions that bring libraries of the toolkit.
PROVIDERS = re.compile(r"(?i)torch|nvidia[-_.]")


def stem_of(path):
    """The name of a library up to its version, ``libcufft``; None if it is not a library."""
    match = STEM.match(os.path.basename(path))  # noqa: PTH119
    return match.group(1) if match else None


def mapped():
    """The libraries in this process, paths by stem; none if the system does not say."""
    try:
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            paths = {line.split(None, 5)[5].rstrip("\n") for line in maps if "/" in line}
    except OSError:
        return {}
    found = {}
    for path in sorted(paths):
        if stem_of(path):
            found.setdefault(stem_of(path), []).append(path)
    return found


def own_libraries():
    """The real paths of the libraries that the environment has, by stem."""
    own = {}
    for directory in library_directories():
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if stem_of(path.name):
                own.setdefault(stem_of(path.name), []).append(os.path.realpath(str(path)))
    return own


def provider_of(stem):
    """Name, version and recorded path of a library by the distribution that provides it; None if none does.

    The text of RECORD is read, because ``Distribution.files`` leaves out missing files since Python 3.12.
    """
    from importlib import metadata

    line = re.compile(r"(?m)^\"?([^,\n]*/" + re.escape(stem) + r"(?:-[0-9a-f]{8})?\.so[\d.]*)\"?,")
    for distribution in metadata.distributions():
        if not PROVIDERS.match(distribution.metadata["Name"] or ""):
            continue
        match = line.search(distribution.read_text("RECORD") or "")
        if match:
            place = distribution.locate_file(match.group(1))
            return "{} {}".format(distribution.metadata["Name"], distribution.version), str(place)
    return None


def expect_own(*stems):
    """Fail if a toolkit's library was loaded from elsewhere although the environment provides it; say what was loaded.

    All that are loaded are looked at, and ``stems`` are named.

    A library that is not loaded is linked statically, or this torch computes in another way: no failure.
    """
    there, own = mapped(), own_libraries()
    for stem in filter(TOOLKIT.match, there):
        outside = [path for path in there[stem] if os.path.realpath(path) not in own.get(stem, ())]
        if not outside:
            continue
        if stem in own:  # The one that was loaded first is used, even if the own one is loaded, too.
            brings = own[stem][0]
        else:
            provider = provider_of(stem)
            if provider is None or os.path.realpath(provider[1]) == os.path.realpath(outside[0]):
                continue
            brings = "{1} of {0}, which is missing".format(*provider)
        raise RuntimeError("{} was loaded from outside this environment instead of {}".format(outside[0], brings))
    return ", ".join(Path(there[stem][0]).name for stem in stems if stem in there)


def device_of(ordinal):
    """The torch device, which is made the current one: some libraries use no other."""
    import torch

    if torch.version.cuda is None:
        raise SkipTest("torch {} is not for CUDA".format(torch.__version__))
    torch.cuda.set_device(int(ordinal))
    torch.manual_seed(0)
    return torch.device("cuda", int(ordinal))


def used(what, *stems):
    """The result of a check that passed."""
    loaded = expect_own(*stems)
    return {"detail": what + (" ({})".format(loaded) if loaded else "")}

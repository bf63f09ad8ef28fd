"""The toolkit of the image against the CUDA of the torch that extensions are compiled against (rule 10)."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from envsolve.compat.versions import minor
from envsolve.dockerfiles.asked import Asked
from envsolve.dockerfiles.compiled import compiled
from envsolve.dockerfiles.installs import Install, installs
from envsolve.dockerfiles.model import Finding, Stage
from envsolve.dockerfiles.offers import found_by_pip


def check(stage: Stage, asked: Asked) -> Iterator[Finding]:
    """``torch.utils.cpp_extension`` refuses an nvcc of another CUDA major than torch's."""
    image = asked.image(stage)
    if image is None or not image.cuda:
        return
    torch: str | None = None
    for install in installs(list(stage.history())):
        torch = _torch_cuda(install, asked.python(stage), asked) or torch
        names = [name for name, _ in compiled(install, asked.catalogue.source_projects)]
        if names and torch and install.command in stage.commands and minor(torch)[0] != minor(image.cuda)[0]:
            text = (
                f"{names[0]} is compiled by nvcc {image.cuda}, that of {stage.root.image}, against a torch of CUDA "
                f"{torch}, which torch refuses"
            )
            near = f"a -devel image of CUDA {torch}, or a torch of CUDA {minor(image.cuda)[0]}"
            yield Finding(install.command.line, "toolkit-mismatch", "error", text, (f"take {near}",))


def _torch_cuda(install: Install, python: str | None, asked: Asked) -> str | None:
    """The CUDA of the torch that a command installs."""
    for requirement in install.requirements:
        if canonicalize_name(requirement.name) == "torch":
            found = found_by_pip(asked.offers("torch"), requirement.specifier, install.variant, python)
            newest = max(found, key=lambda offer: offer.version, default=None)
            number = newest.build.variant.removeprefix("cu") if newest else ""
            return f"{number[:-1]}.{number[-1]}" if number.isdigit() else None
    return None

"""``index-confusion``: the installer chose another index than the intended one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envsolve._default_index import DEFAULT_INDEX
from envsolve.diagnose.causes._asked import Asked, looked_up, nearest
from envsolve.diagnose.causes._shared import Cause, lines, pytorch_index
from envsolve.diagnose.fixes import installer, replacements
from envsolve.diagnose.model import Finding, Fix, Grounds, Seen, shown
from envsolve.diagnose.project_fixes import project_of_report
from envsolve.diagnose.scene import Scene

CAUSE = Cause.of(__name__)
# pip takes the highest version of both indexes, whichever was meant to have precedence.
_MERGED = re.compile(r"--extra-index-url[= ]+\S{0,80}/whl/(?P<variant>cu\d{2,3})\b")


def from_report(scene: Scene) -> Iterator[Finding]:
    """Compare the index that commands name with the build that was installed, then look up what was not found."""
    yield from _merged(scene)
    if scene.first("conflict-unavailable"):
        return
    if match := CAUSE.first(scene, "refused"):
        yield _confused("refused", Grounds.STATED, lines(match), _bind(scene), index=match.group("index") or "it")
    elif (match := CAUSE.first(scene, "taken")) and not scene.catalogue.builds(match.groups["package"].lower()):
        values = {"package": match.groups["package"], "index": match.groups["index"]}
        yield _confused("taken", Grounds.STATED, lines(match), _bind(scene), **values)
    else:
        yield from _looked_up(scene)


def _confused(name: str, grounds: Grounds, evidence: Iterable[str], fixes: Iterable[Fix], **values: str) -> Finding:
    return CAUSE.finding(name, grounds, evidence, fixes, ("no-such-build", "python-caps-build"), **values)


def _looked_up(scene: Scene) -> Iterator[Finding]:
    asked = looked_up(scene)
    if asked is None or asked.no_variant or asked.match.signature.id == "poetry-none" or scene.is_jetson:
        return
    evidence = lines(asked.match)
    if asked.why == "pinned":
        fixes = (CAUSE.fix("pinned-first", asked=asked.words), *_bind(scene))
        yield _confused("refused", Grounds.STATED, evidence, fixes, index=CAUSE.words("first-index"))
    elif asked.why == "torch-index":
        values = {"package": asked.name, "index": asked.torch_index or ""}
        by_pip = asked.match.signature.id == "pip-none"
        fixes_ = _with_default(scene, asked) if by_pip else _bind(scene)
        yield _confused("only-index" if by_pip else "taken", Grounds.STATED, evidence, fixes_, **values)
    elif asked.why == "another-index":
        yield _elsewhere(scene, asked)


def _elsewhere(scene: Scene, asked: Asked) -> Finding:
    evidence = lines(asked.match)
    indexes = sorted({build.index for build in asked.fitting})
    names = {"default": "PyPI", "pytorch-lts": CAUSE.words("pytorch-lts")}
    where = " and ".join(names.get(index, CAUSE.words("own")) for index in indexes)
    found = nearest(scene, asked.name, asked.wanted)
    if "+" in asked.wanted:
        # Exactly this build exists: another variant is no fix.
        found = found[-1:]
    pip_first = bool(asked.match.signature.id == "pip-none" and found)
    if pip_first and "+" in asked.wanted and not scene.gpus:
        # Nothing speaks against the very build that was requested.
        only, *rest = _bind(scene)
        fixes = (only, *found, *rest)
    else:
        fixes = (*found, *_bind(scene)) if pip_first else (*_bind(scene), *found)
    grounds = Grounds.STATED if "+" in asked.wanted else Grounds.SUGGESTED
    return _confused("elsewhere", grounds, evidence, fixes, asked=asked.words, where=where)


def _with_default(scene: Scene, asked: Asked) -> Iterator[Fix]:
    """pip with PyPI beside the index that was given; the torch of that index named by its local version."""
    url = asked.torch_index or ""
    variant = url.rpartition("/")[2]
    named = re.search(r"\btorch==(\d[\w.]*\d)(?:\+\w+)?", scene.report.text)
    torch = f'"torch=={named[1]}+{variant}"' if named and re.fullmatch(r"cu\d+|cpu", variant) else "torch"
    requested = torch if asked.of_torch else f"{torch} {asked.words}" if named else f'"{asked.words}"'
    default = DEFAULT_INDEX.rstrip("/")
    values = {"requested": requested, "package": asked.name, "index": url, "default": default}
    yield CAUSE.fix("default-too", pip=installer(scene), **values)
    yield CAUSE.fix("pinned-first", asked=f'"{asked.words}"')


def _merged(scene: Scene) -> Iterator[Finding]:
    torch = scene.torch
    asked = next((found for seen in scene.report.commands if (found := _variant_asked(seen))), None)
    if asked is None or torch is None or torch.variant is None or torch.variant == asked[1]:
        return
    if scene.first("pip-none"):  # nothing was installed
        return
    seen, wanted = asked
    fixes = [*replacements(scene, variants=(wanted,)), *replacements(scene)]
    only = CAUSE.fix("only", variant=wanted, pip=installer(scene), index=pytorch_index(scene, wanted))
    consequences = ("driver-too-old", "cpu-build", "no-kernel-for-gpu")
    values = {"version": f" {torch.version}" if torch.version else "", "got": torch.variant, "wanted": wanted}
    evidence = (shown(seen), *torch.evidence)
    yield CAUSE.finding("merged", Grounds.CONFIRMED, evidence, fixes or [only], consequences, **values)


def _variant_asked(seen: Seen[str]) -> tuple[Seen[str], str] | None:
    """The variant of the index that a command adds, if it installs torch by no more than its name."""
    match = _MERGED.search(seen.value)
    if match is None or not re.search(r"\btorch\b", seen.value) or re.search(r"\btorch==\S+\+", seen.value):
        return None
    return seen, match["variant"]


def _bind(scene: Scene) -> Iterator[Fix]:
    """The index set for torch only, in the form of the tool in use."""
    named = re.search(r"\btorch==(?P<version>\d[\w.]*)\+(?P<variant>cu\d{2,3}|cpu)\b", scene.report.text)
    match = named or re.search(r"/whl/(?P<variant>cu\d{2,3}|cpu)\b", scene.report.text)
    variant = match["variant"] if match else next(iter(scene.family.variants), "cu126")
    index = pytorch_index(scene, variant, named["version"] if named else None)
    project = project_of_report(scene)
    if project and project.tool == "pixi":
        version = named["version"] if named else None
        pin = f"=={version}+{variant}" if version else "*"
        line = f'torch = {{ version = "{pin}", index = "{index}" }}'
        first = CAUSE.fix("pixi")
        yield Fix("\n".join((first.text, "[tool.pixi.pypi-dependencies]", line)), first.command)
        return
    if named:
        yield CAUSE.fix("ask", variant=variant, version=named["version"], pip=installer(scene), index=index)
    if scene.mentions("poetry"):
        yield CAUSE.fix("poetry", variant=variant, index=index)
        return
    yield CAUSE.fix("uv", variant=variant, index=index)
    if scene.mentions("[tool.uv.pip]"):
        yield CAUSE.fix("uv-table")
    if scene.mentions("uv "):
        yield CAUSE.fix("uv-backend")

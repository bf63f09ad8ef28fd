"""The facts about a fleet: its nodes folded into classes, and the nodes that did not answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.machine.completed import complete
from envsolve.machine.known import parse_machine
from envsolve.machine.model import Machine, one_line
from envsolve.solve.limits import kind_of
from envsolve.system.files import from_json, read_regular
from envsolve.system.limits import NAME_LENGTH, count_of
from envsolve.values import PythonVersion

SCHEMA: Literal["envsolve.fleet/1"] = "envsolve.fleet/1"
_MOST_BYTES = 2**28  # of a saved value; the inventory of 100,000 nodes is smaller
Saved = TypeVar("Saved", bound=msgspec.Struct)


def read_saved(path: Path, kind: type[Saved], what: str, hint: str) -> Saved:
    """Read a value that an earlier step saved in the fleet's directory.

    Args:
        what: The value in words, for errors: ``the plan of a fleet``.
        hint: How to make the file.

    Raises:
        UsageError: The file is missing or cannot be read.
    """
    try:
        return from_json(read_regular(path, _MOST_BYTES), kind)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", hint=hint) from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not {what}: {error}", hint=hint) from error


def is_node(name: str) -> bool:
    """Whether a name may be that of a node: results are files of that name, and a hyphen would begin an option."""
    return 0 < len(name) <= NAME_LENGTH and "/" not in name and name.isprintable() and not name.startswith("-")


class Labels(msgspec.Struct, frozen=True):
    """The scheduler's names for a node: words that jobs can request.

    Attributes:
        features: Slurm's features.
        gres: Slurm's generic resources that are GPUs, ``gpu:h100:8``.
        partitions: Slurm's partitions.
    """

    features: tuple[str, ...] = ()
    gres: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class NodeClass(msgspec.Struct, frozen=True):
    """Nodes that planning cannot tell apart.

    Attributes:
        name: ``h100-580.95.05``.
        nodes: Their names, sorted.
        machine: One of them, without what belongs to that node only; ``pythons`` has the versions that all have.
    """

    name: str
    nodes: tuple[str, ...]
    machine: Machine

    def __post_init__(self) -> None:
        """Refuse names that no node has."""
        if odd := next((name for name in self.nodes if not is_node(name)), None):
            raise ValueError(f"{odd[:50]!r} is not the name of a node")


class Inventory(msgspec.Struct, frozen=True):
    """The nodes of a fleet, each in exactly one of ``classes`` and ``unreachable``.

    Attributes:
        made: When it was probed, ISO 8601.
        unreachable: Nodes without a profile, with the reason.
        faults: What the driver of a node says is broken.
        labels: What the scheduler calls the nodes, if there is a scheduler.
    """

    schema: Literal["envsolve.fleet/1"] = SCHEMA
    made: str | None = None
    classes: tuple[NodeClass, ...] = ()
    unreachable: Mapping[str, str] = {}
    faults: Mapping[str, tuple[str, ...]] = {}
    labels: Mapping[str, Labels] = {}

    @property
    def class_of(self) -> Mapping[str, NodeClass]:
        """The class of each node that answered."""
        return {node: one for one in self.classes for node in one.nodes}


class Profile(msgspec.Struct, frozen=True):
    """The output of a node: its name, its machine, and what is broken."""

    node: str | None
    machine: Machine
    text: bytes
    faults: tuple[str, ...] = ()


class _Extras(msgspec.Struct, frozen=True):
    node: str | None = None
    faults: tuple[str, ...] = ()


class Reader:
    """Reads profiles; nodes that print the same share one machine, without the serial numbers of its GPUs.

    Checking a profile takes ten times as long as finding it equal to one that was checked.
    """

    def __init__(self) -> None:
        self._machines: dict[bytes, Machine] = {}

    def read(self, data: bytes, name: str) -> Profile:
        """Read what the probe printed, or a machine file; text around it, as logs have it, is ignored.

        Args:
            data: JSON, or a log in which one line is the probe's.
            name: Stands for it in messages.

        Raises:
            UsageError: There is no machine in it.
        """
        text = data.strip()
        if not text.startswith(b"{") or (b"\n" in text and not text.startswith(b"{\n")):
            # `kubectl logs --prefix` puts the pod's name before each line.
            lines = [line[line.index(b"{") :] for line in text.splitlines() if _MARK in line and b"{" in line]
            text = lines[-1] if lines else text
        try:
            raw = from_json(text.removeprefix(b"\xef\xbb\xbf"), dict[str, Any])
            extras = msgspec.convert(raw, _Extras)
            for gpu in (*(raw.get("gpus") or ()), *(raw.get("accelerators") or ())):
                gpu.pop("uuid", None)
            key = msgspec.json.encode({name: raw[name] for name in raw if name not in ("node", "faults")})
        except (msgspec.MsgspecError, RecursionError, AttributeError, TypeError) as error:
            raise UsageError(f"{name}: not a profile: {error}", hint="write it with envsolve fleet probe") from error
        if not all(map(is_node, filter(None, [extras.node]))):
            extras = replace(extras, node=None)
        if key not in self._machines:
            self._machines[key] = parse_machine(key, name=name)
        return Profile(extras.node, self._machines[key], text, extras.faults)


_MARK = b'"schema": "envsolve.machine/'


def folded(machines: Mapping[str, Machine], catalogue: Catalogue) -> tuple[NodeClass, ...]:
    """Fold machines into classes, the largest first.

    What compiles is not part of a class: an environment is made once, and not on the nodes that run it.
    """
    # Filling in what the catalogue knows takes longer than all the rest, so it is done once for equal machines.
    raw: dict[Hashable, list[str]] = {}
    for name, machine in machines.items():
        raw.setdefault(_kind(machine), []).append(name)
    kinds: dict[Hashable, tuple[Machine, list[str]]] = {}
    for names in raw.values():
        machine = complete(machines[names[0]], catalogue)
        kinds.setdefault(_kind(machine), (machine, []))[1].extend(names)
    classes: list[NodeClass] = []
    taken: Counter[str] = Counter()
    for machine, names in sorted(kinds.values(), key=lambda pair: (-len(pair[1]), min(pair[1]))):
        name = _class_name(machine)
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name}-{taken[name]}"
        classes.append(NodeClass(name, tuple(sorted(names, key=_natural)), _shared(machine, names, machines)))
    return tuple(classes)


def _kind(machine: Machine) -> Hashable:
    others = frozenset((one.vendor, one.name, one.arch) for one in machine.accelerators or ())
    return kind_of(replace(machine, python=None)), others


def _shared(machine: Machine, names: Sequence[str], machines: Mapping[str, Machine]) -> Machine:
    """Return one machine of a class, with only the Pythons that all its machines have."""
    common = set.intersection(*({_minor(one.version) for one in machines[name].pythons or ()} for name in names))
    return replace(
        machine,
        python=None,
        pythons=tuple(one for one in machine.pythons or () if _minor(one.version) in common) or None,
        toolkits=None,
        host_compilers=None,
        installers=None,
        environment=None,
        sources={},
    )


def _minor(version: str) -> str:
    return str(PythonVersion.parse(version))


def _class_name(machine: Machine) -> str:
    """The GPUs and the driver in few letters: ``a100-535.54``, ``rtx4090-580``, ``cpu``."""
    if machine.accelerators is None:
        return "unknown"
    gpus = sorted({_short(one.name or one.arch or one.vendor) for one in machine.accelerators}) or ["cpu"]
    arch = machine.platform.arch if machine.platform and machine.platform.arch != "x86_64" else None
    driver = machine.driver.version if machine.driver and machine.accelerators else None
    return "-".join(filter(None, (*gpus, driver, arch)))


def _short(name: str) -> str:
    """The first word with a digit, and a short one before it: ``rtx4090`` of ``NVIDIA GeForce RTX 4090``."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    place = next((place for place, word in enumerate(words) if re.search(r"\d", word)), len(words) - 1)
    before = words[place - 1 : place] if place and len(words[place - 1]) <= 3 else []
    return "".join((*before, words[place])) if words else "gpu"


def stragglers(inventory: Inventory) -> Mapping[str, str]:
    """Nodes whose driver is not the one that most nodes with the same GPUs have, with both in words."""
    found: dict[str, str] = {}
    peers: dict[Hashable, list[NodeClass]] = {}
    for one in inventory.classes:
        gpus = frozenset((gpu.vendor, gpu.name, gpu.arch) for gpu in one.machine.accelerators or ())
        peers.setdefault(gpus, []).append(one)
    for kind, classes in peers.items():
        counts: Counter[str | None] = Counter()
        for one in classes:
            counts[_driver(one.machine)] += len(one.nodes)
        usual, count = counts.most_common(1)[0]
        if kind and 2 * count > counts.total():
            share = f"{count} of {counts.total()} nodes with its GPUs have {usual}"
            found |= {
                node: f"driver {_driver(one.machine) or 'unknown'}, and {share}"
                for one in classes
                if _driver(one.machine) != usual
                for node in one.nodes
            }
    return found


def _driver(machine: Machine) -> str | None:
    return machine.driver.version if machine.driver else None


# Names of nodes, as schedulers and ClusterShell write them: gpu[01-64].


_LAST_NUMBER = re.compile(r"(.*?)(\d+)(\D*)")


def names_folded(names: Iterable[str]) -> str:
    """Write names as one text: ``gpu[01-03,17],login``."""
    families: dict[tuple[str, str, int], list[int]] = {}
    single: list[str] = []
    for name in sorted(set(names), key=_natural):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            single.append(name)
            continue
        # 9 and 10 are of one family, 09 and 9 are not.
        width = len(match[2]) if match[2].startswith("0") else 0
        families.setdefault((match[1], match[3], width), []).append(int(match[2]))
    joined = _padded_joined(families)
    parts = [f"{start}{_ranges(numbers, width)}{end}" for (start, end, width), numbers in joined.items()]
    return ",".join([*parts, *single])


def _padded_joined(families: Mapping[tuple[str, str, int], list[int]]) -> Mapping[tuple[str, str, int], list[int]]:
    """Put 10 among 01 to 09: a number as wide as padded ones belongs to them."""
    joined = {key: list(numbers) for key, numbers in families.items() if key[2]}
    for (start, end, width), numbers in families.items():
        if width:
            continue
        for number in numbers:
            padded = (start, end, len(str(number)))
            joined.setdefault(padded if padded in joined else (start, end, 0), []).append(number)
    return joined


def _ranges(numbers: Sequence[int], width: int) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]:0{width}}" if len(run) == 1 else f"{run[0]:0{width}}-{run[-1]:0{width}}" for run in runs]
    return texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"


def names_expanded(text: str) -> tuple[str, ...]:
    """Read what :func:`names_folded` writes.

    Raises:
        UsageError: A bracket or a range cannot be read, or it is larger than any cluster.
    """
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)
    if ",".join(parts) != text.strip(","):
        raise UsageError(f"{text!r} does not name nodes", hint="write it as: gpu[01-64],login1")
    return tuple(dict.fromkeys(name for part in parts for name in _expanded(part.strip())))


_MOST_NODES = 100_000


def _expanded(part: str) -> Iterator[str]:
    match = re.fullmatch(r"([^\[]*)\[([\d,-]+)\](.*)", part)
    if match is None:
        if "[" in part:
            raise UsageError(f"{part!r} does not name nodes", hint="write it as: gpu[01-64]")
        yield part
        return
    for piece in match[2].split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", piece)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not ends or not first <= last < first + _MOST_NODES:
            raise UsageError(f"{piece!r} in {part!r} is not a range of nodes", hint="write it as: gpu[01-64]")
        for number in range(first, last + 1):
            for rest in _expanded(match[3]):
                yield f"{match[1]}{number:0{len(ends[1])}}{rest}"


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Sort ``gpu9`` before ``gpu10``."""
    return tuple(
        (part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", name)
    )


# An inventory in words.


def describe(inventory: Inventory) -> str:
    """Say which classes there are, which nodes did not answer and why, and what is wrong with others."""
    count = sum(len(one.nodes) for one in inventory.classes)
    total = count + len(inventory.unreachable)
    lines = [f"{count} of {total} nodes answered; {count_of(len(inventory.classes), 'class', 'classes')}"]
    for one in inventory.classes:
        lines += [f"  {one.name}: {one_line(one.machine)}", f"    {len(one.nodes)}: {names_folded(one.nodes)}"]
    if inventory.unreachable:
        lines.append("no profile:")
        lines += by_reason(inventory.unreachable)
    if inventory.faults:
        lines.append("faults:")
        lines += by_reason({node: "; ".join(faults) for node, faults in inventory.faults.items()})
    if odd := stragglers(inventory):
        lines.append("unlike their peers:")
        lines += by_reason(odd)
    return "\n".join(lines)


def by_reason(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each reason, with all nodes that have it."""
    nodes: dict[str, list[str]] = {}
    for node, reason in reasons.items():
        nodes.setdefault(reason, []).append(node)
    for reason, names in sorted(nodes.items(), key=lambda item: (-len(item[1]), item[1])):
        yield f"  {names_folded(names)}: {reason}"

"""Collect the profiles of nodes, through an engine or from files, into the fleet's directory.

``nodes.json`` is the inventory, ``machines/NODE.json`` what each node printed. While nodes are asked, their answers lie
in ``.probe``; a directory of that name is what a killed probe left, and is finished first.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from envsolve.errors import UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.fleet.engines import Engine, Outcome, Work
from envsolve.fleet.jobs import run_on
from envsolve.fleet.model import Inventory, Labels, Profile, Reader, folded, read_saved
from envsolve.system.files import dump, is_folder, read_regular, replace_file
from envsolve.system.limits import NODE_BYTES

SCRIPT = Path(__file__).with_name("probe_script.py")
_INVENTORY, _MACHINES, _WORK = "nodes.json", "machines", ".probe"
_NAME = re.compile(r"\w[\w.-]*")  # what a name may be that becomes the name of a file
# An interrupted probe is finished, but not after the time in which somebody may have installed another driver.
_FRESH_SECONDS = 3600.0
_HINT = "run envsolve fleet probe first, with the same --fleet"


def probe_nodes(fleet: Path, engine: Engine, *, python: str = "python3") -> Inventory:
    """Probe every node that an engine knows, and write the inventory.

    Args:
        fleet: The fleet's directory.
        engine: Runs the probe.
        python: The Python of the nodes.

    Raises:
        EnvsolveError: The engine fails as a whole.
    """
    known = engine.nodes()
    dead = {node: one.dead for node, one in known.items() if one.dead}
    labels = {node: one.labels for node, one in known.items() if one.labels}
    command = f"{shlex.quote(python)} -"
    name = f"envsolve-probe-{hashlib.sha256(str(fleet.absolute()).encode()).hexdigest()[:8]}"
    work = Work(dict.fromkeys(known.keys() - dead.keys(), command), SCRIPT.read_bytes(), fleet / _WORK, name)
    outcomes = run_on(engine, work, "probing", fresh=_FRESH_SECONDS)
    inventory, profiles = _written(fleet, outcomes, dead, labels)
    for path in (fleet / _WORK).iterdir():
        profile = profiles.get(path.stem) if path.suffix == ".json" else None
        if profile is None:
            path.unlink()
        elif profile.text != outcomes[path.stem].text:
            path.write_bytes(profile.text)  # without what a login prints around it
    if is_folder(fleet / _MACHINES) and not (fleet / _MACHINES).is_symlink():
        shutil.rmtree(fleet / _MACHINES, ignore_errors=True)
    else:  # a link, or a pipe, for whose writer it would wait
        (fleet / _MACHINES).unlink(missing_ok=True)
    (fleet / _WORK).rename(fleet / _MACHINES)
    return inventory


def probe_files(fleet: Path, sources: Iterable[Path], expected: Iterable[str] = ()) -> Inventory:
    """Read the profiles in directories, as machine files or logs of the probe, and write the inventory.

    Args:
        fleet: The fleet's directory.
        sources: Directories.
        expected: Nodes that there should be; those without a profile are listed as unreachable.

    Raises:
        UsageError: A directory does not exist, or has no file.
    """
    outcomes: dict[str, Outcome] = {}
    for source in sources:
        files = sorted(path for path in source.iterdir() if path.is_file()) if is_folder(source) else []
        if not files:
            raise UsageError(f"{source}: no directory with profiles", hint="save them with envsolve detect -o FILE")
        for file in files:
            name = file.stem if file.stem not in outcomes else file.name
            try:
                outcomes[name] = Outcome(text=read_regular(file, NODE_BYTES))
            except OSError as error:
                outcomes[name] = Outcome(failure=error.strerror or str(error))
    inventory, _ = _written(fleet, outcomes, {}, {}, named_by_themselves=True)
    missing = {node: "there is no profile of this node" for node in expected if node not in inventory.class_of}
    if missing:
        inventory = msgspec.structs.replace(inventory, unreachable={**missing, **inventory.unreachable})
        replace_file(fleet / _INVENTORY, dump(inventory))
    return inventory


def read_inventory(fleet: Path) -> Inventory:
    """Read the inventory of a fleet.

    Raises:
        UsageError: It is missing or cannot be read.
    """
    return read_saved(fleet / _INVENTORY, Inventory, "the inventory of a fleet", _HINT)


def _written(
    fleet: Path,
    outcomes: Mapping[str, Outcome],
    dead: Mapping[str, str],
    labels: Mapping[str, Labels],
    *,
    named_by_themselves: bool = False,
) -> tuple[Inventory, Mapping[str, Profile]]:
    """Read what nodes printed, and write the inventory."""
    unreachable, profiles, reader = dict(dead), dict[str, Profile](), Reader()
    for node, outcome in outcomes.items():
        if outcome.text is None:
            unreachable[node] = outcome.failure or "the probe printed nothing"
            continue
        try:
            profile = reader.read(outcome.text, node)
        except UsageError as error:
            unreachable[node] = f"it printed no profile: {error.message.removeprefix(f'{node}: ')}"
            continue
        own = profile.node if named_by_themselves else None
        # Two files may say that they are of one node, as a copied directory has it: both stay, under other names.
        name = own if own and own not in profiles and _NAME.fullmatch(own) else node
        profiles[name] = profile
    inventory = Inventory(
        made=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        classes=folded({name: profile.machine for name, profile in profiles.items()}, Catalogue()),
        unreachable=dict(sorted(unreachable.items())),
        faults={name: profile.faults for name, profile in profiles.items() if profile.faults},
        labels=labels,
    )
    fleet.mkdir(parents=True, exist_ok=True)
    replace_file(fleet / _INVENTORY, dump(inventory))
    return inventory, profiles

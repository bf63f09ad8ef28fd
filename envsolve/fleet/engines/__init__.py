"""Ways to run a command on nodes: each module here is one, found by its name.

A module binds its class to the name ``ENGINE``; the class satisfies :class:`Engine`. None of them is a scheduler: Slurm
and ClusterShell decide what runs when.
"""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from envsolve.fleet.model import Labels
from envsolve.system.limits import MIB, NODE_BYTES

TOO_MUCH = f"it printed more than {NODE_BYTES // MIB} MiB"


class Known(msgspec.Struct, frozen=True):
    """An engine's facts about a node before anything runs on it.

    Attributes:
        dead: Why nothing can run on it; None if something can.
    """

    labels: Labels | None = None
    dead: str | None = None


class Options(msgspec.Struct, frozen=True):
    """How to reach nodes.

    Attributes:
        nodes: A set of nodes, ``gpu[01-64]``; None for all that the engine knows. Of Ray, its address.
        partition: Of Slurm.
        worker: Of ClusterShell: ``ssh``, ``rsh`` or ``exec``, which runs everything on this computer.
        ssh_options: More words for the command line of ssh.
        fanout: Connections at a time.
        time_limit: Seconds for the command on a node.
        wait: Seconds for all nodes, waiting in a queue included.
        whole: Whether the command uses all GPUs of the node, and not one of each kind.
    """

    nodes: str | None = None
    partition: str | None = None
    worker: str = "ssh"
    ssh_options: str | None = None
    fanout: int = 64
    time_limit: float = 120.0
    wait: float = 1800.0
    whole: bool = False


class Outcome(msgspec.Struct, frozen=True):
    """The result of a command on a node: its output, or why it has none."""

    text: bytes | None = None
    failure: str | None = None


class Work(msgspec.Struct, frozen=True):
    """A command to run.

    Attributes:
        commands: A shell command for each node.
        stdin: What each reads.
        directory: Results lie here, as ``NODE.json``; shared with the nodes where the engine requires it.
        name: Identifies the work to the scheduler, so that jobs of a killed run are found again.
    """

    commands: Mapping[str, str]
    stdin: bytes
    directory: Path
    name: str


class Watcher(Protocol):
    """Receives events of the nodes while commands run on them."""

    def started(self, node: str) -> None:
        """Called when a command begins to run; some engines cannot know and do not call it."""

    def ended(self, node: str, outcome: Outcome) -> None:
        """Called when a command has ended or cannot run."""


class Engine(Protocol):
    """Runs commands on nodes."""

    def nodes(self) -> Mapping[str, Known]:
        """Return the nodes.

        Raises:
            EnvsolveError: The engine is not installed, or fails.
        """

    def run(self, work: Work, watcher: Watcher) -> None:
        """Run each command on its node, and call ``ended`` of the watcher once for each node.

        Whatever ends this function leaves nothing behind that waits, or runs for longer than its time limit.

        Raises:
            EnvsolveError: The engine fails as a whole.
        """


# What ends a connection does not end the command behind it. So standard input stays open after what the command reads,
# and if it is closed, by Ctrl-C or because this process was killed, the shell on the node ends the command. `timeout`
# also ends what the command has started, and has limits of its own.
# The input is read whole first: two readers of one pipe would take bytes from each other. All this is in a shell below
# the one that was started, which may be killed at any moment. The process group is ended, too: a `timeout` that gets
# a signal while it starts its child ends without the child (coreutils 9.1).
_LEASH = (
    "exec 3<&0; {{ input=$(head -c {size} <&3); "
    "printf '%s\\n' \"$input\" 2>/dev/null | timeout -k 5 {limit} sh -c {command} 3<&- & command=$!; "
    "{{ while read -r _; do :; done; trap '' TERM; kill $command; "
    "kill -s TERM -- -$command; sleep 5; kill -s KILL -- -$command; }} <&3 >/dev/null 2>&1 3<&- & watch=$!; "
    "exec 3<&-; wait $command; code=$?; kill $watch 2>/dev/null; exit $code; }} & wait $!"
)


def leashed(command: str, size: int, limit: int) -> str:
    """Return a shell command that ends the given one if its standard input is closed, or after ``limit`` seconds.

    Args:
        command: Reads the first ``size`` bytes of standard input.
        size: Whoever starts it writes so many bytes, and leaves standard input open.
        limit: In seconds.
    """
    return _LEASH.format(size=size, limit=limit, command=shlex.quote(command))


def engine_named(name: str, options: Options) -> Engine:
    """Return an engine by the name of its module."""
    engine: Engine = importlib.import_module(f"{__name__}.{name}").ENGINE(options)
    return engine

"""Slurm: a prolog that keeps jobs off a node whose environment no longer fits it."""

from __future__ import annotations

import shlex
from pathlib import Path

from envsolve.fleet.plan import FleetPlan

_SECONDS = 30
_TEXT = """\
#!/bin/sh
# Prolog=FILE in slurm.conf. If this fails, Slurm drains the node and starts the job elsewhere (slurm.conf(5), Prolog).
# It fails only if no environment of the fleet fits the node, as after a change of its driver. A file system or a Python
# that is out of order, or a driver that answers late, is not a reason to drain every node.
case ${{SLURMD_NODENAME:-$(hostname -s)}} in
  {nodes}) ;;
  *) exit 0 ;;
esac
export ENVSOLVE_NODE="${{SLURMD_NODENAME:-}}"
reason=$(timeout {seconds} {command} 2>&1 > /dev/null)
[ $? -eq 3 ] || exit 0
logger -t envsolve "$reason"
exit 1
"""


def render(fleet: Path, made: FleetPlan, python: str) -> str:
    """Return a shell script."""
    words = [python, "-m", "envsolve", "run", "--fleet", str(fleet), "--which"]
    nodes = "|".join(node for group in made.groups for node in group.nodes)
    return _TEXT.format(nodes=nodes, seconds=_SECONDS, command=shlex.join(words))

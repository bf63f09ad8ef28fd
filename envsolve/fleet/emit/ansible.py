"""Ansible: a play for each plan that makes its environment on every node, and verifies it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envsolve.fleet.plan import FleetPlan, Group

_HEADING = """\
# ansible-playbook -i INVENTORY FILE            (hosts have the names of the nodes)
#   -e directory=/opt/envsolve                  where environments are made, on each node
#   -e envsolve=/usr/local/bin/envsolve         envsolve on the nodes
"""


def render(fleet: Path, made: FleetPlan, _: str) -> str:
    """Return a playbook, as JSON, which is YAML, below a comment."""
    plays = [_play(fleet, group) for group in made.groups]
    return f"{_HEADING}{json.dumps(plays, indent=2)}\n"


def _play(fleet: Path, group: Group) -> dict[str, Any]:
    name = f"{group.name}-{group.digest}"
    lock, place = "{{ directory }}/pylock." + name + ".toml", "{{ directory }}/" + name
    return {
        "name": f"Environment {name}",
        "hosts": list(group.nodes),
        "gather_facts": False,
        "vars": {"directory": "/opt/envsolve", "envsolve": "envsolve"},
        "tasks": [
            {
                "name": "Make the directory",
                "ansible.builtin.file": {"path": "{{ directory }}", "state": "directory", "mode": "0755"},
            },
            {
                "name": "Copy the lock",
                "ansible.builtin.copy": {"src": str(group.lock(fleet)), "dest": lock, "mode": "0644"},
            },
            {
                "name": "Install it, verified before it is put in place",
                # --no-verify is left out on purpose: the node has the GPU.
                "ansible.builtin.command": {
                    "argv": ["{{ envsolve }}", "install", lock, "--prefix", place],
                    "creates": f"{place}/bin/python",
                },
            },
            {
                "name": "Run the quick checks",
                "ansible.builtin.command": {"argv": ["{{ envsolve }}", "verify", "--prefix", place, "--quick"]},
                "changed_when": False,
            },
        ],
    }

"""Slurm's commands as scripts: jobs run at once on this computer, under the name of their node."""

from __future__ import annotations

from pathlib import Path

_SBATCH = r"""#!/bin/sh
for word; do
  case $word in
    --job-name=*) name=${word#--job-name=};;
    --nodelist=*) node=${word#--nodelist=};;
  esac
done
echo "$*" >> STATE/sbatch.log
case $node in
  refused*) echo "sbatch: error: Requested node configuration is not available" >&2; exit 1;;
esac
id=$(wc -l < STATE/sbatch.log)
case $node in
  pending*) echo "$id|$name|PENDING|Resources" > STATE/job.$id;;
  *) SLURMD_NODENAME=$node PATH=STATE/nodebin:$PATH sh "$word" >/dev/null 2>&1;;
esac
echo "$id"
"""
_SCANCEL = r"""#!/bin/sh
echo "$*" >> STATE/scancel.log
for word; do rm -f STATE/job.$word; done
"""


def make(directory: Path, sinfo: str, python: str) -> Path:
    """Write the commands; returns the directory for PATH.

    Args:
        directory: Where they and their state are.
        sinfo: What ``sinfo`` prints.
        python: The script that is ``python3`` on the nodes.
    """
    state, commands, nodes = directory / "state", directory / "bin", directory / "state/nodebin"
    for one in (commands, nodes):
        one.mkdir(parents=True)
    (state / "sinfo.txt").write_text(sinfo)
    scripts = {
        commands / "sinfo": f"#!/bin/sh\ncat {state}/sinfo.txt\n",
        commands / "sbatch": _SBATCH.replace("STATE", str(state)),
        commands / "scancel": _SCANCEL.replace("STATE", str(state)),
        commands / "squeue": f"#!/bin/sh\ncat {state}/job.* 2>/dev/null || :\n",
        nodes / "python3": python,
    }
    for path, text in scripts.items():
        path.write_text(text)
        path.chmod(0o755)
    return commands

"""Slurm, by its own commands: one job for each node, results as files in a directory that the nodes share.

A library would want a Python on every node, and ``sbatch`` and ``squeue`` are all that it takes. Jobs are found by
their names, so that a command that was killed finds its jobs again and submits none twice.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envsolve.errors import EnvsolveError, UsageError
from envsolve.fleet.engines import Known, Options, Outcome, Watcher, Work
from envsolve.fleet.model import Labels, names_expanded
from envsolve.system.files import read_regular
from envsolve.system.limits import NODE_BYTES
from envsolve.system.processes import Ended, capture

_POLL_SECONDS = 1.0
# Results on NFS appear after the job that wrote them: a client may keep a directory for up to a minute (acdirmax).
_LATE_SECONDS = 10.0
_COMMAND_SECONDS = 60.0
_RUNNING = "the job is running"
# Base states in which a node starts no job (sinfo(1), NODE STATE CODES).
_DEAD = re.compile(
    r"(down|drain|drained|draining|fail|failing|error|unknown|future|maint|reboot|power(ed|ing)_down)", re.I
)
# The files of a job have its number: one that Ctrl-C cancelled may write for seconds beside the one that follows it.
_SCRIPT = """\
#!/bin/sh
export ENVSOLVE_NODE={node}
cd {directory} || exit 1
rm -f {node}.failed
own=.{node}.${{SLURM_JOB_ID:-$$}}
timeout -k 5 {limit} sh -c {command} < .stdin > "$own.out" 2> "$own.err"
code=$?
if [ -s "$own.out" ] && [ $code -ne 124 ] && [ $code -ne 137 ]; then
  mv "$own.out" {node}.json
else
  {{ echo "exit code $code"; tail -n 3 "$own.err"; }} > "$own.why" && mv "$own.why" {node}.failed
fi
rm -f "$own.out" "$own.err"
"""


class Slurm:
    """The nodes of a Slurm cluster."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[str, Known] = {}

    def nodes(self) -> Mapping[str, Known]:
        """Return the nodes of the cluster, with their features, GPUs and partitions."""
        command = ["sinfo", "-N", "-h", "-o", "%N|%T|%f|%G|%P|%E"]
        if self._options.partition:
            command += ["-p", self._options.partition]
        if self._options.nodes:
            command += ["-n", self._options.nodes]
        found: dict[str, Known] = {}
        for line in _asked(command).splitlines():
            name, state, features, gres, partition, reason = (line.split("|", 5) + [""] * 6)[:6]
            before = found[name].labels if name in found else None
            labels = Labels(
                features=_words(features),
                gres=tuple(word for word in _words(re.sub(r"\([^()]*\)", "", gres)) if word.startswith("gpu")),
                partitions=(*(before.partitions if before else ()), partition.rstrip("*")),
            )
            found[name] = Known(labels, _dead(state, reason))
        asked = names_expanded(self._options.nodes or "")
        found |= {name: Known(dead="Slurm does not know this node") for name in asked if name not in found}
        if not found:
            where = f" in partition {self._options.partition}" if self._options.partition else ""
            raise UsageError(f"Slurm has no nodes{where}", hint="sinfo -N lists the nodes")
        self._known = found
        return found

    def run(self, work: Work, watcher: Watcher) -> None:
        """Submit a job for each node, and wait for the results."""
        # Jobs start in the directory and find it by this path on every node.
        directory = work.directory.resolve()
        (directory / ".stdin").write_bytes(work.stdin)
        deadline = time.monotonic() + self._options.wait
        jobs: dict[str, str] = {}
        left = set(work.commands)
        try:
            jobs |= {node: job for node, (job, _) in _queue(work.name).items() if node in work.commands}
            for node, command in work.commands.items():
                if node in jobs:
                    continue
                (directory / f"{node}.failed").unlink(missing_ok=True)
                submitted = self._submitted(work, directory, node, command)
                if submitted.returncode == 0:
                    jobs[node] = submitted.stdout.decode().split(";")[0].strip()
                else:
                    left.discard(node)
                    watcher.ended(node, Outcome(failure=f"sbatch: {_last_line(submitted.stderr)}"))
            self._waited(work, directory, left, deadline, watcher)
        finally:
            if running := [jobs[node] for node in sorted(left & jobs.keys())]:
                capture(["scancel", "--quiet", *running], os.environ, limit=_COMMAND_SECONDS)

    def _waited(self, work: Work, directory: Path, left: set[str], deadline: float, watcher: Watcher) -> None:
        gone: dict[str, float] = {}
        while left:
            for node, outcome in _results(directory, left):
                left.discard(node)
                watcher.ended(node, outcome)
            queue = _queue(work.name)
            now = time.monotonic()
            for node in sorted(left):
                if node in queue:
                    gone.pop(node, None)
                    if queue[node][1] == _RUNNING:
                        watcher.started(node)
                elif now - gone.setdefault(node, now) > _LATE_SECONDS:
                    left.discard(node)
                    why = "the job ended without a result: the node failed, or cannot write to the fleet's directory"
                    watcher.ended(node, Outcome(failure=why))
            if now > deadline:
                for node in sorted(left):
                    state = queue[node][1] if node in queue else "the job ended without a result"
                    watcher.ended(node, Outcome(failure=f"no result after {self._options.wait:.0f} s: {state}"))
                return  # what is left is cancelled
            if left:
                time.sleep(_POLL_SECONDS)

    def _submitted(self, work: Work, directory: Path, node: str, command: str) -> Ended:
        limit = self._options.time_limit
        script = directory / f".{node}.sh"
        script.write_text(
            _SCRIPT.format(
                node=shlex.quote(node),
                directory=shlex.quote(str(directory)),
                limit=int(limit),
                command=shlex.quote(command),
            )
        )
        labels = self._known[node].labels if node in self._known else None
        words = ["sbatch", "--parsable", f"--job-name={work.name}-{node}", f"--nodelist={node}", "--nodes=1"]
        words += ["--ntasks=1", "--no-requeue", f"--time={int(limit) // 60 + 2}", "--output=/dev/null"]
        if self._options.partition or (labels and labels.partitions):
            words.append(f"--partition={self._options.partition or (labels.partitions[0] if labels else '')}")
        # Under ConstrainDevices a job sees only the GPUs that it asks for.
        if labels and labels.gres:
            words.append(f"--gres={','.join(_gres(labels.gres, whole=self._options.whole))}")
        return capture([*words, str(script)], os.environ, limit=_COMMAND_SECONDS)


def _gres(gres: Sequence[str], *, whole: bool) -> Iterator[str]:
    """Ask for all GPUs of a node, or for one of each type: ``gpu:h100:8`` or ``gpu:h100:1``."""
    for one in gres:
        *kind, count = one.split(":")
        if not count.isdigit():
            kind, count = one.split(":"), "1"
        yield ":".join((*kind, count if whole else "1"))


def _results(directory: Path, nodes: set[str]) -> Iterator[tuple[str, Outcome]]:
    """Yield the nodes whose result is there."""
    names = {entry.name for entry in os.scandir(directory)}
    for node in sorted(nodes):
        if f"{node}.json" in names:
            yield node, _read(directory / f"{node}.json")
        elif f"{node}.failed" in names:
            text = _read(directory / f"{node}.failed").text or b""
            yield node, Outcome(failure=_explained(text.decode(errors="replace")))


def _read(path: Path) -> Outcome:
    try:
        return Outcome(text=read_regular(path, NODE_BYTES))
    except OSError as error:
        return Outcome(failure=f"{path}: {error.strerror or error}")


def _explained(text: str) -> str:
    code, _, rest = text.strip().partition("\n")
    if code in ("exit code 124", "exit code 137"):
        return "it took longer than the time limit"
    return f"{code}: {_last_line(rest)}" if rest.strip() else f"{code}, and it printed nothing"


def _queue(name: str) -> Mapping[str, tuple[str, str]]:
    """Return the waiting and running jobs of this work: id and state, by node."""
    found = {}
    for line in _asked(["squeue", "-h", "--me", "-o", "%A|%j|%T|%r"]).splitlines():
        job, title, state, reason = (line.split("|", 3) + [""] * 4)[:4]
        if title.startswith(f"{name}-") and state not in ("COMPLETING", "CANCELLED"):
            why = f" ({reason})" if reason not in ("", "None") else ""
            found[title.removeprefix(f"{name}-")] = (job, f"its job is {state.lower()}{why}")
    return found


def _dead(state: str, reason: str) -> str | None:
    # A star after the state says that the node does not respond.
    if not state.endswith("*") and not _DEAD.fullmatch(state.rstrip("*~#!%$@^-")):
        return None
    return f"Slurm reports {state}" + (f": {reason}" if reason not in ("", "none") else "")


def _words(text: str) -> tuple[str, ...]:
    return () if text == "(null)" else tuple(filter(None, text.split(",")))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def _asked(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} is not installed here", hint="run this on a login node of the Slurm cluster")
    ended = capture(command, os.environ, limit=_COMMAND_SECONDS)
    if ended.returncode != 0:
        said = _last_line(ended.stderr) if ended.returncode is not None else "slurmctld does not respond"
        raise EnvsolveError(f"{command[0]}: {said}", hint="check that slurmctld is running: scontrol ping")
    return ended.stdout.decode(errors="replace")


ENGINE = Slurm

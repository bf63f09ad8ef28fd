"""Ray: a task on each node of a running cluster. The Ray beside envsolve must be of the version of the cluster."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

from envsolve.errors import EnvsolveError, UsageError
from envsolve.fleet.engines import TOO_MUCH, Known, Options, Outcome, Watcher, Work, leashed
from envsolve.system.limits import NODE_BYTES

_POLL_SECONDS = 0.5
_LATE, _KILLED = 124, 137  # of timeout(1)
_TAIL_BYTES = 64 * 1024


class Ray:
    """The nodes of a Ray cluster."""

    def __init__(self, options: Options) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
            self._strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        except ImportError as error:
            hint = "install the cluster's version of Ray into envsolve's environment (`ray status` shows it)"
            raise UsageError("Ray is not installed", hint=hint) from error
        self._options = options
        self._ids: dict[str, str] = {}

    def nodes(self) -> Mapping[str, Known]:
        """Connect, and return the nodes by their names; dead ones are listed, too."""
        address = self._options.nodes or "auto"
        if not self._ray.is_initialized():
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except Exception as error:  # ConnectionError, RuntimeError, ValueError, ...
                said = (str(error).strip().splitlines() or [type(error).__name__])[0]
                hint = "check that the cluster runs with: ray status; give its address with --ray"
                raise EnvsolveError(f"Ray at {address}: {said}", hint=hint) from error
        found = {}
        # A node that has left and come back is in the list twice, the living one under another id.
        for one in sorted(self._ray.nodes(), key=lambda one: (not one["Alive"], one["NodeID"])):
            name = str(one.get("NodeName") or one["NodeManagerHostname"])
            if name in found and not one["Alive"]:
                continue
            name = name if name not in found else f"{name}-{one['NodeID'][:8]}"
            found[name] = Known(dead=None if one["Alive"] else "Ray reports that it is dead")
            self._ids[name] = one["NodeID"]
        return found

    def run(self, work: Work, watcher: Watcher) -> None:
        """Start a task on each node, and wait for the results."""

        # A function inside of a function is sent by value: the nodes have no envsolve.
        def on_node(text: str, stdin: bytes, name: str, most: int, tail: int) -> tuple[int, bytes, bytes]:
            import os
            import subprocess
            import tempfile

            environ = {**os.environ, "ENVSOLVE_NODE": name}
            environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides the GPUs that a task does not ask for
            with tempfile.TemporaryFile() as err:
                words = ["sh", "-c", text]
                done = subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, bufsize=0, env=environ
                )
                assert done.stdin and done.stdout
                done.stdin.write(stdin)  # and left open, see `leashed`
                out = b""
                while len(out) <= most and (part := done.stdout.read(1 << 16)):
                    out += part
                if len(out) > most:
                    done.stdin.close()  # which ends it, see `leashed`
                    done.stdout.close()
                code = done.wait()
                err.seek(max(0, err.seek(0, os.SEEK_END) - tail))
                return code, out, err.read(tail)

        limit = int(self._options.time_limit) + 1
        task = self._ray.remote(on_node)
        left: dict[Any, str] = {}
        try:
            for node, command in work.commands.items():
                place = self._strategies.NodeAffinitySchedulingStrategy(self._ids[node], soft=False)
                options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=place)
                left[
                    options.remote(leashed(command, len(work.stdin), limit), work.stdin, node, NODE_BYTES, _TAIL_BYTES)
                ] = node
                watcher.started(node)
            deadline = time.monotonic() + self._options.wait
            while left and time.monotonic() < deadline:
                for one in self._ray.wait(list(left), num_returns=1, timeout=_POLL_SECONDS)[0]:
                    watcher.ended(left.pop(one), self._outcome(one))
            for node in left.values():
                watcher.ended(
                    node, Outcome(failure=f"no result after {self._options.wait:.0f} s: its task is waiting or running")
                )
        finally:
            for one in left:
                self._ray.cancel(one, force=True)
            self._ray.shutdown()

    def _outcome(self, one: Any) -> Outcome:
        try:
            code, out, err = self._ray.get(one)
        except Exception as error:  # the node died, or its task could not be placed
            return Outcome(failure=f"Ray: {(str(error).strip().splitlines() or [type(error).__name__])[-1].strip()}")
        if len(out) > NODE_BYTES:
            return Outcome(failure=TOO_MUCH)
        if code in (_LATE, _KILLED):
            return Outcome(failure="it took longer than the time limit" if code == _LATE else "it was killed")
        if out.strip() and code == 0:
            return Outcome(text=out)
        said = (err.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
        return Outcome(failure=f"exit code {code}: {said}")


ENGINE = Ray

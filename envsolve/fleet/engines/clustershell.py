"""ClusterShell (extra ``fleet``): a command on many nodes at once, over ssh or another of its workers."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from typing import Any

from envsolve.errors import UsageError
from envsolve.fleet.engines import TOO_MUCH, Known, Options, Outcome, Watcher, Work, leashed
from envsolve.system.limits import NODE_BYTES
from envsolve.system.processes import raise_arrived

_CONNECT_SECONDS = 10
_SSH_FAILED = 255  # ssh(1), EXIT STATUS
_NOT_FOUND = 127  # the shell's
# Of timeout(1): the time limit was reached, and it had to kill. What was printed by then is not whole.
_LATE, _KILLED = 124, 137
_POLL_SECONDS = 0.5
_TAIL_BYTES = 64 * 1024


class ClusterShell:
    """Nodes by name, reached by one of ClusterShell's workers."""

    def __init__(self, options: Options) -> None:
        try:
            from ClusterShell import NodeSet, Task
        except ImportError as error:
            raise UsageError("ClusterShell is not installed", hint="install envsolve[fleet]") from error
        self._options = options
        self._sets, self._tasks = NodeSet, Task

    def nodes(self) -> Mapping[str, Known]:
        """Return the nodes that the options name; groups (``@gpu``) are ClusterShell's."""
        text = self._options.nodes
        if not text:
            raise UsageError("no nodes were given", hint="give nodes like this: --ssh gpu[01-64]")
        try:
            return {str(node): Known() for node in self._sets.NodeSet(text)}
        except Exception as error:
            raise UsageError(f"{text!r} does not name nodes: {error}", hint="write it as: gpu[01-64]") from error

    def run(self, work: Work, watcher: Watcher) -> None:
        """Run the commands, as many at a time as the fan-out allows."""
        task = self._tasks.task_self()
        task.set_info("fanout", self._options.fanout)
        task.set_info("connect_timeout", _CONNECT_SECONDS)
        if self._options.ssh_options:
            task.set_info("ssh_options", self._options.ssh_options)
        task.set_default("stderr", True)
        groups: dict[str, list[str]] = {}
        for node, command in work.commands.items():
            groups.setdefault(command, []).append(node)
        events = _Events(work.commands, self._options.time_limit, watcher)
        kind = events.reading(self._worker())
        for command, names in groups.items():
            nodes = self._sets.NodeSet.fromlist(names)
            text = leashed(command, len(work.stdin), int(self._options.time_limit) + 1)
            if self._options.worker == "exec":
                # The worker that stays on this computer writes the node's name for %h.
                text = f"export ENVSOLVE_NODE=%h; {text.replace('%', '%%')}"
            else:
                text = f"exec sh -c {shlex.quote(text)}"  # the login shell may be another one
            worker = kind(nodes, handler=events.handler(), timeout=self._options.time_limit, command=text, stderr=True)
            task.schedule(worker)
            worker.write(work.stdin)  # and no end of file, see `leashed`
        task.timer(_POLL_SECONDS, events.clock(), interval=_POLL_SECONDS, autoclose=True)
        try:
            task.resume()
        finally:
            # Also after Ctrl-C: no connection may outlive this command.
            task.abort()
        events.rest()

    def _worker(self) -> Any:
        name = self._options.worker
        try:
            return importlib.import_module(f"ClusterShell.Worker.{name.capitalize()}").WORKER_CLASS
        except (ImportError, AttributeError):
            raise UsageError(
                f"--worker {name}: ClusterShell has no such worker", hint="workers: ssh, rsh, exec"
            ) from None


class _Events:
    """Turns ClusterShell's events into outcomes, one for each node."""

    def __init__(self, nodes: Mapping[str, str], limit: float, watcher: Watcher) -> None:
        self._left = dict.fromkeys(nodes)
        self._limit = limit
        self._watcher = watcher
        self._printed: dict[tuple[str, str], bytearray] = {}
        self._endless: set[str] = set()

    def handler(self) -> Any:
        """Return an event handler of ClusterShell."""
        from ClusterShell.Event import EventHandler

        def picked_up(_: Any, __: Any, node: str) -> None:
            self._watcher.started(str(node))

        def hung_up(_: Any, worker: Any, node: str, code: int) -> None:
            out, err = (self._printed.pop((str(node), stream), b"") for stream in ("stdout", "stderr"))
            self.end(str(node), _outcome(code, bytes(out), bytes(err)))

        def closed(_: Any, worker: Any, timed_out: bool) -> None:
            for node in list(worker.iter_keys_timeout()) if timed_out else ():
                self.end(str(node), Outcome(failure=f"it took longer than {self._limit:.0f} s"))

        # Not a class statement: its base has no types.
        return type("Handler", (EventHandler,), {"ev_pickup": picked_up, "ev_hup": hung_up, "ev_close": closed})()

    def clock(self) -> Any:
        """Return a handler of a timer that ends the work if Ctrl-C came while a connection was started.

        Python swallows what a signal raises between fork and exec, where the start of many nodes spends its time.
        """
        from ClusterShell.Event import EventHandler

        return type("Clock", (EventHandler,), {"ev_timer": lambda *_: raise_arrived()})()

    def reading(self, kind: Any) -> Any:
        """A worker like a kind of ClusterShell's that keeps no more of what a node prints than a limit.

        ClusterShell's own keep all of it, and one that prints a line without end takes the square of its length.
        """

        def read(client: Any, stream: str) -> None:
            data = client._read(stream)
            if not self._keep(str(client.key), stream, data):
                client._set_write_eof("stdin")  # see `leashed`
                client.popen.kill()

        return type("Worker", (kind,), {"SHELL_CLASS": type("Client", (kind.SHELL_CLASS,), {"_handle_read": read})})

    def _keep(self, node: str, stream: str, data: bytes) -> bool:
        """Keep what a node printed, and the end of its stderr; returns whether it may continue."""
        printed = self._printed.setdefault((node, stream), bytearray())
        printed += data
        if stream == "stderr":
            del printed[:-_TAIL_BYTES]
        elif len(printed) > NODE_BYTES:
            printed.clear()
            self._endless.add(node)
        return node not in self._endless

    def end(self, node: str, outcome: Outcome) -> None:
        """Report a node once."""
        if node in self._left:
            del self._left[node]
            self._watcher.ended(node, outcome if node not in self._endless else Outcome(failure=TOO_MUCH))

    def rest(self) -> None:
        """Report the nodes without any event."""
        for node in list(self._left):
            self.end(node, Outcome(failure="ClusterShell reported no result for this node"))


def _outcome(code: int | None, text: bytes, err: bytes) -> Outcome:
    lines = err.decode(errors="replace").strip().splitlines() or [""]
    if code == _SSH_FAILED:
        return Outcome(failure=f"ssh failed: {lines[-1] or 'no message'}")
    if code in (_LATE, _KILLED):
        return Outcome(failure="it took longer than the time limit" if code == _LATE else "it was killed")
    if text.strip() and code != _NOT_FOUND:
        return Outcome(text=text)
    return Outcome(
        failure=f"exit code {code}: {lines[-1]}" if lines[-1] else f"exit code {code}, and it printed nothing"
    )


ENGINE = ClusterShell

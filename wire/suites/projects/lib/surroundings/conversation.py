"""A conversation between two ends, of which either may be surrounded by something."""

import contextlib
import glob
import json
import os
import queue
import re
import signal
import subprocess
import threading

# Limit in seconds for a case before it counts as hanging. Programs under valgrind on a busy machine are slow.
PATIENCE = 120

END = os.path.join(os.environ["CACHE"], "end")
LIBRARY = os.environ.get("LD_PRELOAD", "")
ACCELERATED = bool(LIBRARY)
COUNTERS = os.environ.get("SEEKWIRE_STATS")
ROLES = ("server", "client")


class Failed(Exception):
    """Something that no surroundings excuse."""


class Skipped(Exception):
    """The surroundings cannot be had here."""


def skip(why):
    raise Skipped(why)


class Process:
    """An end of the conversation, or a tool that runs one."""

    def __init__(self, role, arguments, side):
        environment = dict(os.environ)
        for name, value in side.environment.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value
        program = side.program or END
        self.role = role
        self.pid = None
        self.errors = []
        self.lines = queue.Queue()
        # In a session of its own, so that all of its processes can be ended.
        self.process = subprocess.Popen(
            [*side.prefix, program, role, *arguments], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True)
        for stream, sink in ((self.process.stdout, self.lines.put), (self.process.stderr, self.errors.append)):
            threading.Thread(target=self._read, args=(stream, sink), daemon=True).start()

    @staticmethod
    def _read(stream, sink):
        for line in stream:
            sink(line.decode(errors="replace").rstrip())
        sink(None)

    def expect(self, pattern):
        """Waits for such a line; tools may say others before."""
        while True:
            try:
                line = self.lines.get(timeout=PATIENCE)
            except queue.Empty:
                raise Failed(f"{self.role} hangs before it says {pattern}; {self.state()}") from None
            if line is None:
                raise Failed(f"{self.role} ended before it said {pattern}; {self.state()}")
            found = re.fullmatch(pattern, line)
            if found:
                return found

    def say(self, lines):
        try:
            self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.role} is gone; {self.state()}") from None

    def end(self):
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.role} hangs at its end; {self.state()}") from None
        if status:
            raise Failed(f"{self.role} ended with {signal_or_status(status)}; {self.state()}")

    def state(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        status = self.process.returncode
        last = [line for line in self.errors if line][-4:]
        return ("still running" if status is None else signal_or_status(status)) + "".join(f"\n    {line}" for line in last)

    def kill(self):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def signal_or_status(status):
    return signal.Signals(-status).name if status < 0 else f"status {status}"


class Side:
    """What surrounds one end."""

    def __init__(self, prefix=(), environment=None, program=None, orders=(), midst=None, silent=False):
        self.prefix = list(prefix)
        self.environment = environment or {}
        self.program = program
        # Orders to the end itself during the pause, then an action on its process, which may return a function that ends the action.
        self.orders = list(orders)
        self.midst = midst
        # It may be unable to write its counters.
        self.silent = silent


ORDINARY = Side()


def converse(sides, between=None, midst=None):
    """One conversation. `between` runs when only the server is there, `midst` when both pause."""
    with contextlib.ExitStack() as stack:
        server = Process("server", [], sides.get("server", ORDINARY))
        stack.callback(server.kill)
        port, server.pid = server.expect(r"port (\d+) pid (\d+)").groups()
        if between:
            between()
        client = Process("client", [port], sides.get("client", ORDINARY))
        stack.callback(client.kill)
        client.pid = client.expect(r"pid (\d+)")[1]
        ends = {"server": server, "client": client}
        for end in ends.values():
            end.expect("paused")
        if midst:
            midst()
        for role, end in ends.items():
            side = sides.get(role, ORDINARY)
            if side.midst:
                leave = side.midst(int(end.pid))
                if leave:
                    stack.callback(leave)
        # Both must have changed before either continues.
        for role in ROLES:
            ends[role].say([*sides.get(role, ORDINARY).orders, "go"])
        for end in ends.values():
            end.expect("done")
        for end in ends.values():
            end.end()
        if ACCELERATED and COUNTERS:
            for role, end in ends.items():
                explained(role, end.pid, sides.get(role, ORDINARY).silent)


def counters_of(pid):
    return glob.glob(os.path.join(COUNTERS, f"*.{pid or '*'}.json")) if COUNTERS else []


def explained(role, pid, silent):
    """Each connection was accelerated, or has a reason why not."""
    files = counters_of(pid)
    if not files:
        if silent:
            return
        raise Failed(f"{role} has written no counters")
    with open(files[0], encoding="utf-8") as file:
        counters = json.load(file)
    connections, reasons = counters["connections"], sum(counters["reasons"].values())
    if connections["attached"] + reasons < connections["tracked"]:
        raise Failed(f"{role}: of {connections['tracked']} connections {connections['attached']} were attached, {reasons} have a reason")

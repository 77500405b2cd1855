"""Connections that pass messages back and forth until somebody says that it is enough, or they break.

usage: rounds.py serve ADDRESS CONNECTIONS | call ADDRESS PORT CONNECTIONS

    serve: prints the port, echoes what comes on so many connections, by epoll, and prints how they ended.
    call:  prints `ready` when each connection has passed some hundred messages. Then it does what it is told, a line of
           standard input at a time:
           enough    begins no message any more; those that are under way come back or fail
           broken    goes on until all connections have failed
           handler   sets a handler for SIGBUS, which prints `bus` and mends what is broken; prints `ok`
           fault     reads a byte of a file of its own that was cut short; prints `ok`
           After one of the first two it prints how the connections ended.

The endings of all connections are in one line, as `6 ECONNRESET` or `2 ok, 4 ECONNRESET`. What comes back is not
compared.
"""

import collections
import ctypes
import errno
import mmap
import os
import selectors
import signal
import socket
import sys
import threading

LENGTHS = [64, 700, 5000, 40000]
READY = 200


def say(endings):
    print(", ".join(f"{count} {how}" for how, count in sorted(endings.items())), flush=True)


class Echo:
    def __init__(self, connection):
        self.connection = connection
        self.waiting = bytearray()
        connection.setblocking(False)

    def step(self):
        """How it has ended, if it has."""
        try:
            while len(self.waiting) < 1 << 20:
                data = self.connection.recv(1 << 16)
                if not data:
                    return "ok"
                self.waiting += data
        except BlockingIOError:
            pass
        except OSError as error:
            return errno.errorcode[error.errno]
        try:
            while self.waiting:
                del self.waiting[: self.connection.send(self.waiting)]
        except BlockingIOError:
            pass
        except OSError as error:
            return errno.errorcode[error.errno]
        return None


def serve(address, count):
    listener = socket.create_server((address, 0), backlog=count)
    print(listener.getsockname()[1], flush=True)
    endings = collections.Counter()
    with selectors.EpollSelector() as selector:
        for _ in range(count):
            echo = Echo(listener.accept()[0])
            selector.register(echo.connection, selectors.EVENT_READ, echo)
        while selector.get_map():
            for key, _ in selector.select():
                echo = key.data
                how = echo.step()
                if how:
                    endings[how] += 1
                    selector.unregister(echo.connection)
                    echo.connection.close()
                else:
                    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if echo.waiting else 0)
                    selector.modify(echo.connection, wanted, echo)
    say(endings)


class Caller(threading.Thread):
    def __init__(self, address, port, number):
        super().__init__()
        self.connection = socket.create_connection((address, port))
        self.number = number
        self.passed = 0
        self.is_enough = False
        self.changed = threading.Condition()
        self.ending = None

    def run(self):
        how = "ok"
        try:
            while not self.is_enough:
                length = LENGTHS[(self.number + self.passed) % len(LENGTHS)]
                self.connection.sendall(bytes(length))
                while length:
                    data = self.connection.recv(min(length, 1 << 16))
                    if not data:
                        raise EOFError
                    length -= len(data)
                with self.changed:
                    self.passed += 1
                    self.changed.notify_all()
        except EOFError:
            how = "eof"
        except OSError as error:
            how = errno.errorcode[error.errno]
        with self.changed:
            self.ending = how
            self.changed.notify_all()
        self.connection.close()


def call(address, port, count):
    callers = [Caller(address, port, number) for number in range(count)]
    for caller in callers:
        caller.start()
    for caller in callers:
        with caller.changed:
            caller.changed.wait_for(lambda: caller.passed >= READY or caller.ending)
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "handler":
            own_faults()
        elif word == "fault":
            fault()
        else:
            break
    for caller in callers:
        caller.is_enough = word == "enough"
    for caller in callers:
        caller.join()
    say(collections.Counter(caller.ending for caller in callers))


# ---- faults of the program's own ----------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
kept = []


def own_faults():
    """Has SIGBUS print a line, and a page be mapped where it came from."""
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = [ctypes.c_int, HANDLER]

    def at_fault(_number):
        os.write(1, b"bus\n")
        page, length = kept[0]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
        libc.mmap(page, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)

    handler = HANDLER(at_fault)
    kept.clear()
    file = os.memfd_create("cut short")
    os.truncate(file, mmap.PAGESIZE)
    page = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    os.truncate(file, 0)
    kept.extend([(page, mmap.PAGESIZE), handler])
    libc.signal(signal.SIGBUS, handler)
    print("ok", flush=True)


def fault():
    """Reads where the file has no bytes any more."""
    ctypes.string_at(kept[0][0], 1)
    print("ok", flush=True)


if __name__ == "__main__":
    what, address, *numbers = sys.argv[1:]
    {"serve": serve, "call": call}[what](address, *map(int, numbers))

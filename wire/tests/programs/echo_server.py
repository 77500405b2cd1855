"""Echo server in every style a program may wait for sockets.

usage: echo_server.py STYLE [ADDRESS]

Prints the port once it listens. Echoes each connection until its peer has shut down sending, then closes it. Ends
when standard input ends.
"""

import asyncio
import os
import select
import selectors
import signal
import socket
import sys
import threading

CHUNK = 65536


def listen(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, 0), family=family, backlog=1024)
    print(listener.getsockname()[1], flush=True)
    return listener


def echo_until_end(connection):
    with connection:
        while data := connection.recv(CHUNK):
            connection.sendall(data)


def serve_threads(listener):
    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=echo_until_end, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def serve_fork(listener):
    """One process for each connection; the parent closes its copy, as inetd does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            echo_until_end(connection)
            # With the exit handlers, so that the library can write its counters.
            sys.exit()
        connection.close()


def serve_prefork(listener):
    """Processes that were there before the connections, all accepting from one listener."""
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit())
            while True:
                connection, _ = listener.accept()
                echo_until_end(connection)
        children.append(child)
    sys.stdin.read()
    for child in children:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


class Buffered:
    """A non-blocking connection: what was read and not yet written back."""

    def __init__(self, connection):
        self.socket = connection
        self.pending = bytearray()
        self.ended = False
        connection.setblocking(False)

    def step(self, until_blocked):
        """Reads and writes; with `until_blocked`, until neither goes on. False: the connection is finished."""
        progress = True
        while progress:
            progress = False
            if not self.ended and len(self.pending) < 4 * CHUNK:
                try:
                    data = self.socket.recv(CHUNK)
                    self.ended = not data
                    self.pending += data
                    progress = until_blocked
                except BlockingIOError:
                    pass
            if self.pending:
                try:
                    del self.pending[: self.socket.send(self.pending)]
                    progress = until_blocked
                except BlockingIOError:
                    pass
        return not self.ended or bool(self.pending)

    def events(self):
        read = 0 if self.ended or len(self.pending) >= 4 * CHUNK else selectors.EVENT_READ
        return read | (selectors.EVENT_WRITE if self.pending else 0)


def serve_selector(listener, selector):
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                return
            if key.fileobj is listener:
                connection, _ = listener.accept()
                selector.register(connection, selectors.EVENT_READ, Buffered(connection))
            elif key.data.step(until_blocked=False):
                selector.modify(key.fileobj, key.data.events(), key.data)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def serve_epoll_edge(listener):
    """Edge-triggered: every event must be worked off until the socket would block, or it never comes again."""
    listener.setblocking(False)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    epoll.register(sys.stdin, select.EPOLLIN)
    connections = {}
    while True:
        for fd, _ in epoll.poll():
            if fd == sys.stdin.fileno():
                return
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = Buffered(connection)
                epoll.register(connection, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET)
            elif not connections[fd].step(until_blocked=True):
                epoll.unregister(fd)
                connections.pop(fd).socket.close()


async def serve_asyncio(listener):
    async def echo(reader, writer):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, sock=listener, backlog=1024)
    async with server:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
        await ended.wait()


def main():
    style, address = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    listener = listen(address)
    styles = {
        "threads": lambda: serve_threads(listener),
        "fork": lambda: serve_fork(listener),
        "prefork": lambda: serve_prefork(listener),
        "select": lambda: serve_selector(listener, selectors.SelectSelector()),
        "poll": lambda: serve_selector(listener, selectors.PollSelector()),
        "epoll": lambda: serve_selector(listener, selectors.EpollSelector()),
        "epoll-edge": lambda: serve_epoll_edge(listener),
        "asyncio": lambda: asyncio.run(serve_asyncio(listener)),
    }
    styles[style]()


if __name__ == "__main__":
    main()

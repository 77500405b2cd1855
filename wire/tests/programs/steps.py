"""One end of a connection that does what it is told, a line of standard input at a time.

usage: steps.py listen [ADDRESS] | connect ADDRESS PORT

    listen: prints the port, then accepts one connection.

    send N         sends N bytes
    recv N         receives exactly N bytes
    end            receives what is left; answers with its length and `eof` or the name of the error
    shutdown       shuts sending down
    linger0        makes closing reset the connection
    nodelay        sets TCP_NODELAY
    oob            sends one out-of-band byte
    recv-oob       receives it
    unread         the number of bytes that can be read now (FIONREAD)
    timeout S      sets SO_RCVTIMEO and SO_SNDTIMEO
    splice N       sends N bytes with sendfile(2)
    starve         from now on no descriptor can be opened
    feed           from now on descriptors can be opened again
    fork           from now on a child has the connection, too
    close          closes the connection

Every line is answered with `ok`, a result, or the name of an error. Bytes count up modulo 251 from the first one of
the stream, in each direction, and are checked.
"""

import array
import errno
import fcntl
import os
import resource
import socket
import struct
import sys
import tempfile
import termios

PERIOD = 251
PATTERN = bytes(range(PERIOD)) * 4000


def pattern(start, length):
    out = bytearray()
    while len(out) < length:
        offset = (start + len(out)) % PERIOD
        out += PATTERN[offset : offset + length - len(out)]
    return bytes(out)


class End:
    def __init__(self, connection):
        self.connection = connection
        self.sent = 0
        self.received = 0

    def send(self, count):
        self.connection.sendall(pattern(self.sent, count))
        self.sent += count

    def check(self, data):
        if data != pattern(self.received, len(data)):
            raise SystemExit(f"wrong bytes after {self.received}")
        self.received += len(data)

    def recv(self, count):
        while count:
            data = self.connection.recv(min(count, 1 << 20))
            if not data:
                return "eof"
            self.check(data)
            count -= len(data)

    def end(self):
        before = self.received
        try:
            while data := self.connection.recv(1 << 20):
                self.check(data)
            how = "eof"
        except OSError as error:
            how = errno.errorcode[error.errno]
        return f"{self.received - before} {how}"

    def shutdown(self):
        self.connection.shutdown(socket.SHUT_WR)

    def linger0(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def nodelay(self):
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def oob(self):
        self.connection.send(b"!", socket.MSG_OOB)

    def recv_oob(self):
        return self.connection.recv(1, socket.MSG_OOB).decode()

    def unread(self):
        count = array.array("i", [0])
        fcntl.ioctl(self.connection, termios.FIONREAD, count)
        return count[0]

    def timeout(self, seconds):
        value = struct.pack("ll", seconds, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def splice(self, count):
        with tempfile.TemporaryFile() as file:
            file.write(pattern(self.sent, count))
            file.flush()
            offset = 0
            while offset < count:
                offset += os.sendfile(self.connection.fileno(), file.fileno(), offset, count - offset)
        self.sent += count

    def starve(self):
        free = os.dup(0)
        os.close(free)
        self.limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, self.limits[1]))

    def feed(self):
        resource.setrlimit(resource.RLIMIT_NOFILE, self.limits)

    def fork(self):
        # Its end ends the child.
        begin, self.child = os.pipe()
        if os.fork() == 0:
            os.close(self.child)
            os.read(begin, 1)
            os._exit(0)
        os.close(begin)

    def close(self):
        self.connection.close()


def main():
    if sys.argv[1] == "listen":
        address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
        listener = socket.create_server((address, 0))
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
        listener.close()
    else:
        connection = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    end = End(connection)
    for line in sys.stdin:
        step, *arguments = line.split()
        try:
            result = getattr(end, step.replace("-", "_"))(*map(int, arguments))
        except OSError as error:
            result = errno.errorcode[error.errno]
        print("ok" if result is None else result, flush=True)


if __name__ == "__main__":
    main()

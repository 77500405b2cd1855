"""Sends random bytes in pieces of random size, reads them back at random pace, and compares.

usage: echo_client.py ADDRESS PORT [--connections N] [--bytes N] [--seed N] [--non-blocking]

Each connection begins with small messages, one at a time, and ends with a half-close: everything must come back after
it, then the end. Prints how many bytes came back.
"""

import argparse
import random
import select
import socket
import sys
import threading


MESSAGES = 200
MESSAGE = 500


def piece_sizes(source):
    """Mostly small, sometimes large: both sides of every inline and segment size."""
    while True:
        yield source.choice((1, 7, 47, 48, 64, 100, 1000, 4096, 16384, 65536, 200_000, source.randrange(1, 70_000)))


def send_all(connection, data, source):
    view = memoryview(data)
    for size in piece_sizes(source):
        if not view:
            break
        piece, view = view[:size], view[size:]
        if source.random() < 0.3:
            # Several buffers in one call.
            cut = len(piece) // 2
            sent = connection.sendmsg([piece[:cut], piece[cut:]])
            connection.sendall(piece[sent:])
        else:
            connection.sendall(piece)
    connection.shutdown(socket.SHUT_WR)


def receive(connection, source):
    received = bytearray()
    buffer = bytearray(200_000)
    for size in piece_sizes(source):
        if source.random() < 0.1:
            peeked = connection.recv(min(size, 1000), socket.MSG_PEEK)
            length = connection.recv_into(buffer, max(len(peeked), 1), socket.MSG_WAITALL)
            if bytes(buffer[:length]) != peeked:
                raise SystemExit("the peeked bytes differ from the received ones")
        else:
            length = connection.recv_into(buffer, size)
        if length == 0:
            return received
        received += buffer[:length]


def echo_non_blocking(connection, data):
    connection.setblocking(False)
    view, received = memoryview(data), bytearray()
    poller = select.poll()
    while True:
        poller.register(connection, select.POLLIN | (select.POLLOUT if view else 0))
        for _, events in poller.poll():
            if events & select.POLLOUT:
                try:
                    view = view[connection.send(view) :]
                except BlockingIOError:
                    pass
                if not view:
                    connection.shutdown(socket.SHUT_WR)
            if events & (select.POLLIN | select.POLLHUP):
                try:
                    piece = connection.recv(65536)
                except BlockingIOError:
                    continue
                if not piece:
                    return received
                received += piece


def ping_pong(connection, data):
    """Sends the beginning of `data` as small messages and waits for each to come back."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    done = 0
    for _ in range(MESSAGES):
        message = data[done : done + MESSAGE]
        connection.sendall(message)
        if connection.recv(len(message), socket.MSG_WAITALL) != message:
            raise SystemExit(f"wrong answer after {done} bytes")
        done += len(message)
    return done


def exchange(arguments, number, results):
    source = random.Random(arguments.seed + number)
    data = source.randbytes(arguments.bytes)
    with socket.create_connection((arguments.address, arguments.port)) as connection:
        done = ping_pong(connection, data)
        rest = data[done:]
        if arguments.non_blocking:
            received = echo_non_blocking(connection, rest)
        else:
            sender = threading.Thread(target=send_all, args=(connection, rest, random.Random(number)))
            sender.start()
            received = receive(connection, source)
            sender.join()
        received[:0] = data[:done]
    if received == data:
        results[number] = len(received)
    else:
        at = next((i for i, (a, b) in enumerate(zip(received, data)) if a != b), min(len(received), len(data)))
        print(f"connection {number}: {len(received)} of {len(data)} bytes, first difference at {at}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=8_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--non-blocking", action="store_true")
    arguments = parser.parse_args()

    results = {}
    threads = [
        threading.Thread(target=exchange, args=(arguments, number, results)) for number in range(arguments.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(results) != arguments.connections:
        sys.exit(f"{arguments.connections - len(results)} of {arguments.connections} connections failed")
    print(sum(results.values()))


if __name__ == "__main__":
    main()

"""Holds many connections open at once and uses each of them.

usage: many.py ADDRESS PORT CONNECTIONS

Opens them all, then exchanges messages on every one in turn, several times over. Prints the number of messages that came
back and waits for the end of standard input with all of them open.
"""

import socket
import sys

ROUNDS = 20
MESSAGE = 512


def main():
    address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    connections = [socket.create_connection((address, port)) for _ in range(count)]
    exchanged = 0
    for turn in range(ROUNDS):
        for number, connection in enumerate(connections):
            message = f"{turn}.{number}.".encode().ljust(MESSAGE, b"x")
            connection.sendall(message)
            if connection.recv(MESSAGE, socket.MSG_WAITALL) != message:
                sys.exit(f"connection {number}: wrong answer in turn {turn}")
            exchanged += 1
    print(exchanged, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

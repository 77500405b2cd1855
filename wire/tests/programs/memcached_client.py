"""Stores and fetches values of many sizes in memcached, by its text protocol.

usage: memcached_client.py ADDRESS PORT COUNT

Checks every value that comes back, and prints how many did.
"""

import socket
import sys

KEYS = 50
LARGEST = 100_000


def main():
    address, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    pattern = bytes(range(251)) * (LARGEST // 251 + 2)
    with socket.create_connection((address, port)) as connection, connection.makefile("rb") as answers:
        for number in range(count):
            key = f"key{number % KEYS}".encode()
            length = 1 + number * 977 % LARGEST
            value = pattern[number % 251 :][:length]
            connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, length, value))
            assert answers.readline() == b"STORED\r\n"
            connection.sendall(b"get %s\r\n" % key)
            assert answers.readline() == b"VALUE %s 0 %d\r\n" % (key, length)
            assert answers.read(length + 2) == value + b"\r\n", number
            assert answers.readline() == b"END\r\n"
    print(count)


if __name__ == "__main__":
    main()

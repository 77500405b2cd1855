"""closes.py serve ADDRESS | closes.py talk ADDRESS PORT | closes.py close ADDRESS PORT TIMES

`serve` prints its port, and sends back what comes. `talk` exchanges bytes by several connections at a time and one after the
other, and checks what comes back. In `close`, a thread closes sockets by which another one is sending just then, so many times, and
says that it has. (The other one may send by the next socket, which has the same number: nobody checks that.) All three end
with their input.
"""

import os
import random
import socket
import sys
import threading

TALKERS = 3
ROUNDS = 80


def serve(address):
    listener = socket.create_server((address, 0), backlog=64)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=accept, args=[listener], daemon=True).start()
    sys.stdin.read()
    os._exit(0)  # Without a word of the other threads.


def accept(listener):
    while True:
        threading.Thread(target=send_back, args=[listener.accept()[0]], daemon=True).start()


def send_back(connection):
    with connection:
        try:
            while received := connection.recv(1 << 16):
                connection.sendall(received)
        except OSError:
            pass  # The other end has closed it with bytes unread.


def fail(why):
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def exchange(connection, size):
    sent, received = os.urandom(size), b""
    connection.sendall(sent)
    while len(received) < size:
        part = connection.recv(1 << 16)
        if not part:
            fail("a connection has ended")
        received += part
    if received != sent:
        fail("other bytes came back")


def talk_again_and_again(peer, is_over):
    try:
        while not is_over.is_set():
            with socket.create_connection(peer) as connection:
                for _ in range(ROUNDS):
                    exchange(connection, random.randrange(1, 3000))
    except OSError as error:
        fail(error)


def talk(peer):
    is_over = threading.Event()
    talkers = [threading.Thread(target=talk_again_and_again, args=[peer, is_over]) for _ in range(TALKERS)]
    for talker in talkers:
        talker.start()
    sys.stdin.read()
    is_over.set()
    for talker in talkers:
        talker.join()


def send(connection, sent):
    try:
        while True:
            connection.send(bytes(random.randrange(1, 3000)), socket.MSG_DONTWAIT)
            sent.release()
    except OSError:
        sent.release(100)  # It was closed, or is full.


def close_while_another_sends(peer):
    connection, sent = socket.create_connection(peer), threading.Semaphore(0)
    sender = threading.Thread(target=send, args=[connection, sent])
    sender.start()
    for _ in range(random.randrange(40)):
        sent.acquire(timeout=1)
    connection.close()
    sender.join()


def close(peer, times):
    for _ in range(times):
        close_while_another_sends(peer)
    print("closed", flush=True)
    sys.stdin.read()


match sys.argv[1:]:
    case ["serve", address]:
        serve(address)
    case ["talk", address, port]:
        talk((address, int(port)))
    case ["close", address, port, times]:
        close((address, int(port)), int(times))

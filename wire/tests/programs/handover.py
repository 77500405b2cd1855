"""An echo server that hands its accelerated connection to another program in the middle of the stream.

usage: handover.py HOW PROGRAM [ARGUMENT...]

Accepts one connection, echoes its first 2 MB itself and then leaves the rest to PROGRAM, which copies its standard
input to its standard output, as inetd(8) programs do:

    exec       becomes PROGRAM, with the connection as descriptors 0 and 1
    fork       a child becomes PROGRAM; this process closes its copy and waits
    spawn      posix_spawn(3), which no interposed fork or exec is called for
    rights     passes the connection in an SCM_RIGHTS message to an unrelated process, which becomes PROGRAM

Prints the port once it listens.
"""

import os
import socket
import subprocess
import sys

FIRST = 2_000_000


def echo_first_part(connection):
    left = FIRST
    while left > 0:
        data = connection.recv(min(left, 65536))
        if not data:
            sys.exit("the connection ended early")
        connection.sendall(data)
        left -= len(data)


def become(connection, command):
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    connection.close()
    os.execvp(command[0], command)


def take_over(command):
    """The unrelated process: takes the connection out of the message on its standard input."""
    _, (fd,), _, _ = socket.recv_fds(socket.socket(fileno=0), 1, 1)
    become(socket.socket(fileno=fd), command)


def main():
    how, command = sys.argv[1], sys.argv[2:]
    if how == "take-over":
        take_over(command)
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socketpair()
    if how == "rights":
        receiver = subprocess.Popen([sys.executable, __file__, "take-over", *command], stdin=theirs)
    theirs.close()
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    listener.close()
    echo_first_part(connection)

    if how == "exec":
        become(connection, command)
    elif how == "fork":
        child = os.fork()
        if child == 0:
            become(connection, command)
        connection.close()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif how == "spawn":
        fd = connection.fileno()
        actions = [(os.POSIX_SPAWN_DUP2, fd, 0), (os.POSIX_SPAWN_DUP2, fd, 1), (os.POSIX_SPAWN_CLOSE, fd)]
        child = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
        connection.close()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif how == "rights":
        socket.send_fds(ours, [b"x"], [connection.fileno()])
        connection.close()
        sys.exit(receiver.wait())


if __name__ == "__main__":
    main()

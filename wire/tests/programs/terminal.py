"""Runs a program on a terminal of its own, and answers what it says there.

usage: terminal.py ANSWERS PROGRAM [ARGUMENT...]

ANSWERS is a list in JSON of [text, key]: when the text has appeared on the terminal, the key is typed. If the key is null,
the terminal is closed. Prints everything that appears, then how the program has ended.
"""

import json
import os
import pty
import signal
import sys

answers = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    # It may be ignored here, as under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execvp(sys.argv[2], sys.argv[2:])
text = ""
is_open = True
while is_open:
    try:
        piece = os.read(terminal, 4096)
    except OSError:
        # Nobody has the other end any more.
        break
    if not piece:
        break
    text += piece.decode()
    while answers and answers[0][0] in text:
        key = answers.pop(0)[1]
        if key is None:
            os.close(terminal)
            is_open = False
        else:
            os.write(terminal, key.encode())
print(text.replace("\r\n", "\n"))
print("ended:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

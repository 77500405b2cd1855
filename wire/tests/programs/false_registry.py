"""Maps a file as its registry, replaces it by something else, and waits until standard input ends.

usage: false_registry.py FILE fifo|link|huge|short|random
"""

import mmap
import os
import sys

path, kind = sys.argv[1:]
with open(path, "r+b") as file:
    mapping = mmap.mmap(file.fileno(), 0)
if kind == "short":
    os.truncate(path, 100)
elif kind == "huge":
    os.truncate(path, 1 << 40)
elif kind == "random":
    # Every slot is said to be in use; the magic word stays.
    mapping[64:] = os.urandom(len(mapping) - 64)
else:
    os.unlink(path)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        os.symlink("/proc/self/maps", path)
print("ok", flush=True)
sys.stdin.read()

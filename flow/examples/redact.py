#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A filter for `seekwire flow` in Python: it hides digits, and keeps everything in its place.

    [filter.redact]
    run = "framed"
    command = ["python3", "redact.py"]
    copies = 4

The class `Redact` is the filter. What stands below it speaks the filter protocol for any filter, and
needs nothing but the standard library.
"""

import os
import struct
import sys
import traceback


class Redact:
    """One value for each process. `init` begins a unit of work, so it forgets the one before."""

    def init(self, argument, unit, send):
        self.unit = unit
        self.hidden = 0

    def process(self, block, port, sequence, send):
        digits = sum(block.count(digit) for digit in b"0123456789")
        self.hidden += digits
        send(block.translate(DIGITS_TO_X) if digits else block)

    def finalize(self, send):
        # Standard error is for people. Other copies also use it, so each line is a single write.
        sys.stderr.write(f"unit {self.unit}: {self.hidden} digits hidden\n")


DIGITS_TO_X = bytes.maketrans(b"0123456789", b"x" * 10)

VERSION = 1
HELLO = struct.Struct("<8sIHH")
HEADER = struct.Struct("<IIQQ")
INIT, BLOCK, GENERATE, END, DONE, MORE, ERROR = range(1, 8)


def serve(filter):
    """Serves unit after unit, until there is no more. A source has `generate(send)`, which returns
    whether it has more to give."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Text printed by mistake must not come between the frames.
    os.dup2(2, 1)

    def read(length):
        data = requests.read(length)
        if len(data) < length:
            raise EOFError("a request ends in the middle")
        return data

    def answer(kind, port, number, data=b""):
        answers.write(HEADER.pack(kind, port, number, len(data)))
        answers.write(data)

    magic, version, inputs, outputs = HELLO.unpack(read(HELLO.size))
    if (magic, version) != (b"seekflt>", VERSION):
        sys.exit("this is a filter for `seekwire flow`: see `seekwire flow filters`, framed")
    answers.write(HELLO.pack(b"seekflt<", VERSION, 0, 0))
    answers.flush()
    while header := requests.read(HEADER.size):
        kind, port, number, length = HEADER.unpack(header)
        data = read(length)

        def send(block, port=0):
            answer(BLOCK, port, number, block)

        try:
            end = DONE
            if kind == INIT:
                # It may be a path that is no text.
                filter.init(os.fsdecode(data), number, send)
            elif kind == BLOCK:
                filter.process(data, port, number, send)
            elif kind == GENERATE:
                end = MORE if filter.generate(send) else DONE
            elif kind == END:
                filter.finalize(send)
            else:
                raise ValueError(f"a request of kind {kind}")
            answer(end, 0, number)
        except BrokenPipeError:
            raise
        except Exception as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}"
            answer(ERROR, 0, number, text.encode(errors="replace")[:65536])
        answers.flush()


if __name__ == "__main__":
    serve(Redact())

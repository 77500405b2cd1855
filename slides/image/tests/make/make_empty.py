"""Makes slides of Aperio with tiles of no bytes, as scanners and conversions that broke off leave them.

    make_empty.py DIRECTORY

scattered.tif has some in each level; level.tif has a level of nothing else; ended.tif ends in the middle of its first level.
"""

import sys
import zlib
from pathlib import Path

import numpy
from tifffile import TiffWriter

SIDE, TILE = 1024, 128


def tissue(side):
    down, across = numpy.mgrid[0:side, 0:side] * (SIDE // side)
    return numpy.stack([across // 8 + 30, down // 8 + 60, (across + down) // 16 + 20], axis=-1).astype("uint8")


def tiles(side, empty):
    whole = tissue(side)
    places = [(row, column) for row in range(0, side, TILE) for column in range(0, side, TILE)]
    for number, (row, column) in enumerate(places):
        tile = whole[row : row + TILE, column : column + TILE]
        yield b"" if empty(number) else zlib.compress(tile.tobytes())


def write(name, empties):
    with TiffWriter(Path(sys.argv[1]) / name) as file:
        for level, empty in enumerate(empties):
            side = SIDE >> level
            size = f"{SIDE}x{SIDE} (128x128)" + (f" -> {side}x{side}" if level else "")
            file.write(
                tiles(side, empty),
                shape=(side, side, 3),
                dtype="uint8",
                tile=(TILE, TILE),
                compression="zlib",
                photometric="rgb",
                metadata=None,
                description=f"Aperio Image Library v1\r\n{size}|MPP = 0.5",
            )


# Tile 0 of the last level is drawn from the level above, where two of its four tiles are empty as well.
write("scattered.tif", [lambda at: at == 9, lambda at: at in (0, 5, 10), lambda at: at in (0, 3)])
write("level.tif", [lambda at: False, lambda at: True])
write("ended.tif", [lambda at: at >= 30, lambda at: False])

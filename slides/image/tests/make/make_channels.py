"""Makes OME-Zarr images with channels, focal planes and times, by zarr, and what they should show.

    make_channels.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy
import zarr

from blend import Cases, data, window

COLOURS = ["0000ff", "00ff00", "ff00ff", "ffff00", "ff8000", "00ffff", "ffffff", "ff0000"]
TYPES = {"t": "time", "c": "channel"}
AXES = "tczyx"


def omero(of):
    """DAPI in red and Cy5 in blue, and one that is not shown."""
    channels = [
        {"label": "DAPI", "color": "FF0000", "active": True, "window": {"start": 100, "end": 3000, "min": 0, "max": 4095}},
        {"label": "FITC", "color": "00FF00", "active": False, "window": {"start": 50.5, "end": 900, "min": 0, "max": 4095}},
        {"label": "Cy5", "color": "0000FF", "active": True, "window": {"start": 0, "end": 2500, "min": 0, "max": 4095}},
    ]
    return {"channels": channels, "rdefs": {"defaultZ": 1, "defaultT": 0, "model": "color"}} | of


def make(directory, name, version, values, axes, chunks, said=None, known=None, hole=None, **options):
    root = str(directory / f"{name}.zarr")
    group = zarr.open_group(store=root, mode="w", zarr_format=version)
    levels, datasets = [], []
    for level in range(2):
        # By subsampling, not averaging, so that all values fit the type.
        part = values[..., :: 2**level, :: 2**level]
        place = [part.shape[AXES.index(axis)] for axis in axes]
        shaped = part.transpose([AXES.index(axis) for axis in AXES if axis not in axes] + [AXES.index(axis) for axis in axes])
        array = zarr.create_array(
            store=root, name=str(level), shape=place, chunks=chunks, dtype=values.dtype, zarr_format=version, **options
        )
        if hole is None:
            array[...] = shaped.reshape(place)
        else:
            array[..., : hole // 2**level] = shaped.reshape(place)[..., : hole // 2**level]
        read = zarr.open_array(store=root, path=str(level), mode="r")[...]
        # Back into the order of the file's axes.
        order = [axes.index(axis) for axis in AXES if axis in axes]
        levels.append(read.transpose(order).reshape(part.shape))
        datasets.append({"path": str(level)})
    described = [{"name": axis, "type": TYPES.get(axis, "space")} for axis in axes]
    attributes = {"multiscales": [{"version": "0.4", "axes": described, "datasets": datasets}]}
    if said is not None:
        attributes["omero"] = said
    group.attrs.update({"ome": {"version": "0.5"} | attributes} if version == 3 else attributes)
    count = values.shape[1]
    if known is None:
        depth = values.shape[2]
        colours = COLOURS if count > 1 else ["ffffff"]
        known = [
            {"name": None, "color": colours[c], "window": window(levels[1][0, c, depth // 2]), "measured": True, "shown": c < 4}
            for c in range(count)
        ]
    cases = Cases(str(directory / f"{name}.zarr"), levels, known)
    cases.every()
    cases.write()


def declared(of):
    return [
        {
            "name": channel["label"],
            "color": channel["color"].lower(),
            "window": [channel["window"]["start"], channel["window"]["end"]],
            "measured": False,
            "shown": channel["active"],
        }
        for channel in of["channels"]
    ]


def main(directory):
    bytes_of = zarr.codecs.BytesCodec
    transpose = zarr.codecs.TransposeCodec
    said = omero({})
    three = data(1, (2, 3, 3, 90, 130), "u2")
    make(directory, "said", 2, three, "tczyx", [1, 1, 1, 64, 64], said, declared(said))
    make(directory, "said-new", 3, three, "tczyx", [1, 3, 2, 50, 60], said, declared(said))
    make(directory, "said-order-f", 2, three, "tczyx", [2, 3, 2, 50, 60], said, declared(said), order="F")
    # Settings for another number of channels are ignored.
    make(directory, "float", 2, data(2, (1, 5, 1, 90, 130), "f4", -3, 5), "cyx", [2, 64, 64], said)
    signed = data(3, (1, 2, 4, 90, 130), "i4", -(2**30), 2**30)
    order = transpose(order=(3, 1, 0, 2))
    make(directory, "transposed", 3, signed, "zcyx", [3, 1, 40, 70], filters=[order], serializer=bytes_of(endian="big"))
    make(directory, "shards", 3, data(4, (1, 6, 3, 90, 130), "i2", -900, 900), "czyx", [2, 1, 32, 32], shards=[4, 3, 64, 96])
    make(directory, "one", 2, data(5, (1, 1, 5, 90, 130), "u2"), "zyx", [2, 64, 64])
    make(directory, "last", 3, data(6, (1, 2, 1, 90, 130), "u1", 0, 99), "yxc", [64, 64, 2])
    for number, (kind, low, high) in enumerate([("u4", 0, 2**32 - 1), ("f8", -1e9, 1e9), ("f2", 0, 60000), ("i1", -128, 127), ("u8", 0, 2**40), ("i8", -9, 9)]):
        make(directory, kind, 2 if number % 2 else 3, data(7 + number, (1, 2, 1, 90, 130), kind, low, high), "cyx", [1, 64, 64])
    swapped = data(20, (1, 2, 1, 90, 130), ">f4", 0, 1)
    make(directory, "big", 2, swapped, "cyx", [1, 64, 64])
    strange = data(21, (1, 2, 1, 90, 130), "f4", 0, 100)
    strange[0, 0, 0, ::7, ::3] = numpy.nan
    strange[0, 1, 0, ::5, ::4] = numpy.inf
    strange[0, 1, 0, ::6, ::5] = -numpy.inf
    make(directory, "strange", 3, strange, "cyx", [1, 64, 64])
    # Missing chunks have the array's fill value.
    make(directory, "hole", 2, three[:1, :, :1], "tczyx", [1, 1, 1, 64, 32], said | {"rdefs": {}}, declared(said), hole=64, fill_value=700)


main(Path(sys.argv[1]))

"""Makes OME-Zarr images of the pixels of levels in files, with zarr.

    make_zarr.py SPECIFICATION     JSON: a list of objects with the keys that are read below
"""

import json
import sys
from pathlib import Path

import numcodecs
import numpy
import zarr

TYPES = {"t": "time", "c": "channel"}


def compressors(of):
    """Codecs under their names in numcodecs for version 2, and in Zarr's own list for version 3."""
    if of["version"] == 2:
        return numcodecs.get_codec(of["compressor"]) if of["compressor"] else None
    made = {
        "blosc": lambda options: zarr.codecs.BloscCodec(**options),
        "zstd": lambda options: zarr.codecs.ZstdCodec(**options),
        "gzip": lambda options: zarr.codecs.GzipCodec(**options),
        "crc32c": lambda options: zarr.codecs.Crc32cCodec(),
    }
    return [made[name](options) for name, options in of["compressor"]] or None


def write(of, root, name, level):
    """The pixels in the file are red, green and blue, row by row."""
    width, height = level["size"]
    pixels = numpy.fromfile(level["file"], numpy.uint8).reshape(height, width, 3)
    if of.get("grey"):
        pixels = pixels[:, :, :1]
    if of.get("only"):
        pixels = pixels[:, :, : of["only"]]
    pixels = pixels.astype(of["type"]) * of.get("times", 1) + of.get("plus", 0)
    axes = of["axes"]
    if "c" not in axes:
        pixels = pixels[:, :, 0]
    # Into the order of the axes, with length one for the other axes.
    lengths = dict(zip("yxc", pixels.shape))
    order = [axis for axis in "yxc" if axis in axes]
    pixels = pixels.transpose([order.index(axis) for axis in axes if axis in order])
    pixels = pixels.reshape([lengths.get(axis, 1) for axis in axes])
    options = {}
    if of["version"] == 3:
        if "shards" in of:
            options["shards"] = of["shards"]
        if of.get("big"):
            options["serializer"] = zarr.codecs.BytesCodec(endian="big")
    else:
        options["filters"] = None
    if "separator" in of:
        name_of_chunks = "v2" if of["version"] == 2 else "default"
        options["chunk_key_encoding"] = {"name": name_of_chunks, "separator": of["separator"]}
    array = zarr.create_array(
        store=root,
        name=name,
        shape=pixels.shape,
        chunks=of["chunks"],
        dtype=of["type"],
        compressors=compressors(of),
        fill_value=of.get("fill", 0),
        zarr_format=of["version"],
        **options,
    )
    if "from_row" in of:
        place = tuple(slice(of["from_row"], None) if axis == "y" else slice(None) for axis in axes)
        array[place] = pixels[place]
    else:
        array[...] = pixels


def image(of, root, prefix, levels):
    datasets = []
    for number, level in enumerate(levels):
        write(of, root, f"{prefix}{number}", level)
        scale = [0.5 * 2**number if axis in "xy" else 1.0 for axis in of["axes"]]
        steps = [{"type": "scale", "scale": scale}]
        datasets.append({"path": str(number), "coordinateTransformations": steps})
    axes = [{"name": axis, "type": TYPES.get(axis, "space")} for axis in of["axes"]]
    for axis in axes:
        if axis["type"] == "space":
            axis["unit"] = "micrometer"
    name = of.get("name", "slide")
    return {"multiscales": [{"version": "0.4", "name": name, "axes": axes, "datasets": datasets}]}


def make(of):
    root = of["out"]
    group = zarr.open_group(store=root, mode="w", zarr_format=of["version"])
    attributes = image(of, root, "0/" if of.get("below") else "", of["levels"])
    if "omero" in of:
        attributes["omero"] = of["omero"]
    if of["version"] == 3:
        attributes = {"ome": {"version": "0.5"} | attributes}
    if not of.get("below"):
        group.attrs.update(attributes)
        return
    group.attrs.update({"bioformats2raw.layout": 3})
    group.require_group("0").attrs.update(attributes)
    label = image(of | {"name": "label image"}, root, "1/", of["levels"][-1:])
    group.require_group("1").attrs.update(label)


for specification in json.loads(Path(sys.argv[1]).read_text()):
    make(specification)

"""Makes TIFF files of random layouts.

    make_layouts.py DIRECTORY SEED COUNT

For each file NAME.tif there is NAME.json, which says what the layout is and which range of values is black to white, and
NAME.rgb, the pixels that a viewer should see: those that tifffile reads, on that range.
"""

import json
import random
import sys
from pathlib import Path

import imagecodecs
import numpy
from tifffile import TiffFile, imwrite

LOSSLESS = ["none", "none", "lzw", "zlib", "packbits", "zstd", "lzma", "webp"]
NAMES = {"none": None, "zlib": "adobe_deflate"}
TYPES = ["u1", "u1", "u1", "u2", "u2", "i1", "i2", "u4", "i4", "u8", "f2", "f4", "f8"]


def draw(chance):
    of = {
        "type": chance.choice(TYPES),
        "photometric": chance.choice(["minisblack", "miniswhite", "rgb", "rgb", "palette", "separated"]),
        "compression": chance.choice(LOSSLESS),
        "width": chance.randint(1, 150),
        "height": chance.randint(1, 150),
        "byteorder": chance.choice("<>"),
        "bigtiff": chance.random() < 0.3,
        "extra": chance.choice([0, 0, 0, 1, 2]),
        "planar": chance.choice(["contig", "contig", "separate"]),
        "fill": chance.choice([1, 1, 1, 2]),
        "predictor": chance.choice([1, 2, 2, 3]),
    }
    if chance.random() < 0.6:
        of["tile"] = (16 * chance.randint(1, 6), 16 * chance.randint(1, 6))
    else:
        of["rows"] = chance.randint(1, 160)
    if of["photometric"] in ("palette", "separated"):
        of["type"] = chance.choice(["u1", "u2"]) if of["photometric"] == "palette" else "u1"
        of["extra"] = 0
    if of["photometric"] == "palette":
        of["predictor"] = 1
    if of["photometric"] == "miniswhite":
        of["type"] = chance.choice(["u1", "u2"])
    if of["compression"] == "webp":
        of.update(type="u1", photometric="rgb", planar="contig", extra=chance.choice([0, 1]), fill=1)
    if of["compression"] not in ("lzw", "zlib", "zstd", "lzma"):
        of["predictor"] = 1
    if of["predictor"] == 3 and of["type"][0] != "f" or of["predictor"] == 2 and of["type"][0] == "f":
        of["predictor"] = 1
    return of


def samples(of):
    return {"rgb": 3, "separated": 4}.get(of["photometric"], 1) + of["extra"]


def pixels(of, chance):
    """Smooth with some noise over the whole range of the type, so that each codec gets runs and literals."""
    generator = numpy.random.default_rng(chance.randint(0, 1 << 30))
    shape = (of["height"], of["width"], samples(of))
    down, across, sample = numpy.indices(shape)
    values = (across // 3 / 50 + down / 150 + sample / 7) % 1.0
    noisy = generator.random(shape) < 0.2
    values = numpy.where(noisy, generator.random(shape), values)
    kind = numpy.dtype(of["type"])
    if kind.kind == "f":
        return (values * 900 - 300).astype(kind)
    info = numpy.iinfo(kind)
    # A float cannot represent 64 bits: the largest number would be too large.
    return numpy.clip(values * (float(info.max) - info.min) + info.min, info.min, float(info.max) * 0.999999).astype(kind)


def write(path, of, chance):
    data = pixels(of, chance)
    window = None
    if of["type"] not in ("u1", "u2", "i1", "i2"):
        shown = data[..., : 3 if of["photometric"] == "rgb" else 1]
        window = (float(shown.min()), float(shown.max()))
    options = {"photometric": of["photometric"], "byteorder": of["byteorder"], "bigtiff": of["bigtiff"], "metadata": None}
    options["compression"] = NAMES.get(of["compression"], of["compression"])
    if of["compression"] == "webp":
        options["compressionargs"] = {"lossless": True}
    if of["predictor"] != 1:
        options["predictor"] = of["predictor"]
    if "tile" in of:
        options["tile"] = of["tile"]
    else:
        options["rowsperstrip"] = of["rows"]
    if of["photometric"] == "palette":
        bits = data.dtype.itemsize * 8
        options["colormap"] = numpy.random.default_rng(7).integers(0, 1 << 16, (3, 1 << bits), dtype="u2")
    if of["extra"]:
        options["extrasamples"] = ["unspecified"] * of["extra"]
    if data.shape[-1] == 1:
        data = data[..., 0]
    else:
        options["planarconfig"] = of["planar"]
        if of["planar"] == "separate":
            data = numpy.moveaxis(data, -1, 0)
    if of["fill"] == 2:
        # tifffile does not write this tag: another one is written, and its number replaced.
        options["extratags"] = [(265, "H", 1, 2, True)]
    imwrite(path, data, **options)
    if of["fill"] == 2:
        with TiffFile(path, mode="r+b") as file:
            page = file.pages[0]
            for at, length in zip(page.dataoffsets, page.databytecounts):
                file.filehandle.seek(at)
                stored = imagecodecs.bitorder_encode(file.filehandle.read(length))
                file.filehandle.seek(at)
                file.filehandle.write(stored)
            file.filehandle.seek(page.tags[265].offset)
            file.filehandle.write((266).to_bytes(2, "big" if of["byteorder"] == ">" else "little"))
    return window


def seen(path, of, window):
    """The pixels that a viewer should see."""
    with TiffFile(path) as file:
        page = file.pages[0]
        data = page.asarray()
        colours = page.colormap
    if data.ndim == 2:
        data = data[..., None]
    elif of["planar"] == "separate" and of["photometric"] != "palette":
        data = numpy.moveaxis(data, 0, -1)
    if of["photometric"] == "palette":
        return (colours[:, data[..., 0]] >> 8).astype("u1").transpose(1, 2, 0)
    kind = data.dtype
    if window is not None:
        low, high = window
        scaled = (numpy.clip(data.astype("f8"), low, high) - low) * 255 / ((high - low) or 1)
        data = numpy.floor(scaled + 0.5).astype("u1")
    elif kind.kind == "i":
        data = ((data.astype("i4") - numpy.iinfo(kind).min) >> (8 * (kind.itemsize - 1))).astype("u1")
    else:
        data = (data >> (8 * (kind.itemsize - 1))).astype("u1")
    if of["photometric"] == "separated":
        inks = 255 - data.astype("u4")
        return ((inks[..., :3] * inks[..., 3:4] + 127) // 255).astype("u1")
    if of["photometric"] == "miniswhite":
        data = 255 - data
    return data[..., :3] if of["photometric"] == "rgb" else data[..., :1].repeat(3, axis=-1)


if __name__ == "__main__":
    directory, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        of = draw(chance)
        path = directory / f"{number}.tif"
        window = write(path, of, chance)
        (directory / f"{number}.rgb").write_bytes(numpy.ascontiguousarray(seen(path, of, window)).tobytes())
        (directory / f"{number}.json").write_text(json.dumps({**of, "window": window}))

"""Makes slides whose tiles are JPEG 2000, by OpenJPEG as imagecodecs has it.

    make_jpeg2000.py DIRECTORY

For each file NAME.tif or NAME.svs there is NAME.rgb, the pixels that a viewer should see: those that OpenJPEG decodes. For
each directory NAME of frames for DICOM there is the same, and NAME.json with what the dataset says of them.
"""

import json
import struct
import sys
from pathlib import Path

import numpy
from imagecodecs import jpeg2k_decode, jpeg2k_encode
from tifffile import TiffFile, TiffWriter

SIDE = 64
PLAIN = {"level": 0, "resolutions": 3}
COMMENT = b"\xff\x64"


def picture(samples, bits=8, seed=1):
    """Waves with noise, 128 x 128."""
    down, across = numpy.mgrid[0:128, 0:128]
    noise = numpy.random.default_rng(seed).integers(0, 24, (128, 128, samples))
    waves = [numpy.sin(across * down / (900 + 400 * of) + of) for of in range(samples)]
    found = (128 + 100 * numpy.stack(waves, axis=-1) + noise).clip(0, 255) / 255 * (2**bits - 1)
    found = found.astype("uint8" if bits == 8 else "uint16")
    return found if samples > 1 else found[..., 0]


def tiles(whole):
    return [whole[y : y + SIDE, x : x + SIDE] for y in (0, SIDE) for x in (0, SIDE)]


def joined(four):
    rows = [numpy.concatenate(four[at : at + 2], axis=1) for at in (0, 2)]
    return numpy.concatenate(rows, axis=0)


def encode(tile, **of):
    return jpeg2k_encode(numpy.ascontiguousarray(tile), codecformat="j2k", **{**PLAIN, **of})


def split(stream):
    """The main header without SIZ and comments, and the data of the only part, of a codestream with one tile."""
    at = 4 + int.from_bytes(stream[4:6], "big")
    header = b""
    while stream[at : at + 2] != b"\xff\x90":
        end = at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
        if stream[at : at + 2] != COMMENT:
            header += stream[at:end]
        at = end
    assert stream[at + 12 : at + 14] == b"\xff\x93" and stream.endswith(b"\xff\xd9")
    return header, stream[at + 14 : -2]


def together(planes, steps, **of):
    """A codestream with these components in turn, each with its number of pixels per sample across and down."""
    parts = [split(encode(plane, **of)) for plane in planes]
    header = bytearray(parts[0][0])
    assert all(other == header for other, _ in parts) and header[:2] == b"\xff\x52"
    # Progression by component.
    header[5] = 4
    data = b"".join(data for _, data in parts)
    height, width = planes[0].shape
    sizes = struct.pack(">HIIIIIIIIH", 0, width, height, 0, 0, width, height, 0, 0, len(planes))
    sizes += b"".join(bytes([7, *step]) for step in steps)
    size = b"\xff\x51" + struct.pack(">H", 2 + len(sizes)) + sizes
    part = b"\xff\x90\x00\x0a\x00\x00" + struct.pack(">I", 14 + len(data)) + b"\x00\x01\xff\x93"
    return b"\xff\x4f" + size + bytes(header) + part + data + b"\xff\xd9"


def rgb(luminance, blue, red):
    """ITU-T T.871."""
    luminance, blue, red = (plane.astype(float) for plane in (luminance, blue - 128.0, red - 128.0))
    found = [luminance + 1.402 * red, luminance - 0.344136 * blue - 0.714136 * red, luminance + 1.772 * blue]
    return numpy.stack(found, axis=-1).clip(0, 255).round().astype("uint8")


def subsampled(whole, step):
    """Streams of tiles whose colour differences cover `step` pixels, and the pixels they show."""
    across, down = step
    streams, shown = [], []
    for tile in tiles(whole):
        planes = [tile[..., 0], tile[::down, ::across, 1], tile[::down, ::across, 2]]
        streams.append(together(planes, [(1, 1), step, step]))
        wide = [planes[0], *(plane.repeat(across, axis=1).repeat(down, axis=0) for plane in planes[1:])]
        shown.append(rgb(*wide))
    return streams, joined(shown)


def shown(whole, inverted=False, bits=None):
    if whole.dtype == numpy.uint16:
        whole = whole >> 8 if bits is None else (whole * 255.0 / (2**bits - 1) + 0.5)
    whole = whole.astype("uint8")
    whole = 255 - whole if inverted else whole
    return whole if whole.ndim == 3 else numpy.stack([whole] * 3, axis=-1)


directory = Path(sys.argv[1])


def write(name, streams, pixels, compression, like, photometric="rgb", about=None, byteorder="<", tag=None):
    path = directory / name
    path.with_suffix(".rgb").write_bytes(pixels.tobytes())
    options = {"photometric": photometric, "tile": (SIDE, SIDE), "metadata": None, "compression": "zlib"}
    with TiffWriter(path, byteorder=byteorder) as file:
        file.write(iter(streams), shape=like.shape, dtype=like.dtype, description=about, **options)
    # tifffile writes these compressions only if it can encode them itself.
    with TiffFile(path, mode="r+b") as file:
        file.pages[0].tags["Compression"].overwrite(compression)
        if tag is not None:
            file.pages[0].tags["PhotometricInterpretation"].overwrite(tag)


def frames(name, streams, pixels, **of):
    place = directory / name
    place.mkdir()
    for number, stream in enumerate(streams):
        (place / f"{number}").write_bytes(stream)
    (directory / f"{name}.rgb").write_bytes(pixels.tobytes())
    (directory / f"{name}.json").write_text(json.dumps(of))


def all_of(whole, **of):
    streams = [encode(tile, **of) for tile in tiles(whole)]
    return streams, joined([jpeg2k_decode(stream) for stream in streams])


colours, grey, deep = picture(3), picture(1), picture(1, 16)
twelve = deep >> 4
ABOUT = "Aperio Image Library\r\n128x128 (64x64) J2K|AppMag = 20|MPP = 0.5"

streams, decoded = all_of(colours)
assert (decoded == colours).all()
write("exact.tif", streams, colours, 34712, colours)
write("exact.svs", streams, colours, 33005, colours, about=ABOUT)
write("big-tag.svs", streams, colours, 33005, colours, about=ABOUT, tag=6)
frames("rct", streams, colours, photometric="YBR_RCT", samples=3)
frames("named-rgb", streams, colours, photometric="RGB", samples=3)
# The end is missing; or the length of the part is missing, and there is an extra byte.
write("endless.tif", [stream[:-2] for stream in streams], colours, 33004, colours)
without = [stream.replace(struct.pack(">I", len(split(stream)[1]) + 14), bytes(4), 1) + b"\0" for stream in streams]
write("open.tif", without, colours, 34712, colours)
plain, _ = all_of(colours, mct=False)
write("plain.tif", plain, colours, 33003, colours)
frames("no-transform", plain, colours, photometric="RGB", samples=3)
write("flat.tif", all_of(colours, resolutions=1)[0], colours, 33005, colours)
lossy, decoded = all_of(colours, level=38, reversible=False)
assert 0 < numpy.abs(decoded.astype(int) - colours).max()
write("lossy.tif", lossy, decoded, 34712, colours)
frames("ict", lossy, decoded, photometric="YBR_ICT", samples=3)
write("ycc.svs", plain, rgb(*numpy.moveaxis(colours, 2, 0)), 33003, colours, about=ABOUT)
write("ycc.tif", plain, rgb(*numpy.moveaxis(colours, 2, 0)), 34712, colours, tag=6)
frames("ycc", plain, rgb(*numpy.moveaxis(colours, 2, 0)), photometric="YBR_ICT", samples=3)
frames("full", plain, rgb(*numpy.moveaxis(colours, 2, 0)), photometric="YBR_FULL", samples=3)
for name, step in (("422", (2, 1)), ("420", (2, 2))):
    halves, pixels = subsampled(colours, step)
    write(f"ycc-{name}.svs", halves, pixels, 33003, colours, about=ABOUT, tag=6)
    frames(f"ycc-{name}", halves, pixels, photometric="YBR_ICT", samples=3)
write("subsampled-rgb.tif", halves, colours, 34712, colours)
write("subsampled-rgb.svs", halves, colours, 33005, colours, about=ABOUT)

streams, decoded = all_of(grey)
assert (decoded == grey).all()
write("grey.tif", streams, shown(grey), 34712, grey, "minisblack")
write("inverted.tif", streams, shown(grey, True), 34712, grey, "miniswhite")
frames("grey", streams, shown(grey), photometric="MONOCHROME2", samples=1)
frames("inverted", streams, shown(grey, True), photometric="MONOCHROME1", samples=1)
write("grey-as-rgb.tif", streams, colours, 34712, colours)
streams, decoded = all_of(deep)
assert (decoded == deep).all()
for name, byteorder in (("deep", "<"), ("deep-big", ">")):
    write(f"{name}.tif", streams, shown(deep), 34712, deep, "minisblack", byteorder=byteorder)
frames("deep", streams, shown(deep), photometric="MONOCHROME2", samples=1, bits=16)
write("deep-as-bytes.tif", streams, shown(grey), 34712, grey, "minisblack")
streams, decoded = all_of(twelve, bitspersample=12)
assert (decoded == twelve).all()
frames("twelve", streams, shown(twelve, bits=12), photometric="MONOCHROME2", samples=1, bits=16, stored=12)
wide = picture(3, 16)
write("wide.tif", all_of(wide)[0], shown(wide), 34712, wide)

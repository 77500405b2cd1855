"""Makes TIFF files with channels, focal planes and times, by tifffile, and what they should show.

    make_stacks.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy
from tifffile import TiffFile, TiffWriter, imwrite

from blend import Cases, data, window

COLOURS = ["0000ff", "00ff00", "ff00ff", "ffff00", "ff8000", "00ffff", "ffffff", "ff0000"]
IMAGEJ = ["ff0000", "00ff00", "0000ff", "ffffff", "00ffff", "ff00ff", "ffff00"]
AXES = "TCZYX"


def number(colour):
    """A signed integer as in OME-XML: red, green, blue and opacity."""
    return int.from_bytes(bytes.fromhex(colour + "ff"), "big", signed=True)


def read(path, shape):
    """The levels, in the order of all axes; identified by names, not lengths."""
    levels = []
    with TiffFile(path) as file:
        for level in file.series[0].levels:
            values, axes = level.asarray(), level.axes.replace("S", "C").replace("Q", "Z").replace("I", "Z")
            values = values.transpose([axes.index(axis) for axis in AXES if axis in axes])
            levels.append(values.reshape(*shape[:3], *values.shape[-2:]))
    return levels


def known(levels, names, colours, said=None):
    depth, count = levels[0].shape[2], levels[0].shape[1]
    return [
        {
            "name": names[c] if names else None,
            "color": colours[c],
            "window": said[c] if said else window(levels[-1][0, c, depth // 2]),
            "measured": not said,
            "shown": c < 4,
        }
        for c in range(count)
    ]


def ome(directory, name, values, order, names=None, colours=None, levels=2, tile=(64, 64), **options):
    path = str(directory / f"{name}.ome.tif")
    channel = ({"Name": names} if names else {}) | ({"Color": [number(colour) for colour in colours]} if colours else {})
    metadata = {"axes": order} | ({"Channel": channel} if channel else {})
    with TiffWriter(path, ome=True, bigtiff=options.pop("bigtiff", False), byteorder=options.pop("byteorder", "<")) as file:
        for level in range(levels):
            part = values[..., :: 2**level, :: 2**level]
            shaped = part.transpose([AXES.index("C" if axis == "S" else axis) for axis in AXES.replace("C", "S" if "S" in order else "C") if axis not in order] + [AXES.index("C" if axis == "S" else axis) for axis in order])
            shaped = shaped.reshape(shaped.shape[len(shaped.shape) - len(order) :])
            more = {"metadata": metadata, "subifds": levels - 1} if level == 0 else {"metadata": None, "subfiletype": 1}
            file.write(shaped, tile=tile, photometric="minisblack", **more, **options)
    found = read(path, values.shape)
    count = values.shape[1]
    usual = COLOURS if count > 1 else ["ffffff"]
    cases = Cases(path, found, known(found, names, colours or usual))
    cases.every()
    cases.write()


def imagej(directory, name, values, colours=None, ranges=None, said=None, **options):
    path = str(directory / f"{name}.tif")
    metadata = {"axes": "TZCYX", "mode": "composite"} | options
    if colours:
        ramp = numpy.arange(256)[None]
        metadata["LUTs"] = [(numpy.array(list(bytes.fromhex(colour)))[:, None] * ramp // 255).astype("u1") for colour in colours]
    if ranges:
        metadata["Ranges"] = tuple(value for pair in ranges for value in pair)
    imwrite(path, values.transpose(0, 2, 1, 3, 4), imagej=True, metadata=metadata)
    found = read(path, values.shape)
    usual = IMAGEJ if values.shape[1] > 1 else ["ffffff"]
    cases = Cases(path, found, known(found, None, colours or usual, ranges or said))
    cases.every()
    cases.write()


def qptiff(directory, name, values, names, colours, swap=False):
    """As PerkinElmer and Akoya write it; with `swap`, a smaller level in another order."""
    path = str(directory / f"{name}.tif")

    def told(kind, channel=None):
        more = ""
        if channel is not None:
            color = ",".join(str(part) for part in bytes.fromhex(colours[channel]))
            more = f"<Name>{names[channel]}</Name><Color>{color}</Color><Responsivity><Filter><Name>x</Name></Filter></Responsivity>"
        text = f"<?xml version='1.0' encoding='utf-8'?><PerkinElmer-QPI-ImageDescription><ImageType>{kind}</ImageType>{more}"
        return f"{text}</PerkinElmer-QPI-ImageDescription>"

    small = numpy.zeros((40, 60, 3), "u1")
    options = {"metadata": None, "photometric": "minisblack", "tile": (64, 64), "compression": "lzw"}
    order = range(values.shape[1])
    with TiffWriter(path) as file:
        for channel in order:
            file.write(values[0, channel, 0], description=told("FullResolution", channel), resolution=(20000, 20000), resolutionunit=3, **options)
        file.write(small, metadata=None, photometric="rgb", description=told("Thumbnail"))
        for channel in reversed(order) if swap else order:
            half = values[0, channel, 0, ::2, ::2]
            file.write(half, subfiletype=1, description=told("ReducedResolution", channel), **options)
        file.write(small + 9, metadata=None, photometric="rgb", description=told("Overview"))
        file.write(small + 5, metadata=None, photometric="rgb", description=told("Label"))
    with TiffFile(path) as file:
        count = len(order)
        pages = [page.asarray() for page in file.pages]
    levels = [pages[:count]] if swap else [pages[:count], pages[count + 1 : 2 * count + 1]]
    levels = [numpy.stack(level)[None, :, None] for level in levels]
    cases = Cases(path, levels, known(levels, names, colours))
    cases.every()
    cases.write()


def plain(path, values, metadata, photometric, **options):
    """A file without channels: the samples of pixels are colours, or grey."""
    options["photometric"] = photometric
    written = values[..., 0] if values.shape[-1] == 1 else values
    imwrite(path, written, metadata=metadata, **options)
    with TiffFile(path) as file:
        found = file.series[0].asarray().reshape(values.shape)
    if options["photometric"] == "miniswhite":
        found = 255 - found
    while found.ndim < 5:
        found = found[None]
    cases = Cases(path, [found], [])
    cases.colours()


def main(directory):
    four = data(1, (2, 4, 3, 90, 130), "u2")
    stains = ["DAPI", "FITC", "Cy3 <&>", "Cy5"]
    colours = ["ff0000", "00ff00", "ffff00", "0000ff"]
    ome(directory, "tczyx", four, "TCZYX", stains, colours)
    ome(directory, "tzcyx", four, "TZCYX", stains, colours, byteorder=">", bigtiff=True, compression="zlib", predictor=True)
    ome(directory, "ctzyx", four, "CTZYX", stains, compression="lzw")
    ome(directory, "zctyx", four, "ZCTYX")
    ome(directory, "six", data(2, (1, 6, 1, 90, 130), "f4", -1, 9), "CYX", compression="zlib", predictor=True)
    ome(directory, "one", data(3, (1, 1, 1, 90, 130), "u2"), "YX")
    ome(directory, "signed", data(4, (1, 2, 1, 90, 130), "i2", -500, 500), "CYX", tile=(32, 128))
    ome(directory, "double", data(5, (1, 2, 1, 90, 130), "f8", -1e9, 1e9), "CYX")
    ome(directory, "long", data(6, (1, 2, 1, 90, 130), "u4", 0, 4e9), "CYX")
    # Channels in the samples of a pixel: interleaved, and in separate planes.
    ome(directory, "beside", data(7, (1, 4, 3, 90, 130), "u2"), "ZYXS", planarconfig="contig")
    ome(directory, "apart", data(8, (1, 5, 1, 90, 130), "u2"), "SYX", planarconfig="separate", compression="zlib")
    ome(directory, "strips", data(9, (1, 3, 1, 90, 130), "u1", 0, 200), "CYX", tile=None, rowsperstrip=40)

    three = data(11, (2, 3, 4, 90, 130), "u2")
    imagej(directory, "ij-plain", three)
    ranges = [[0, 3000], [100, 900], [50.5, 2000]]
    imagej(directory, "ij-said", three, ["ff00ff", "00ffff", "102030"], ranges)
    imagej(directory, "ij-one", data(12, (1, 1, 3, 90, 130), "f4", 0, 1), said=[[0.25, 0.75]], min=0.25, max=0.75)
    imagej(directory, "ij-bytes", data(13, (1, 2, 1, 90, 130), "u1", 0, 255))

    # More planes than a slide has directories.
    many = data(17, (30, 2, 20, 24, 16), "u2")
    ome(directory, "many", many, "TZCYX", levels=1, tile=None)

    five = data(16, (1, 5, 1, 90, 130), "u2")
    stains = ["DAPI", "CD8 (Opal 520)", "PanCK", "Ki67", "Autofluorescence"]
    colours = ["0000ff", "00ff00", "ff0000", "ffff00", "808080"]
    qptiff(directory, "qptiff", five, stains, colours)
    qptiff(directory, "qptiff-swapped", five, stains, colours, swap=True)

    rgb = data(15, (1, 3, 4, 90, 130), "u1", 0, 255)[0].transpose(1, 2, 3, 0)
    plain(str(directory / "rgb.ome.tif"), rgb, {"axes": "ZYXS"}, "rgb", ome=True, tile=(64, 64))
    plain(str(directory / "rgb-ij.tif"), rgb, {"axes": "ZYXS"}, "rgb", imagej=True)
    grey = rgb[..., :1]
    plain(str(directory / "grey.ome.tif"), grey, {"axes": "ZYX"}, "minisblack", ome=True, tile=(64, 64))
    plain(str(directory / "white.ome.tif"), grey, {"axes": "ZYX"}, "miniswhite", ome=True, tile=(64, 64))
    plain(str(directory / "white-one.ome.tif"), grey[:1], {"axes": "ZYX"}, "miniswhite", ome=True)
    plain(str(directory / "grey-ij.tif"), grey, {"axes": "ZYX"}, "minisblack", imagej=True)


main(Path(sys.argv[1]))

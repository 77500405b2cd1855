"""Reads images of a corpus by tifffile, pydicom and zarr, and writes how slides/docs/slides.md says that they are shown.

    read_corpus.py CORPUS DIRECTORY

DIRECTORY/index.json has, for each image, whether its compression loses something, and for each level the size and the file of its
pixels; or the reason why there is nothing to compare with.
"""

import json
import math
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy
import zarr
from imagecodecs import jpeg2k_decode, jpeg8_decode
from pydicom import dcmread
from pydicom.encaps import generate_frames
from tifffile import TiffFile

from blend import blend, window

COLOURS = ["0000ff", "00ff00", "ff00ff", "ffff00", "ff8000", "00ffff", "ffffff", "ff0000"]
IMAGEJ = ["ff0000", "00ff00", "0000ff", "ffffff", "00ffff", "ff00ff", "ffff00"]
SLIDE = "1.2.840.10008.5.1.4.1.1.77.1.6"
WORDS = ["label", "barcode", "macro", "overview", "thumbnail", "mask"]
# TIFF compressions: JPEG, WebP, and JPEG 2000, which may be lossless.
LOSSY = [6, 7, 50001, 33003, 33005, 34712]


class Unread(Exception):
    """The corpus has an image that is not modelled here."""


def scaled(values, bits, limits=None):
    """Samples as bytes: the upper 8 bits, or scaled from the smallest to the largest value."""
    kind = values.dtype.kind
    if kind == "b":
        return values.astype("u1") * 255
    if kind == "u" and bits < 8:
        return numpy.floor(values * 255.0 / (2**bits - 1) + 0.5).astype("u1")
    if kind in "ui" and bits in (8, 16):
        lifted = values.astype("i8") + (2 ** (bits - 1) if kind == "i" else 0)
        return (lifted >> (bits - 8)).astype("u1")
    if kind not in "uif" or bits not in (16, 32, 64):
        raise Unread(f"samples {values.dtype} of {bits} bits")
    black, white = limits
    values = numpy.clip(values.astype("f8"), black, white)
    return numpy.nan_to_num(numpy.floor((values - black) * 255.0 / (white - black) + 0.5)).astype("u1")


def extremes(page, values):
    """The values shown as black and white."""
    said = [page.tags.valueof(tag) for tag in (340, 341)]
    if None not in said:
        said = [float(numpy.ravel(of)[0]) for of in said]
        if said[0] < said[1]:
            return said
    finite = values[numpy.isfinite(values)].astype("f8")
    if not finite.size:
        return [0.0, 1.0]
    black, white = float(finite.min()), float(finite.max())
    return [black, white if white > black else black + max(abs(black), 1.0)]


def samples(page):
    """Rows, columns and samples of a page as they are stored."""
    if isinstance(page.planarconfig, bytes):
        return tiles_of_jpeg(page)
    if math.prod(page.shaped) > 1 << 30:
        raise Unread("more samples than any image of the corpus has")
    values = page.asarray(squeeze=False)
    apart, depth, height, width, beside = values.shape
    if depth > 1:
        raise Unread("a volume in one page")
    return values[:, 0].transpose(1, 2, 0, 3).reshape(height, width, apart * beside)


def tiles_of_jpeg(page):
    """A page whose PlanarConfiguration has a type that tifffile reads as text."""
    values = numpy.zeros((page.imagelength, page.imagewidth, 3), "u1")
    across = math.ceil(page.imagewidth / page.tilewidth)
    for number, (at, length) in enumerate(zip(page.dataoffsets, page.databytecounts)):
        page.parent.filehandle.seek(at)
        tile = jpeg8_decode(page.parent.filehandle.read(length), tables=page.jpegtables, colorspace="YCBCR", outcolorspace="RGB")
        part = values[number // across * page.tilelength :, number % across * page.tilewidth :][: page.tilelength, : page.tilewidth]
        part[:] = tile[: part.shape[0], : part.shape[1]]
    return values


def colours(page, limits=None):
    """The pixels of a page without channels, and the values shown as black and white."""
    values, bits = samples(page), page.bitspersample
    photometric, compression = int(page.photometric), int(page.compression)
    if photometric == 3:
        table = page.colormap
        table = table >> 8 if table.max() > 255 else table
        return table.T[values[..., 0].astype("u2")].astype("u1"), None
    count = {0: 1, 1: 1, 2: 3, 5: 4, 6: 3}.get(photometric)
    if not count or values.shape[2] < count:
        raise Unread(f"photometric interpretation {photometric} of {values.shape[2]} samples")
    values = values[..., :count]
    if values.dtype.kind == "c":
        raise Unread("complex numbers")
    if limits is None and (values.dtype.kind == "f" or bits > 16):
        limits = extremes(page, values)
    values = scaled(values, bits, limits)
    if photometric == 0:
        values = 255 - values
    elif photometric == 5:
        paper = 255 - values.astype("i4")
        values = ((paper[..., :3] * paper[..., 3:] + 127) // 255).astype("u1")
    elif photometric == 6 and compression not in LOSSY:
        raise Unread("luminance and differences of colour without JPEG")
    return numpy.broadcast_to(values, values.shape[:2] + (3,)), limits


def word(text):
    if text.startswith("Aperio"):
        text = (text.splitlines()[1:2] or [""])[0].split(" ")[0]
    elif len(text) > 1024:
        return None
    return next((word for word in WORDS if word in text.lower()), None)


def kind(page):
    old = page.tags.valueof(255)
    return int(page.tags.valueof(254, 1 if old == 2 else 0))


def common(page):
    tags = [(258, 1), (259, 1), (262, 1), (277, 1), (284, 1), (339, 1)]
    return [sorted(set(numpy.ravel(page.tags.valueof(tag, default)).tolist())) for tag, default in tags]


def is_smaller(main, page):
    """True if one factor for both sides gives the size of a page, up to a rounding error of one pixel."""
    if page.imagewidth >= main.imagewidth:
        return False
    return any(
        abs(main.imagewidth / factor - page.imagewidth) <= 1 and abs(main.imagelength / factor - page.imagelength) <= 1
        for factor in range(2, main.imagewidth + 1)
    )


def is_level(main, page, is_marked):
    return (
        (is_marked or kind(page) & ~2 == 1)
        and not kind(page) & 4
        and (page.description == main.description or not word(page.description))
        and (page.is_tiled or not main.is_tiled)
        and common(page) == common(main)
        and is_smaller(main, page)
    )


def below(file, page):
    return list(page.pages) if page.subifds else []


def chain(file):
    pages, seen = [], set()
    while True:
        try:
            page = file.pages[len(pages)].aspage()
        except IndexError:
            return pages
        if page.offset in seen:
            raise Unread("a chain of pages without end")
        seen.add(page.offset)
        pages.append(page)


def pyramid(file, is_marked):
    """The slide and its levels among pages; `is_marked` tells what besides its kind makes a page a level."""
    pages = chain(file)
    shown = [page for page in pages if not kind(page) & 4]
    if not shown:
        raise Unread("nothing but masks")
    key = lambda page: (kind(page) & ~2 != 1, not word(page.description), page.is_tiled, page.imagewidth * page.imagelength)
    main = max(shown, key=key)
    others = [page for page in pages + below(file, main) if page is not main]
    levels = [page for page in others if is_level(main, page.aspage(), is_marked(page))]
    levels.sort(key=lambda page: -page.imagewidth)
    first, limits = colours(main)
    return [first] + [colours(page, limits)[0] for page in levels]


def stack(levels, colour, windows, is_shown=None, plane=None):
    """Channels blended; `levels` are in the order t, c, z, y, x."""
    times, count, depth = levels[0].shape[:3]
    z, t = plane or (depth // 2, 0)
    shown = [c for c in range(count) if (is_shown[c] if is_shown else c < 4)]
    layers = [[c, colour[c], windows[c] or measured(levels[-1][t, c, z])] for c in shown]
    return [blend([level[t, c, z] for c in range(count)], layers) for level in levels]


def measured(values):
    black, white = window(values)
    return [black, white if white > black else black + max(abs(black), 1.0)]


def ordered(level):
    """An array of a series in the order t, c, z, y, x."""
    axes, values = level.axes.replace("I", "Z").replace("Q", "Z"), level.asarray()
    if set(axes) - set("TCZYXS"):
        raise Unread(f"axes {axes}")
    if "S" in axes:
        raise Unread("samples that are channels")
    for axis in "TCZ":
        if axis not in axes:
            values, axes = values[None], axis + axes
    return values.transpose([axes.index(axis) for axis in "TCZYX"])


def planes_of(file, series, names, colour, windows):
    page = series.pages[0].aspage()
    if int(page.photometric) != 1:
        index = [0] * (len(series.shape) - (3 if "S" in series.axes else 2))
        if "Z" in series.axes:
            index[series.axes.index("Z")] = series.shape[series.axes.index("Z")] // 2
        at = int(numpy.ravel_multi_index(index, series.shape[: len(index)])) if index else 0
        return [colours(series.pages[at].aspage())[0]]
    levels = [ordered(level) for level in series.levels]
    count, depth = levels[0].shape[1:3]
    plain = windows[0] is None or levels[0].dtype == "u1" and list(windows[0]) == [0, 255]
    if count == 1 and levels[0].dtype.kind == "u" and page.bitspersample <= 8 and plain and colour[0] == "ffffff":
        return [numpy.stack([scaled(level[0, 0, depth // 2], page.bitspersample)] * 3, -1) for level in levels]
    return stack(levels, colour, windows)


def imagej(file):
    said = file.imagej_metadata
    series = file.series[0]
    count = said.get("channels", 1)
    colour = ["ffffff"] if count == 1 else [IMAGEJ[c % len(IMAGEJ)] if c < len(IMAGEJ) else COLOURS[c % len(COLOURS)] for c in range(count)]
    for c, table in enumerate(said.get("LUTs", [])):
        if c < count and table[:, 255].any():
            colour[c] = bytes(table[:, 255].tolist()).hex()
    windows = [None] * count
    if count == 1 and "min" in said and "max" in said:
        windows = [[said["min"], said["max"]]]
    ranges = said.get("Ranges")
    if ranges:
        windows = [list(ranges[2 * c : 2 * c + 2]) for c in range(count)]
    if series.dtype == "u1":
        windows = [None if of and list(of) == [0, 255] else of for of in windows]
    if count == said.get("slices", 1) == said.get("frames", 1) == 1:
        page = file.pages[0]
        if int(page.photometric) != 1 or page.bitspersample <= 8 and windows[0] is None and colour[0] == "ffffff":
            return pyramid(file, lambda page: False)
    return planes_of(file, series, None, colour, windows)


def ome(file):
    series = max(file.series, key=lambda series: (not word(series.name), series.shape[-1] * series.shape[-2]))
    root = xml.fromstring(file.ome_metadata)
    space = root.tag.split("}")[0] + "}"
    channels = root.find(f".//{space}Pixels").findall(f"{space}Channel")
    count = series.shape[series.axes.index("C")] if "C" in series.axes else 1
    colour = ["ffffff"] if count == 1 else [COLOURS[c % len(COLOURS)] for c in range(count)]
    for c, of in enumerate(channels[:count]):
        if of.get("Color") and int(of.get("Color")) & 0xFFFFFF00:
            colour[c] = f"{int(of.get('Color')) & 0xFFFFFFFF:08x}"[:6]
    return planes_of(file, series, None, colour, [None] * count)


def tiff(path):
    with TiffFile(path) as file:
        first = file.pages[0]
        lossy = int(first.compression) in LOSSY
        text = first.description
        if text.startswith("<") and "<OME" in text[:4096]:
            return ome(file), lossy
        if text.startswith("ImageJ="):
            return imagej(file), lossy
        is_line = lambda page: (page.description.splitlines()[1:2] or [""])[0][:1].isdigit()
        aperio = lambda page: page.description.startswith("Aperio") and is_line(page)
        return pyramid(file, aperio if text.startswith("Aperio") else lambda page: False), lossy


def dicom(path):
    first = dcmread(path)
    if first.get("SOPClassUID") != SLIDE:
        raise Unread("not a slide")
    files = [dcmread(other) for other in sorted(path.parent.glob("*.dcm"))]
    files = [of for of in files if of.get("SeriesInstanceUID") == first.SeriesInstanceUID and of.ImageType[2] == "VOLUME"]
    files.sort(key=lambda of: -of.TotalPixelMatrixColumns)
    lossy = any(of.file_meta.TransferSyntaxUID.name.startswith("JPEG") for of in files)
    return [assembled(of) for of in files or [first]], lossy


def assembled(of):
    count = int(of.get("NumberOfFrames", 1))
    if "JPEG 2000" in of.file_meta.TransferSyntaxUID.name:
        frames = numpy.stack([jpeg2k_decode(frame) for frame in generate_frames(of.PixelData, number_of_frames=count)])
    else:
        frames = of.pixel_array
        frames = frames[None] if count == 1 else frames
    width, height = of.TotalPixelMatrixColumns, of.TotalPixelMatrixRows
    across = math.ceil(width / of.Columns)
    down = math.ceil(height / of.Rows)
    if len(frames) != across * down or len(frames) > 1 and of.get("DimensionOrganizationType") != "TILED_FULL":
        raise Unread("tiles that have places")
    whole = numpy.zeros((down * of.Rows, across * of.Columns) + frames.shape[3:], frames.dtype)
    for number, frame in enumerate(frames):
        y, x = number // across * of.Rows, number % across * of.Columns
        whole[y : y + of.Rows, x : x + of.Columns] = frame
    whole = whole[:height, :width]
    if of.BitsAllocated > 8:
        raise Unread("more than 8 bits")
    return whole if whole.ndim == 3 else numpy.stack([whole] * 3, -1)


def ome_zarr(path):
    group = zarr.open_group(path, mode="r")
    said = dict(group.attrs)
    said = said.get("ome", said)
    scales = said["multiscales"][0]
    axes = [axis if isinstance(axis, str) else axis["name"] for axis in scales.get("axes", list("tczyx"))]
    levels = []
    for of in scales["datasets"]:
        values, names = group[str(of["path"])][:], list(axes)
        for axis in "tcz":
            if axis not in names:
                values, names = values[None], [axis, *names]
        levels.append(values.transpose([names.index(axis) for axis in "tczyx"]))
    count = levels[0].shape[1]
    omero = said.get("omero", {})
    channels = omero.get("channels", [])
    if len(channels) != count:
        channels, omero = [{}] * count, {}
    colour = ["ffffff"] if count == 1 else [COLOURS[c % len(COLOURS)] for c in range(count)]
    colour = [of.get("color", colour[c]).lower() for c, of in enumerate(channels)]
    windows = [[of.get("window", {}).get(end) for end in ("start", "end")] for of in channels]
    windows = [of if all(isinstance(end, (int, float)) for end in of) else None for of in windows]
    if count == 3 and levels[0].dtype in ("u1", "u2") and not any("color" in of for of in channels):
        raise Unread("three channels without colours")
    shown = [of.get("active", True) for of in channels] if any("active" in of for of in channels) else None
    plane = (omero.get("rdefs", {}).get("defaultZ", levels[0].shape[2] // 2), omero.get("rdefs", {}).get("defaultT", 0))
    return stack(levels, colour, windows, shown, plane), False


def images(corpus):
    """All files and, in OME-Zarr, all directories that have an image."""
    for path in sorted(corpus.rglob("*")):
        if path.name in (".zattrs", "zarr.json"):
            if "multiscales" in path.read_text():
                yield path.parent, ome_zarr
        elif path.suffix in (".tif", ".tiff", ".svs"):
            yield path, tiff
        elif path.suffix == ".dcm":
            yield path, dicom


def main(corpus, directory):
    found = []
    for number, (path, read) in enumerate(images(corpus)):
        of = {"path": str(path.relative_to(corpus))}
        try:
            levels, of["lossy"] = read(path)
            of["levels"] = []
            for level, pixels in enumerate(levels):
                assert pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == "u1", (pixels.shape, pixels.dtype)
                name = directory / f"{number}-{level}.rgb"
                name.write_bytes(numpy.ascontiguousarray(pixels).tobytes())
                of["levels"].append({"size": [pixels.shape[1], pixels.shape[0]], "pixels": str(name)})
        except Exception as error:
            of["unread"] = f"{type(error).__name__}: {error}"
        found.append(of)
    (directory / "index.json").write_text(json.dumps(found))


main(Path(sys.argv[1]), Path(sys.argv[2]))

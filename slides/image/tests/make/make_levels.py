"""Makes square slides with labels, masks and thumbnails that could pass for levels, in TIFF.

    make_levels.py DIRECTORY

For each file NAME.tif there is NAME.json: the levels and the associated images that it has, each with its size and the
SHA-256 of its pixels (red, green, blue) as tifffile reads them.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy
from tifffile import TiffFile, TiffWriter

SIDE = 1024
PATIENT = (250, 10, 20)
TILED = {"tile": (256, 256)}
COMMON = {"photometric": "rgb", "compression": "zlib", "metadata": None}


def tissue(side):
    """The same tissue at any size; it has none of a label's colours."""
    down, across = numpy.mgrid[0:side, 0:side] * (SIDE // side) // 8
    return numpy.stack([across, 127 - down, across // 2], axis=-1).astype("uint8")


def label(side):
    return numpy.full((side, side, 3), PATIENT, "uint8")


def mask(side):
    return numpy.full((side, side, 3), 255, "uint8")


def kind(number):
    return {"subfiletype": 1, "software": f"type {number}"}


def level(side):
    return tissue(side), {**TILED, "subfiletype": 1}


def slide(pages):
    """Pixels and options of each page."""

    def write(path):
        with TiffWriter(path) as file:
            for pixels, options in pages:
                file.write(pixels, **{**COMMON, **options})

    return write


def subs(main, pages):
    def write(path):
        with TiffWriter(path) as file:
            file.write(main, **COMMON, **TILED, subifds=len(pages))
            for pixels, options in pages:
                file.write(pixels, **{**COMMON, **options})

    return write


def ome(images):
    """A name, pixels, and pages below it for each image."""

    def write(path):
        with TiffWriter(path, ome=True, bigtiff=True) as file:
            for name, pixels, below in images:
                options = {**COMMON, **TILED, "metadata": {"axes": "YXS", "Name": name}}
                file.write(pixels, subifds=len(below), **options)
                for smaller, extra in below:
                    file.write(smaller, **{**COMMON, **TILED, **extra})

    return write


def aperio(line):
    return {"description": f"Aperio Image Library v1\r\n{line}|MPP = 0.5"}


whole = (tissue(SIDE), TILED)
scanned = (tissue(SIDE), {**TILED, **aperio(f"{SIDE}x{SIDE} (256x256) JPEG|Filename = label 7")})
# For each file: how it is written, its levels and its associated images. An image is a page, or one
# below a page.
CASES = {
    "plain": (slide([whole, level(512), level(256)]), [0, 1, 2], {}),
    "label_without_a_mark": (slide([whole, level(512), (label(256), TILED)]), [0, 1], {}),
    "label_in_strips": (slide([whole, level(512), (label(256), {"subfiletype": 1})]), [0, 1], {}),
    "label_by_name": (
        slide([whole, level(512), (label(256), {**TILED, "subfiletype": 1, "description": "Label"})]),
        [0, 1],
        {"label": 2},
    ),
    "label_of_another_compression": (
        slide([whole, level(512), (label(256), {**TILED, "subfiletype": 1, "compression": None})]),
        [0, 1],
        {},
    ),
    "label_of_no_whole_factor": (
        slide([whole, level(512), (label(300), {**TILED, "subfiletype": 1})]),
        [0, 1],
        {},
    ),
    "masks": (
        slide([whole, (mask(SIDE), {**TILED, **kind(4)}), level(512), (mask(512), {**TILED, **kind(5)})]),
        [0, 2],
        {},
    ),
    "mask_in_front": (slide([(mask(SIDE), {**TILED, **kind(4)}), whole, level(512)]), [1, 2], {}),
    "thumbnail_in_front": (slide([(label(256), {}), whole, level(512)]), [1, 2], {}),
    "tiled_thumbnail_in_front": (
        slide([(label(256), {**TILED, "description": "thumbnail"}), whole, level(512)]),
        [1, 2],
        {"thumbnail": 0},
    ),
    "label_below": (
        subs(tissue(SIDE), [level(512), (label(256), TILED)]),
        [0, (0, 0)],
        {},
    ),
    "aperio": (
        slide(
            [
                scanned,
                (tissue(256), aperio(f"{SIDE}x{SIDE} -> 256x256 - |Filename = macro")),
                (tissue(256), {**TILED, **aperio(f"{SIDE}x{SIDE} (256x256) -> 256x256 JPEG")}),
                (label(128), {**TILED, **aperio("label 128x128")}),
                (label(512), {**kind(9)}),
            ]
        ),
        [0, 2],
        {"thumbnail": 1, "label": 3, "macro": 4},
    ),
    "aperio_without_names": (
        slide([scanned, (label(512), TILED), (label(256), {"subfiletype": 1}), (label(128), {**TILED, **kind(9)})]),
        [0],
        {"label": 2},
    ),
    "ome_with_the_label_first": (
        ome([("Label image", label(256), []), ("scan", tissue(SIDE), [level(512)]), ("macro", label(128), [])]),
        [1, (1, 0)],
        {"label": 0, "macro": 2},
    ),
    "ome_without_marks": (
        ome([("scan", tissue(SIDE), [(tissue(512), {}), (label(300), {}), (mask(256), {**kind(4)})])]),
        [0, (0, 0)],
        {},
    ),
}

def patch(path):
    """Gives pages a type that tifffile does not write for 8-bit pixels; their software tag names it."""
    with TiffFile(path, mode="r+b") as file:
        pages = [below for page in file.pages for below in (page, *(page.pages or []))]
        for page in pages:
            software = page.tags.get("Software")
            if software is not None and software.value.startswith("type "):
                page.tags["NewSubfileType"].overwrite(int(software.value[5:]))


directory = Path(sys.argv[1])
for name, (write, levels, associated) in CASES.items():
    path = directory / f"{name}.tif"
    write(path)
    patch(path)
    with TiffFile(path) as file:

        def found(place):
            page, below = place if isinstance(place, tuple) else (place, None)
            page = file.pages[page]
            pixels = (page if below is None else page.pages[below]).asarray()
            height, width, _ = pixels.shape
            return [width, height, hashlib.sha256(pixels.tobytes()).hexdigest()]

        expected = {
            "levels": [found(place) for place in levels],
            "associated": {name: found(place) for name, place in associated.items()},
        }
    (directory / f"{name}.json").write_text(json.dumps(expected))

"""Makes TIFF files whose colours are unusual.

    make_colours.py DIRECTORY

units-*.tif have luminance and differences of colour without JPEG, in units of several sizes; jpeg-*.tif have tiles of
JPEG as their names say. NAME.rgb beside NAME.tif has the pixels that Pillow reads through libtiff, if it does.
"""

import sys
from pathlib import Path

import imagecodecs
import numpy
from PIL import Image
from tifffile import TiffFile, imwrite

SIDE = 64
directory = Path(sys.argv[1])


def smooth(samples):
    down, across, sample = numpy.indices((SIDE, SIDE, samples))
    return ((across * 2 + down + sample * 40) % 200 + 30).astype("uint8")


def retag(path, **values):
    """Tags that tifffile writes in its own way."""
    with TiffFile(path, mode="r+b") as file:
        for name, value in values.items():
            file.pages[0].tags[name].overwrite(value)


for across, down in (1, 1), (2, 1), (2, 2), (4, 2), (1, 2):
    whole = smooth(3)
    units = []
    for y in range(0, SIDE, down):
        for x in range(0, SIDE, across):
            block = whole[y : y + down, x : x + across]
            units.append([*block[..., 0].ravel(), block[0, 0, 1], block[0, 0, 2]])
    packed = numpy.array(units, "uint8").tobytes()
    for compression, stored in ("none", packed), ("lzw", imagecodecs.lzw_encode(packed)):
        path = directory / f"units-{across}-{down}-{compression}.tif"
        # Strips of the right length are written first, then replaced.
        options = {"photometric": "rgb", "compression": "zlib", "metadata": None, "rowsperstrip": SIDE}
        tags = [(530, "H", 2, (across, down), True), (532, "2I", 6, (0, 1, 255, 1, 128, 1, 255, 1, 128, 1, 255, 1), True)]
        imwrite(path, iter([stored]), shape=whole.shape, dtype="uint8", extratags=tags, **options)
        retag(path, PhotometricInterpretation=6, Compression=5 if compression == "lzw" else 1)

options = {"metadata": None, "tile": (SIDE, SIDE), "compression": "zlib"}
grey, colour, inks = smooth(1)[..., 0], smooth(3), smooth(4)


def jpeg(name, pixels, photometric, samples, change=lambda stored: stored, **of):
    path = directory / f"jpeg-{name}.tif"
    stored = change(imagecodecs.jpeg8_encode(pixels, level=95, **of))
    shape = (SIDE, SIDE, samples) if samples > 1 else (SIDE, SIDE)
    # tifffile counts samples as extra ones if the photometric interpretation does not include them.
    main = "rgb" if samples == 3 else "minisblack"
    planar = {"planarconfig": "contig"} if samples > 1 else {}
    imwrite(path, iter([stored]), shape=shape, dtype="uint8", photometric=main, **planar, **options)
    retag(path, PhotometricInterpretation=photometric, Compression=7)


def cut(stored):
    return stored[: len(stored) * 2 // 3]


jpeg("grey", grey, 1, 1)
jpeg("inverted", grey, 0, 1)
jpeg("rgb", colour, 2, 3, colorspace="RGB", outcolorspace="RGB")
jpeg("ycbcr", colour, 6, 3, colorspace="RGB", outcolorspace="YCBCR")
jpeg("cut", colour, 6, 3, change=cut, colorspace="RGB", outcolorspace="YCBCR")
jpeg("inks", inks, 5, 4, colorspace="CMYK", outcolorspace="CMYK")
jpeg("four-as-rgb", inks, 2, 4, colorspace="CMYK", outcolorspace="CMYK")
jpeg("four-as-three", inks, 6, 3, colorspace="CMYK", outcolorspace="CMYK")
jpeg("grey-as-three", grey, 6, 3)

for path in directory.glob("*.tif"):
    try:
        with Image.open(path) as image:
            path.with_suffix(".rgb").write_bytes(image.convert("RGB").tobytes())
    except (OSError, SyntaxError) as error:
        print(f"{path.name}: {error}")

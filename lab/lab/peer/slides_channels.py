"""Makes a slide with five channels of 16 bits out of a picture. Material of the experiment `slides`.

    slides_channels.py PICTURE.ppm SLIDE.ome.tif SHOWN.ppm COLUMNS ROWS CHANNELS

The picture is laid out COLUMNS times beside and ROWS times below itself. SHOWN.ppm has the pixels that the slide shows with
CHANNELS, which is as in addresses: NUMBER:COLOUR:BLACK-WHITE for each, with commas between them. All channels have noise below
their BLACK everywhere, and at each pixel one of them has a signal, so that it makes no difference whether a server adds up
colours or takes the largest value of each.
"""

import sys

import numpy
import tifffile

TILE = 256


def picture(path):
    with open(path, "rb") as file:
        words = []
        while len(words) < 4:
            words += file.readline().partition(b"#")[0].split()
        assert (words[0], words[3]) == (b"P6", b"255"), words
        width, height = int(words[1]), int(words[2])
        return numpy.fromfile(file, "u1", width * height * 3).reshape(height, width, 3)


def main(source, slide, shown, columns, rows, channels):
    layers = [layer.split(":") for layer in channels.split(",")]
    # Tissue is darker than the glass.
    signal = numpy.tile(255 - picture(source)[..., 1], (int(rows), int(columns)))
    height, width = signal.shape
    down, across = numpy.ogrid[:height, :width]
    which = (down // 97 + across // 61) % len(layers)
    generator = numpy.random.default_rng(1)
    planes = numpy.empty((len(layers), height, width), "u2")
    pixels = numpy.zeros((height, width, 3), "u1")
    for plane, (number, colour, window) in zip(planes, layers):
        black, white = map(int, window.split("-"))
        plane[:] = generator.integers(0, black, (height, width), "u2")
        here = which == int(number)
        plane[here] += (signal[here].astype("u4") * (white - black) // 255).astype("u2")
        bright = numpy.clip(plane.astype("f4") - black, 0, None) / (white - black)
        for at in range(3):
            pixels[..., at] += numpy.rint(numpy.minimum(bright, 1) * int(colour[2 * at : 2 * at + 2], 16)).astype("u1")
    levels = [planes]
    while max(levels[-1].shape[1:]) > TILE:
        levels.append(levels[-1][:, ::2, ::2])
    options = {"photometric": "minisblack", "tile": (TILE, TILE), "compression": "zlib", "compressionargs": {"level": 1}}
    with tifffile.TiffWriter(slide, ome=True, bigtiff=True) as file:
        file.write(levels[0], subifds=len(levels) - 1, metadata={"axes": "CYX"}, **options)
        for level in levels[1:]:
            file.write(level, subfiletype=1, metadata=None, **options)
    with open(shown, "wb") as file:
        file.write(b"P6\n%d %d\n255\n" % (width, height))
        file.write(pixels.tobytes())


main(*sys.argv[1:])

"""Makes slides in TIFF with tifffile.

    make_tiff.py plain FILE        two levels of tiles in deflate, one of them not stored
    make_tiff.py philips FILE      the same as scanners of Philips write it
    make_tiff.py small FILE        the same, but the second level is smaller than its tile
    make_tiff.py aperio LEVELS FILE   makes a pyramid of vips one of Aperio, with at most so many levels
    make_tiff.py ndpi|scn|bif|trestle FILE   what shows that it is a file of Hamamatsu, Leica, Ventana or Trestle
    make_tiff.py ome UNIT FILE     OME-TIFF: the same two levels, and a label; pixels of 0.5 by 0.25 of that unit
    make_tiff.py openslide         prints the directory that has OpenSlide 4
"""

import sys
from pathlib import Path

import numpy
from tifffile import TiffFile, TiffWriter, tiffcomment

SIDE = 256


def pixels(side):
    """Red increases to the right, green downwards, until the range of values ends."""
    down, across = numpy.mgrid[0:side, 0:side]
    step = 512 // side
    return numpy.stack([across * step, down * step, numpy.full((side, side), 9)], axis=-1).astype("uint8")


def philips(factor=2):
    def attribute(name, value, group="0x0028", kind="IString"):
        return f'<Attribute Name="{name}" Group="{group}" Element="0x0030" PMSVR="{kind}">{value}</Attribute>'

    def level(factor):
        spacing = f"&quot;{0.00025 * factor}&quot; &quot;{0.0005 * factor}&quot;"
        return f'<DataObject ObjectType="PixelDataRepresentation">{attribute("DICOM_PIXEL_SPACING", spacing)}</DataObject>'

    levels = f"<Array>{level(1)}{level(factor)}</Array>"
    image = (
        attribute("PIM_DP_IMAGE_TYPE", "WSI")
        + attribute("DICOM_PIXEL_SPACING", "&quot;0.00025&quot; &quot;0.0005&quot;")
        + attribute("PIIM_PIXEL_DATA_REPRESENTATION_SEQUENCE", levels)
    )
    images = f'<Array><DataObject ObjectType="DPScannedImage">{image}</DataObject></Array>'
    return (
        '<?xml version="1.0" encoding="UTF-8" ?><DataObject ObjectType="DPUfsImport">'
        + attribute("DICOM_MANUFACTURER", "Nobody")
        + attribute("PIM_DP_SCANNED_IMAGES", images)
        + "</DataObject>"
    )


def write(path, small=256, **of):
    options = {"photometric": "rgb", "tile": (SIDE, SIDE), "compression": "zlib", "metadata": None}
    whole = pixels(512)
    halves = (slice(0, SIDE), slice(SIDE, 512))
    tiles = [whole[down, across] for down in halves for across in halves]
    tiles[1] = None
    with TiffWriter(path) as file:
        file.write(iter(tiles), shape=whole.shape, dtype=whole.dtype, **options, **of)
        file.write(pixels(small), **options, subfiletype=1)


if sys.argv[1] == "plain":
    write(sys.argv[2])
elif sys.argv[1] == "philips":
    write(sys.argv[2], description=philips(), software="Philips DP v1.0")
elif sys.argv[1] == "small":
    write(sys.argv[2], small=128, description=philips(4), software="Philips DP v1.0")
elif sys.argv[1] == "aperio":
    levels, path = int(sys.argv[2]), sys.argv[3]
    with TiffFile(path) as file:
        page = file.pages[0]
        about = f"Aperio Image Library\r\n{page.imagewidth}x{page.imagelength} |AppMag = 20|MPP = 0.5"
    # vips has written a longer one.
    tiffcomment(path, about)
    with TiffFile(path, mode="r+b") as file:
        if len(file.pages) > levels:
            # The last directory of the chain: number of entries, entries of 12 bytes, place of the next one.
            last = file.pages[levels - 1]
            file.filehandle.seek(last.offset)
            count = int.from_bytes(file.filehandle.read(2), "little")
            file.filehandle.seek(last.offset + 2 + 12 * count)
            file.filehandle.write(bytes(4))
elif sys.argv[1] == "ome":
    options = {"photometric": "rgb", "tile": (SIDE, SIDE), "compression": "zlib"}
    unit = sys.argv[2]
    size = {"PhysicalSizeX": 0.5, "PhysicalSizeXUnit": unit, "PhysicalSizeY": 0.25, "PhysicalSizeYUnit": unit}
    with TiffWriter(sys.argv[3], ome=True, bigtiff=True) as file:
        file.write(pixels(512), **options, subifds=1, metadata={"axes": "YXS", "Name": "scan <1>", **size})
        file.write(pixels(256), **options, subfiletype=1)
        file.write(pixels(256)[:100], photometric="rgb", metadata={"axes": "YXS", "Name": "Label image"})
elif sys.argv[1] == "ndpi":
    write(sys.argv[2], extratags=[(65420, "I", 1, 1, True)])
elif sys.argv[1] == "scn":
    write(sys.argv[2], description='<scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01"/>')
elif sys.argv[1] == "bif":
    write(sys.argv[2], extratags=[(700, "B", None, b"<?xml version='1.0'?><iScan/>", True)])
elif sys.argv[1] == "trestle":
    write(sys.argv[2], software="MedScan")
else:
    import openslide_bin

    print(Path(openslide_bin.__file__).parent)

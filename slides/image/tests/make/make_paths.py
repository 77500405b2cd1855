"""Makes slides in DICOM with optical paths and focal planes, by pydicom, and what they should show.

    make_paths.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy
from pydicom import Dataset, FileMetaDataset, dcmread
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from blend import Cases, data, window

COLOURS = ["0000ff", "00ff00", "ff00ff", "ffff00"]
TILE = (48, 32)


def item(**values):
    dataset = Dataset()
    for name, value in values.items():
        setattr(dataset, name, value)
    return dataset


def padded(plane):
    """In whole tiles."""
    height, width = plane.shape
    return numpy.pad(plane, ((0, -height % TILE[1]), (0, -width % TILE[0])))


def tiles(plane):
    plane = padded(plane)
    for y in range(0, plane.shape[0], TILE[1]):
        for x in range(0, plane.shape[1], TILE[0]):
            yield x, y, plane[y : y + TILE[1], x : x + TILE[0]]


def write(path, values, numbers, stains, series, sparse=None, of_frame=None):
    """`values` are planes by path and depth; `numbers` those of the paths in them."""
    count, depth, height, width = values.shape
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
    dataset.SOPClassUID = "1.2.840.10008.5.1.4.1.1.77.1.6"
    dataset.SOPInstanceUID = generate_uid()
    dataset.StudyInstanceUID = "1.2.826.0.1.1"
    dataset.SeriesInstanceUID = series
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.Columns, dataset.Rows = TILE
    dataset.BitsAllocated = dataset.BitsStored = values.dtype.itemsize * 8
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = 0
    dataset.TotalPixelMatrixColumns, dataset.TotalPixelMatrixRows = width, height
    dataset.TotalPixelMatrixFocalPlanes = depth
    dataset.NumberOfOpticalPaths = count
    dataset.ImagedVolumeWidth, dataset.ImagedVolumeHeight = 0.1, 0.1
    dataset.OpticalPathSequence = [
        item(OpticalPathIdentifier=str(number), OpticalPathDescription=stains[number - 1]) for number in numbers
    ]
    frames = []
    for c in range(count):
        for z in range(depth):
            for x, y, tile in tiles(values[c, z]):
                position = item(
                    ColumnPositionInTotalImagePixelMatrix=x + 1,
                    RowPositionInTotalImagePixelMatrix=y + 1,
                    ZOffsetInSlideCoordinateSystem=str(1.5 * z - 3),
                )
                path_of = item(OpticalPathIdentifier=str(numbers[c]))
                frames.append((item(PlanePositionSlideSequence=[position], OpticalPathIdentificationSequence=[path_of]), tile))
    dataset.DimensionOrganizationType = "TILED_SPARSE" if sparse else "TILED_FULL"
    if sparse:
        numpy.random.default_rng(sparse).shuffle(frames)
        dataset.PerFrameFunctionalGroupsSequence = [groups for groups, _ in frames]
    dataset.NumberOfFrames = len(frames)
    dataset.PixelData = b"".join(numpy.ascontiguousarray(tile).tobytes() for _, tile in frames)
    dataset["PixelData"].VR = "OW"
    dataset.save_as(path, enforce_file_format=True)


def read(path):
    """Planes by path and depth, as pydicom reads the frames."""
    dataset = dcmread(path)
    frames = dataset.pixel_array.reshape(-1, TILE[1], TILE[0])
    width, height = dataset.TotalPixelMatrixColumns, dataset.TotalPixelMatrixRows
    columns, rows = -(-width // TILE[0]), -(-height // TILE[1])
    count, depth = dataset.NumberOfOpticalPaths, dataset.TotalPixelMatrixFocalPlanes
    whole = numpy.zeros((count, depth, rows * TILE[1], columns * TILE[0]), frames.dtype)
    paths = [str(path.OpticalPathIdentifier) for path in dataset.OpticalPathSequence]
    for number, frame in enumerate(frames):
        if "PerFrameFunctionalGroupsSequence" in dataset:
            groups = dataset.PerFrameFunctionalGroupsSequence[number]
            position = groups.PlanePositionSlideSequence[0]
            x, y = position.ColumnPositionInTotalImagePixelMatrix - 1, position.RowPositionInTotalImagePixelMatrix - 1
            z = round((float(position.ZOffsetInSlideCoordinateSystem) + 3) / 1.5)
            c = paths.index(str(groups.OpticalPathIdentificationSequence[0].OpticalPathIdentifier))
        else:
            # Columns vary fastest, then rows, focal planes, and optical paths.
            x, y = number % columns * TILE[0], number // columns % rows * TILE[1]
            z, c = number // (columns * rows) % depth, number // (columns * rows * depth)
        whole[c, z, y : y + TILE[1], x : x + TILE[0]] = frame
    return whole[:, :, :height, :width]


def make(directory, name, values, stains, sparse=None, each=False):
    root = directory / name
    root.mkdir()
    levels = []
    for level in range(2):
        part = values[0, :, :, :: 2**level, :: 2**level]
        numbers = range(1, part.shape[0] + 1)
        files = []
        for group in [[number] for number in numbers] if each else [list(numbers)]:
            # The names are in another order than the paths.
            file = root / f"{level}-{9 - group[0]}.dcm"
            write(file, part[group[0] - 1 : group[-1]], group, stains, f"1.2.826.0.1.{len(name)}", sparse)
            files.append(file)
        levels.append(numpy.concatenate([read(file) for file in files])[None])
    depth = values.shape[2]
    known = [
        {
            "name": stains[c],
            "color": COLOURS[c],
            "window": window(levels[1][0, c, depth // 2]),
            "measured": True,
            "shown": True,
        }
        for c in range(values.shape[1])
    ]
    cases = Cases(str(root), levels, known)
    cases.every()
    cases.write()


def main(directory):
    stains = ["DAPI", "Cy3 'a'", "Cy5"]
    make(directory, "full", data(1, (1, 3, 2, 90, 130), "u2"), stains)
    make(directory, "sparse", data(2, (1, 3, 3, 90, 130), "u2"), stains, sparse=5)
    make(directory, "each", data(3, (1, 3, 1, 90, 130), "u2"), stains, each=True)
    make(directory, "each-deep", data(4, (1, 2, 3, 90, 130), "u1", 0, 255), stains, sparse=6, each=True)


main(Path(sys.argv[1]))

"""Makes slides in DICOM of frames in files, with pydicom, and shows what pydicom reads of them.

    make_dicom.py make SPECIFICATION     JSON: a list of objects with the keys that are read below
    make_dicom.py json FILE              the dataset in the DICOM JSON model, without its pixels
"""

import json
import sys
from pathlib import Path

from pydicom import Dataset, FileMetaDataset, dcmread
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.uid import RLELossless, generate_uid

CLASS = "1.2.840.10008.5.1.4.1.1.77.1.6"
NATIVE = "1.2.840.10008.1.2.1"
JPEG = "1.2.840.10008.1.2.4.50"


def item(**values):
    dataset = Dataset()
    for name, value in values.items():
        setattr(dataset, name, value)
    return dataset


def make(of):
    frames = [path.read_bytes() for path in sorted(Path(of["frames"]).iterdir())]
    first = of.get("first", 0)
    places = list(range(len(frames)))[first : first + of.get("count", len(frames))]
    jpeg = of["jpeg"]
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = of.get("syntax", JPEG if jpeg else NATIVE)
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.ImageType = ["DERIVED", "PRIMARY", of["kind"], "NONE"]
    dataset.SOPClassUID = of.get("class", CLASS)
    dataset.SOPInstanceUID = of.get("uid") or generate_uid()
    if "number" in of:
        dataset.InstanceNumber = of["number"]
    dataset.Modality = "SM"
    dataset.Manufacturer = "Nobody"
    dataset.PatientName = "Müller^Anna=何^某"
    dataset.PatientID = "1"
    dataset.StudyDate = ""
    dataset.StudyInstanceUID = of["study"]
    dataset.SeriesInstanceUID = of["series"]
    dataset.ContainerIdentifier = "box 1"
    dataset.SamplesPerPixel = of["samples"]
    dataset.PhotometricInterpretation = of["photometric"]
    if of["samples"] > 1:
        dataset.PlanarConfiguration = of.get("planar", 0)
    dataset.NumberOfFrames = len(places)
    dataset.Columns, dataset.Rows = of["tile"]
    dataset.BitsAllocated = of.get("bits", 8)
    dataset.BitsStored = of.get("stored", of.get("bits", 8))
    dataset.HighBit = dataset.BitsStored - 1
    dataset.PixelRepresentation = 0
    dataset.TotalPixelMatrixColumns, dataset.TotalPixelMatrixRows = of["size"]
    dataset.ImagedVolumeWidth = 0.1
    dataset.ImagedVolumeHeight = 15.0
    dataset.DimensionIndexSequence = [item(DimensionIndexPointer=0x0048021E)]
    if "spacing" in of:
        dataset.SharedFunctionalGroupsSequence = [
            item(PixelMeasuresSequence=[item(PixelSpacing=of["spacing"], SliceThickness="0.001")])
        ]
    profile = Path(of["icc"]).read_bytes() if "icc" in of else b"profile!"
    dataset.OpticalPathSequence = [
        item(OpticalPathIdentifier="1", ICCProfile=profile, ObjectiveLensPower="20")
    ]
    if of.get("placed"):
        # Viewers that measure on the glass need this.
        dataset.FrameOfReferenceUID = of["series"]
        dataset.ImageOrientationSlide = [0, -1, 0, -1, 0, 0]
        dataset.TotalPixelMatrixOriginSequence = [item(XOffsetInSlideCoordinateSystem=20.0, YOffsetInSlideCoordinateSystem=40.0)]
        light = item(CodeValue="111744", CodingSchemeDesignator="DCM", CodeMeaning="Brightfield illumination")
        dataset.OpticalPathSequence[0].IlluminationTypeCodeSequence = [light]
    if "concatenation" in of:
        dataset.ConcatenationUID = of["concatenation"]
        dataset.ConcatenationFrameOffsetNumber = first
    dataset.DimensionOrganizationType = of["organization"]
    if of["organization"] == "TILED_SPARSE":
        columns = -(-of["size"][0] // of["tile"][0])
        if of.get("reversed"):
            places.reverse()
        skipped = set(of.get("without", []))
        places = [place for place in places if place not in skipped]
        dataset.NumberOfFrames = len(places)
        dataset.PerFrameFunctionalGroupsSequence = [
            item(
                PlanePositionSlideSequence=[
                    item(
                        ColumnPositionInTotalImagePixelMatrix=place % columns * of["tile"][0] + 1,
                        RowPositionInTotalImagePixelMatrix=place // columns * of["tile"][1] + 1,
                        XOffsetInSlideCoordinateSystem="1.5",
                    )
                ]
            )
            for place in places
        ]
    frames = [frames[place] for place in places]
    if not jpeg:
        dataset.add_new(0x7FE00010, "OB" if of.get("bits", 8) == 8 else "OW", b"".join(frames))
        if of.get("rle"):
            before = dataset.pixel_array
            if of["samples"] > 1:
                # The array has interleaved samples.
                dataset.PlanarConfiguration = 0
            dataset.compress(RLELossless, before, generate_instance_uid=False)
            assert (dataset.pixel_array == before).all()
    else:
        if of["table"] == "extended":
            pixels, offsets, lengths = encapsulate_extended(frames)
            dataset.ExtendedOffsetTable = offsets
            dataset.ExtendedOffsetTableLengths = lengths
        else:
            pixels = encapsulate(frames, of.get("fragments", 1), has_bot=of["table"] == "basic")
        dataset.add_new(0x7FE00010, "OB", pixels)
        dataset["PixelData"].is_undefined_length = True
    dataset.save_as(of["file"], enforce_file_format=True)


if sys.argv[1] == "make":
    for specification in json.loads(Path(sys.argv[2]).read_text()):
        make(specification)
else:
    dataset = dcmread(sys.argv[2])
    for tag in (0x7FE00001, 0x7FE00002, 0x7FE00010):
        if tag in dataset:
            del dataset[tag]
    print(json.dumps(dataset.to_json_dict()))

"""Reads a study by dicomweb-client and by wsidicom, and compares all of it with what pydicom reads in the files.

    dicomweb.py ADDRESS DIRECTORY
"""

import sys
from pathlib import Path

from dicomweb_client.api import DICOMwebClient
from pydicom import dcmread
from pydicom.encaps import generate_frames
from wsidicom import WsiDicom, WsiDicomWebClient

PIXELS = (0x7FE00001, 0x7FE00002, 0x7FE00010)


def frames_of(dataset):
    if dataset.file_meta.TransferSyntaxUID.is_encapsulated:
        return list(generate_frames(dataset.PixelData, number_of_frames=dataset.NumberOfFrames))
    each = dataset.Rows * dataset.Columns * dataset.SamplesPerPixel
    return [dataset.PixelData[each * n : each * (n + 1)] for n in range(dataset.NumberOfFrames)]


def value(found, tag):
    return found[tag]["Value"][0]


client = DICOMwebClient(url=sys.argv[1])
# Failed requests are not repeated.
client.set_http_retry_params(retry=False)
files = [dcmread(path) for path in sorted(Path(sys.argv[2]).glob("*.dcm"))]
by_uid = {dataset.SOPInstanceUID: dataset for dataset in files}
series = {dataset.SeriesInstanceUID for dataset in files}

(study,) = client.search_for_studies()
uid = value(study, "0020000D")
assert uid == files[0].StudyInstanceUID
assert study["00080061"]["Value"] == ["SM"]
assert (value(study, "00201206"), value(study, "00201208")) == (len(series), len(files))
assert value(study, "00100010") == {"Alphabetic": "Müller^Anna", "Ideographic": "何^某"}
for filters, count in [
    ({"PatientID": "1"}, 1),
    ({"PatientID": "2"}, 0),
    ({"PatientName": "müller*"}, 1),
    ({"ModalitiesInStudy": "SM"}, 1),
    ({"ModalitiesInStudy": "CT"}, 0),
    ({"StudyInstanceUID": uid}, 1),
    ({"StudyInstanceUID": "1.2"}, 0),
]:
    assert len(client.search_for_studies(search_filters=filters)) == count, filters
assert client.search_for_studies(offset=1) == []
assert {value(one, "0020000E") for one in client.search_for_series(uid)} == series
assert len(client.search_for_series()) == len(series)
assert len(client.search_for_series(limit=1)) == 1

read = set()
for one in series:
    found = client.search_for_instances(uid, one)
    whole = client.retrieve_series(uid, one)
    assert {dataset.SOPInstanceUID for dataset in whole} == {value(of, "00080018") for of in found}
    metadata = client.retrieve_series_metadata(uid, one)
    assert len(metadata) == len(found)
    for dataset in whole:
        assert dataset == by_uid[dataset.SOPInstanceUID]
    for of in found:
        name = value(of, "00080018")
        dataset = by_uid[name]
        read.add(name)
        assert value(of, "00280008") == dataset.NumberOfFrames
        assert (value(of, "00280010"), value(of, "00280011")) == (dataset.Rows, dataset.Columns)
        assert client.retrieve_instance(uid, one, name) == dataset

        (told,) = [other for other in metadata if value(other, "00080018") == name]
        assert client.retrieve_instance_metadata(uid, one, name) == told
        # The client sends the host name without its port, so the server does not know the port.
        bulk = told.pop("7FE00010")["BulkDataURI"].split("/dicomweb", 1)[1]
        bulk = sys.argv[1] + bulk
        expected = dataset.to_json_dict(bulk_data_threshold=1 << 20, bulk_data_element_handler=str)
        assert told == {k: v for k, v in expected.items() if int(k, 16) not in PIXELS}

        frames = frames_of(dataset)
        numbers = list(range(1, len(frames) + 1))
        assert list(client.retrieve_instance_frames(uid, one, name, numbers)) == frames
        assert list(client.iter_instance_frames(uid, one, name, numbers)) == frames
        last = list(client.retrieve_instance_frames(uid, one, name, [len(frames)]))
        assert last == frames[-1:]
        kind = dataset.file_meta.TransferSyntaxUID
        if kind.is_encapsulated:
            jpeg = (("image/jpeg", str(kind)),)
            assert list(client.retrieve_instance_frames(uid, one, name, [1], jpeg)) == frames[:1]
            assert list(client.retrieve_bulkdata(bulk)) == frames
        else:
            assert list(client.retrieve_bulkdata(bulk)) == [dataset.PixelData]
        png = client.retrieve_instance_frames_rendered(uid, one, name, [1], ("image/png",))
        assert png.startswith(b"\x89PNG")
assert read == set(by_uid)
assert {dataset.SOPInstanceUID for dataset in client.retrieve_study(uid)} == read

# Instances of all studies, and searches by their identifiers.
assert {value(one, "00080018") for one in client.search_for_instances()} == read
number = files[0].InstanceNumber
found = client.search_for_instances(search_filters={"InstanceNumber": number})
expected = {of.SOPInstanceUID for of in files if of.InstanceNumber == number}
assert {value(one, "00080018") for one in found} == expected
for one in series:
    thumbnail = client.retrieve_series_rendered(uid, one, media_types=("image/png",))
    assert thumbnail.startswith(b"\x89PNG")

# wsidicom's client opens each series, and decodes the same pixels as from the files.
web = WsiDicomWebClient(client)
for one in series:
    paths = [path for path in Path(sys.argv[2]).glob("*.dcm") if dcmread(path).SeriesInstanceUID == one]
    with WsiDicom.open_web(web, uid, one) as remote, WsiDicom.open(paths) as local:
        assert remote.size == local.size
        assert len(remote.levels) == len(local.levels)
        # Its decoder fails on uncompressed frames, with a TypeError of its own.
        if not dcmread(paths[0]).file_meta.TransferSyntaxUID.is_encapsulated:
            continue
        for level in local.levels:
            region = ((0, 0), level.level, (level.size.width, level.size.height))
            assert remote.read_region(*region).tobytes() == local.read_region(*region).tobytes()
print(len(read), "instances")

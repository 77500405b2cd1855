// Reads a study with the npm package dicomweb-client, and compares all of it with the files.
//
//     NODE_PATH=PACKAGES node dicomweb.js ADDRESS DIRECTORY

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");

// The client is made for browsers.
globalThis.XMLHttpRequest = require("xhr2");
const { api } = require("dicomweb-client");

const JPEG = "1.2.840.10008.1.2.4.50";
const [address, directory] = process.argv.slice(2);
const files = fs.readdirSync(directory).filter((name) => name.endsWith(".dcm"));
const contents = files.map((name) => fs.readFileSync(path.join(directory, name)));
const value = (dataset, tag) => dataset[tag].Value[0];

// Some of the client's errors have no message.
function told(error) {
    return error.message ?? `${error.request?.responseURL}: ${error.status}`;
}

async function instance(client, of, metadata) {
    const whole = Buffer.from(await client.retrieveInstance(of));
    assert(contents.some((file) => file.equals(whole)), of.sopInstanceUID);
    assert.deepStrictEqual(await client.retrieveInstanceMetadata(of), [metadata]);

    const count = value(metadata, "00280008");
    const frameNumbers = Array.from({ length: count }, (_, at) => at + 1);
    const isJpeg = whole.includes(JPEG);
    const mediaTypes = isJpeg
        ? [{ mediaType: "image/jpeg", transferSyntaxUID: JPEG }]
        : [{ mediaType: "application/octet-stream", transferSyntaxUID: "1.2.840.10008.1.2.1" }];
    const frames = await client.retrieveInstanceFrames({ ...of, frameNumbers, mediaTypes });
    assert.strictEqual(frames.length, count);
    let at = 0;
    for (const frame of frames.map((frame) => Buffer.from(frame))) {
        at = whole.indexOf(frame, at);
        assert(frame.length > 0 && at >= 0, "a frame is in the file, after those before");
        at += frame.length;
    }
    // As viewers do that accept any format.
    const either = [
        { mediaType: "image/jpeg", transferSyntaxUID: JPEG },
        { mediaType: "application/octet-stream", transferSyntaxUID: "1.2.840.10008.1.2.1" },
    ];
    const last = { ...of, frameNumbers: [count], mediaTypes: either };
    const [same] = await client.retrieveInstanceFrames(last);
    assert(Buffer.from(same).equals(Buffer.from(frames[count - 1])));
    if (isJpeg) {
        // Without a transfer syntax, frames are requested decompressed.
        const refused = client.retrieveInstanceFrames({ ...of, frameNumbers: [1] });
        await assert.rejects(refused, (error) => error.status === 406);
    } else {
        const [plain] = await client.retrieveInstanceFrames({ ...of, frameNumbers: [1] });
        assert(Buffer.from(plain).equals(Buffer.from(frames[0])));
    }

    const png = [{ mediaType: "image/png" }];
    for (const [shown] of [
        await client.retrieveInstanceFramesRendered({ ...of, frameNumbers: [1], mediaTypes: png }),
        await client.retrieveInstanceRendered({ ...of, mediaTypes: png }),
        await client.retrieveInstanceThumbnail({ ...of, mediaTypes: png }),
    ]) {
        assert.strictEqual(Buffer.from(shown).toString("latin1", 1, 4), "PNG");
    }
    if (!isJpeg) {
        // The client fails when requesting compressed pixels.
        const uri = new URL(metadata["7FE00010"].BulkDataURI, address);
        const BulkDataURI = `${new URL(address).origin}${uri.pathname}`;
        const [bulk] = await client.retrieveBulkData({ BulkDataURI });
        assert(Buffer.from(bulk).equals(Buffer.concat(frames.map((frame) => Buffer.from(frame)))));
    }
}

async function main() {
    const client = new api.DICOMwebClient({ url: address, verbose: false });
    const [study, ...more] = await client.searchForStudies();
    assert.deepStrictEqual(more, []);
    const studyInstanceUID = value(study, "0020000D");
    const none = { queryParams: { PatientID: "nobody" } };
    assert.deepStrictEqual(await client.searchForStudies(none), []);
    const series = await client.searchForSeries({ studyInstanceUID });
    assert.strictEqual(series.length, value(study, "00201206"));
    let count = 0;
    for (const seriesInstanceUID of series.map((one) => value(one, "0020000E"))) {
        const of = { studyInstanceUID, seriesInstanceUID };
        const found = await client.searchForInstances(of);
        const metadata = await client.retrieveSeriesMetadata(of);
        const whole = await client.retrieveSeries(of);
        assert.deepStrictEqual([metadata.length, whole.length], [found.length, found.length]);
        for (const one of metadata) {
            await instance(client, { ...of, sopInstanceUID: value(one, "00080018") }, one);
            count += 1;
        }
    }
    const all = await client.retrieveStudy({ studyInstanceUID });
    assert.deepStrictEqual([all.length, count], [files.length, files.length]);
    assert.strictEqual((await client.retrieveStudyMetadata({ studyInstanceUID })).length, count);
    console.log(count, "instances");
}

main().catch((error) => {
    console.error(told(error), error);
    process.exit(1);
});

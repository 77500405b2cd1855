use super::*;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

fn read(text: &str) -> Result<Index> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.geojson");
    fs::write(&path, text).unwrap();
    indexed(&path, 1 << 20).map_err(Wrong::failure)
}

fn shown(text: &str, bbox: &str, zoom: f32) -> Value {
    let index = read(text).unwrap();
    let view = VisibleArea::parse(Some(bbox), Some(zoom)).unwrap();
    serde_json::to_value(view::collection(&index, view)).unwrap()
}

fn square(left: f32, top: f32, side: f32, properties: &Value) -> Value {
    let (right, bottom) = (left + side, top + side);
    let ring = [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]];
    json!({
        "type": "Feature",
        "id": "a8ed4bcf-8a3f-4b0b-a3b8-6a3e1f2a4a11",
        "geometry": { "type": "Polygon", "coordinates": [ring] },
        "properties": properties,
    })
}

#[test]
fn what_qupath_writes_is_understood() {
    let features = json!([
        square(10.0, 10.0, 100.0, &json!({
            "objectType": "annotation",
            "name": "Region <1>",
            "classification": { "name": "Tumor", "color": [200, 10, 20] },
            "isLocked": true,
            "measurements": [{ "name": "Area", "value": 1.5 }],
        })),
        square(50.0, 50.0, 10.0, &json!({
            "classification": { "name": "Stroma", "colorRGB": -6895466 },
        })),
        square(60.0, 60.0, 20.0, &json!({ "name": null, "color": [1, 2, 3, 255], "classification": null })),
        {
            "type": "Feature",
            "geometry": { "type": "MultiPoint", "coordinates": [[1, 2, 99], [3.5, 4]] },
            "properties": { "stroke": "#0a0B0c", "name": 7 },
            "nucleusGeometry": { "type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 1]]] },
        },
        { "type": "Feature", "geometry": { "type": "LineString", "coordinates": [[0, 0], [9, 9]] }, "properties": null },
        { "type": "Feature", "geometry": null, "properties": {} },
        { "type": "Feature", "geometry": { "type": "GeometryCollection", "geometries": [] }, "properties": {} },
        { "type": "Feature", "geometry": { "type": "MultiPolygon", "coordinates": [
            [[[0, 0], [90, 0], [90, 90], [0, 0]], [[40, 10], [60, 10], [60, 20], [40, 10]]],
            [[[200, 200], [210, 200], [210, 210], [200, 200]]],
        ] } },
    ]);
    let text = json!({ "type": "FeatureCollection", "features": features }).to_string();
    let all = shown(&text, "0,0,1000,1000", 1.0);
    assert_eq!((&all["total"], &all["skipped"]), (&json!(6), &json!(2)));
    let of = |field: &str| -> Vec<Value> {
        let features = all["features"].as_array().unwrap().iter();
        features.map(|feature| feature["properties"][field].clone()).collect()
    };
    // The largest first.
    assert_eq!(of("name"), ["", "Region <1>", "", "", "", "7"]);
    let colours = ["#c80000", "#c80a14", "#010203", "#96c896", "#c80000", "#0a0b0c"];
    assert_eq!(of("color"), colours);
    assert_eq!(of("class")[1], "Tumor");
    assert_eq!(all["classes"][1], json!({ "name": "Stroma", "color": "#96c896" }));
    let areas = &all["features"][0]["geometry"];
    assert_eq!(areas["type"], "MultiPolygon");
    let sizes: Vec<usize> = areas["coordinates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|area| area.as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [2, 1]);
    // A list of features, and a single one, are also accepted.
    assert_eq!(read(&features.to_string()).unwrap().count(), 6);
    assert_eq!(read(&features[0].to_string()).unwrap().count(), 1);
}

#[test]
fn derived_classes_of_qupath_have_names_and_colours_of_their_own() {
    let cell = |kind: &str, color: [u8; 3]| {
        square(
            0.0,
            0.0,
            10.0,
            &json!({
                "objectType": "cell", "classification": { "names": ["Tumor", kind], "color": color },
            }),
        )
    };
    let odd = square(0.0, 0.0, 10.0, &json!({ "classification": { "names": [7, null, [], "A"] } }));
    let features = json!([cell("Positive", [200, 0, 0]), cell("Negative", [0, 0, 200]), odd]);
    let all = shown(&features.to_string(), "0,0,100,100", 1.0);
    let classes = json!([
        { "name": "Tumor: Positive", "color": "#c80000" },
        { "name": "Tumor: Negative", "color": "#0000c8" },
        { "name": "7: A", "color": "#c80000" },
    ]);
    assert_eq!(all["classes"], classes);
    assert_eq!(all["features"][1]["properties"]["color"], "#0000c8");
}

#[test]
fn a_position_beyond_all_slides_costs_its_feature_alone() {
    let far = |x: Value| {
        let geometry = json!({ "type": "LineString", "coordinates": [[1, 2], [x, 4]] });
        json!({ "type": "Feature", "geometry": geometry, "properties": {} })
    };
    let good = square(1.0, 1.0, 5.0, &json!({}));
    let text = json!([far(json!(1e308)), good, far(json!(-1e9))]).to_string();
    let index = read(&text).unwrap();
    assert_eq!((index.count(), index.skipped), (1, 2));
}

#[test]
fn a_geometry_by_itself_is_read() {
    let ring = json!([[[0, 0], [9, 0], [9, 9], [0, 0]]]);
    for text in [
        json!({ "type": "Polygon", "coordinates": ring }),
        json!({ "coordinates": ring, "type": "Polygon" }),
        json!({ "type": "Point", "coordinates": [1, 2] }),
    ] {
        assert_eq!(read(&text.to_string()).unwrap().count(), 1, "{text}");
    }
    let collection = json!({ "type": "GeometryCollection", "geometries": [] });
    assert_eq!(read(&collection.to_string()).unwrap().skipped, 1);
    assert!(read("{\"type\":\"Polygon\"}").is_err());
}

#[test]
fn a_compressed_file_is_read_and_a_cut_one_refused() {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.geojson.gz");
    let compressed = |text: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let bytes = compressed(square(0.0, 0.0, 5.0, &json!({})).to_string().as_bytes());
    fs::write(&path, &bytes).unwrap();
    assert_eq!(indexed(&path, 1 << 20).unwrap().count(), 1);
    let file = beside(&SlideLocation::File { path: directory.path().join("a.svs"), within: None });
    assert_eq!(file.unwrap().name(), "a.geojson.gz");
    // Truncated, and not compressed at all.
    for wrong in [&bytes[..bytes.len() / 2], b"{}"] {
        fs::write(&path, wrong).unwrap();
        let wrong = indexed(&path, 1 << 20).err().unwrap();
        assert!(matches!(wrong, Wrong::File(_)), "{wrong:?}");
    }
}

#[test]
fn an_area_whose_box_alone_meets_the_view_is_not_counted() {
    let corner =
        json!({ "type": "Polygon", "coordinates": [[[0, 0], [100, 100], [0, 100], [0, 0]]] });
    let text = json!([
        { "type": "Feature", "geometry": corner, "properties": {} },
        square(80.0, 5.0, 5.0, &json!({})),
    ]);
    let some = shown(&text.to_string(), "70,0,100,30", 1.0);
    assert_eq!((&some["total"], some["features"].as_array().unwrap().len()), (&json!(1), 1));
}

#[test]
fn only_what_is_in_the_view_is_given_and_cut_to_it() {
    let mut features: Vec<Value> = (0..100)
        .map(|number| {
            let (x, y) = ((number % 10) as f32 * 100.0, (number / 10) as f32 * 100.0);
            square(x, y, 10.0, &json!({ "name": number.to_string() }))
        })
        .collect();
    features.push(square(-5000.0, -5000.0, 20_000.0, &json!({ "name": "all" })));
    let text = json!({ "type": "FeatureCollection", "features": features }).to_string();
    let some = shown(&text, "95,95,215,115", 2.0);
    let names: Vec<&str> = some["features"]
        .as_array()
        .unwrap()
        .iter()
        .map(|feature| feature["properties"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names[0], "all");
    assert_eq!(names.len(), 3);
    let ring = some["features"][0]["geometry"]["coordinates"][0][0].as_array().unwrap();
    for point in ring {
        let (x, y) = (point[0].as_f64().unwrap(), point[1].as_f64().unwrap());
        assert!((95.0..=215.0).contains(&x) && (95.0..=115.0).contains(&y), "{point}");
    }
    assert_eq!(ring.first(), ring.last());
    // From a distance they are dots.
    let far = shown(&text, "-6000,-6000,20000,20000", 0.05);
    assert_eq!(far["features"][1]["geometry"]["type"], "Point");
    assert_eq!(far["total"], 101);
}

#[test]
fn an_answer_is_bounded_and_says_what_is_left_out() {
    let points = |count: usize| {
        let points = (0..count).map(|at| json!([at % 1000, at / 1000]));
        points.collect::<Vec<Value>>()
    };
    let features = points(9000).into_iter().map(
        |point| json!({ "type": "Feature", "geometry": { "type": "Point", "coordinates": point } }),
    );
    let text = json!({ "type": "FeatureCollection", "features": features.collect::<Vec<_>>() })
        .to_string();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.geojson");
    fs::write(&path, &text).unwrap();
    let index = indexed(&path, 16 << 20).unwrap();
    let view = VisibleArea::parse(None, None).unwrap();
    let all = view::collection(&index, view);
    assert_eq!((all.total, all.features.len()), (9000, 4000));
    assert!(index.bytes() < 16 << 20);
}

/// The smallest budget with which a file of such features can be read, and the bytes then kept.
fn least(features: impl Iterator<Item = Value>) -> (usize, usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.geojson");
    fs::write(&path, Value::Array(features.collect()).to_string()).unwrap();
    let (mut too_little, mut enough) = (0, 64 << 20);
    while enough - too_little > 1 {
        let middle = usize::midpoint(too_little, enough);
        match indexed(&path, middle) {
            Ok(_) => enough = middle,
            Err(_) => too_little = middle,
        }
    }
    (enough, indexed(&path, enough).unwrap().bytes())
}

#[test]
fn all_that_is_kept_is_paid_for() {
    let feature = |kind: &str, coordinates: Value, properties: Value| {
        let geometry = json!({ "type": kind, "coordinates": coordinates });
        json!({ "type": "Feature", "geometry": geometry, "properties": properties })
    };
    let point = |number: usize| json!([number % 100, number / 100]);
    let shapes: [&dyn Fn(usize) -> Value; 6] = [
        &|number| feature("Point", point(number), json!({})),
        &|number| feature("Point", point(number), json!({ "name": "a" })),
        // Each has its own class.
        &|number| {
            let class = json!({ "name": number.to_string() });
            feature("Point", point(number), json!({ "classification": class }))
        },
        &|number| {
            let name = "\u{1f52c}".repeat(number % 300);
            feature("MultiPoint", json!([point(number), [7, 7]]), json!({ "name": name }))
        },
        // Many parts of one point each.
        &|number| {
            let line = json!([point(number)]);
            feature("MultiLineString", json!(vec![line; number % 20]), json!({}))
        },
        &|number| square((number % 50) as f32, 0.0, 10.0, &json!({ "classification": "one" })),
    ];
    for (at, shape) in shapes.iter().enumerate() {
        for count in [1, 5, 17, 400] {
            let (paid, kept) = least((0..count).map(shape));
            assert!(kept <= paid, "{at}: {kept} bytes of {count} are kept, {paid} paid for");
        }
    }
}

#[test]
fn what_is_broken_or_hostile_is_refused() {
    let feature = |geometry: &str| format!("{{\"type\":\"Feature\",\"geometry\":{geometry}}}");
    let polygon = |coordinates: &str| {
        feature(&format!("{{\"type\":\"Polygon\",\"coordinates\":{coordinates}}}"))
    };
    for (text, status) in [
        (String::new(), 500),
        ("{}".to_owned(), 500),
        ("7".to_owned(), 500),
        ("{\"features\":[{\"type\":".to_owned(), 500),
        ("{\"features\":7}".to_owned(), 500),
        (format!("{} 7", polygon("[]")), 500),
        (polygon("[[1,2],[3,4]]"), 500),
        (polygon("[[[1,2],[3]]]"), 500),
        (polygon("[[[1,2],[[3,4]]]]"), 500),
        (polygon("[[[[[[1,2]]]]]]"), 500),
        (polygon("[[[1e999,2],[3,4],[5,6]]]"), 500),
        (polygon("\"text\""), 500),
        (feature("{\"type\":\"Point\",\"coordinates\":[[[1,2]]]}"), 500),
        ("[".repeat(100_000), 500),
        (format!("{{\"a\":{}", "[".repeat(100_000)), 500),
        // Exceeds the budget of the tests.
        (polygon(&format!("[[{}[1,2]]]", "[1,2],".repeat(200_000))), 501),
        (polygon(&format!("[{}[]]", "[],".repeat(100_000))), 501),
        (format!("[{}]", vec![polygon("[[[1,2],[3,4],[5,6]]]"); 20_000].join(",")), 501),
    ] {
        let failure = read(&text).err().unwrap_or_else(|| panic!("{text:.60} is read"));
        assert_eq!(failure.status.as_u16(), status, "{text:.60}: {failure}");
    }
    // An empty collection is not an error.
    assert_eq!(read("{\"type\":\"FeatureCollection\",\"features\":[]}").unwrap().count(), 0);
    assert_eq!(read(&polygon("[]")).unwrap().skipped, 1);
}

#[test]
fn what_was_read_of_a_feature_that_is_left_out_is_paid_back() {
    let points = vec![json!([1, 2]); 20_000];
    // Without a type, and of an unknown one.
    for geometry in
        [json!({ "coordinates": points }), json!({ "type": "a", "coordinates": points })]
    {
        let feature = json!({ "type": "Feature", "geometry": geometry, "properties": {} });
        let features = vec![feature; 10];
        assert_eq!(read(&Value::Array(features).to_string()).unwrap().skipped, 10);
    }
}

#[test]
fn a_line_that_ends_where_it_begins_is_closed() {
    let line = json!([[0, 0], [90, 0], [90, 90], [0, 0]]);
    for (kind, coordinates) in [("LineString", line.clone()), ("MultiLineString", json!([line]))] {
        let geometry = json!({ "type": kind, "coordinates": coordinates });
        let text = json!({ "type": "Feature", "geometry": geometry, "properties": {} }).to_string();
        let all = shown(&text, "-10,-10,100,100", 1.0);
        let shown = &all["features"][0]["geometry"]["coordinates"][0];
        let expected = json!([[0.0, 0.0], [90.0, 0.0], [90.0, 90.0], [0.0, 0.0]]);
        assert_eq!(*shown, expected, "{kind}");
    }
}

#[test]
fn a_byte_order_mark_is_left_out() {
    let point = json!({"type": "Point", "coordinates": [1, 2]});
    let text = json!({"type": "Feature", "geometry": point, "properties": {}});
    assert_eq!(read(&format!("\u{feff}{text}")).unwrap().count(), 1);
    assert!(read("\u{feff}").is_err() && read("").is_err());
    assert!(read(&format!("\u{feff}\u{feff}{text}")).is_err());
}

#[test]
fn what_has_become_a_pipe_keeps_nobody_waiting_and_is_looked_at_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.geojson");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    let wrong = indexed(&path, 1 << 20).err().unwrap();
    assert!(matches!(wrong, Wrong::Now(_)), "{wrong:?}");
    assert_eq!(wrong.failure().status.as_u16(), 500);
    fs::remove_file(&path).unwrap();
    for broken in ["{", &"[".repeat(1000), "{\"type\": 1}"] {
        fs::write(&path, broken).unwrap();
        let wrong = indexed(&path, 1 << 20).err().unwrap();
        assert!(matches!(wrong, Wrong::File(_)), "{wrong:?}");
    }
}

#[test]
fn files_beside_a_slide_are_found_and_links_stay_inside() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().canonicalize().unwrap().join("root");
    fs::create_dir(&root).unwrap();
    let file_for = |name: &str| {
        let within = Some(Arc::from(root.as_path()));
        beside(&SlideLocation::File { path: root.join(name), within }).map(|beside| beside.name())
    };
    assert_eq!(file_for("a.svs"), None);
    fs::write(root.join("a.geojson"), "{}").unwrap();
    assert_eq!(file_for("a.svs").as_deref(), Some("a.geojson"));
    assert_eq!(file_for("a.ome.tiff").as_deref(), Some("a.geojson"));
    fs::write(root.join("a.svs.geojson"), "{}").unwrap();
    assert_eq!(file_for("a.svs").as_deref(), Some("a.svs.geojson"));
    fs::write(outer.path().join("secret.geojson"), "{}").unwrap();
    symlink("../secret.geojson", root.join("b.geojson")).unwrap();
    fs::create_dir(root.join("c.geojson")).unwrap();
    assert_eq!((file_for("b.svs"), file_for("c.svs")), (None, None));
    symlink("a.geojson", root.join("d.geojson")).unwrap();
    assert_eq!(file_for("d.svs").as_deref(), Some("a.geojson"));
    assert_eq!(beside(&SlideLocation::Address("http://host/a.svs".into())), None);
}

//! The validator of the IIIF consortium, with its test image.

use crate::common::{Service, run, script};
use std::process::Command;

/// It demands 400 for `!w,h` that is larger than the region. The standard requires the largest
/// image possible without enlarging (3.0, section 4.2), which is the behaviour here; the other
/// checks of this test are in `iiif/size.rs`.
const DIFFERENT: &str = "size_noup";

/// Its program with more patience: it gives up after five seconds, which are few for an unoptimized
/// server on a machine that runs other tests.
const PATIENT: &str = "import runpy, sys, urllib.request as library\n\
    impatient = library.urlopen\n\
    library.urlopen = lambda request, timeout=0: impatient(request, timeout=60)\n\
    runpy.run_path(sys.argv[1], run_name='__main__')\n";

#[test]
fn the_validator_of_the_consortium_agrees() {
    let python = script("iiif-validator");
    let directory = tempfile::tempdir().unwrap();
    // Its image: squares of colours that it knows.
    let image = "import sys\n\
        from PIL import Image\n\
        from iiif_validator.validator import ValidationInfo\n\
        colours = ValidationInfo().colorInfo\n\
        image = Image.new('RGB', (1000, 1000))\n\
        for x in range(10):\n    \
            for y in range(10):\n        \
                image.paste(colours[x][y], (x * 100, y * 100, x * 100 + 100, y * 100 + 100))\n\
        image.save(sys.argv[1])\n";
    let png = directory.path().join("squares.png");
    run(Command::new(&python).args(["-c", image]).arg(&png));
    let options = "--tile --pyramid --compression deflate --tile-width 128 --tile-height 128";
    crate::common::vips(
        directory.path(),
        &format!("tiffsave squares.png the-squares.tif {options}"),
    );
    let service = Service::of(&directory.path().join("the-squares.tif"));
    for (version, prefix) in [("2.0", "iiif/2"), ("3.0", "iiif/3")] {
        let output = Command::new(&python)
            .args(["-c", PATIENT])
            .arg(python.with_file_name("iiif-validate.py"))
            .args(["--server", &service.address.to_string(), "--prefix", prefix])
            .args(["--identifier", "the-squares.tif", "--version", version, "--level", "2", "-v"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let of = |verdict: &str| -> Vec<&str> {
            let lines = said.lines().filter_map(|line| line.strip_suffix(verdict));
            lines.filter_map(|line| line.split_once("] test ").map(|(_, name)| name)).collect()
        };
        let failed: Vec<&str> = of(" FAIL").into_iter().filter(|test| *test != DIFFERENT).collect();
        assert!(failed.is_empty(), "{version}: {failed:?}\n{said}");
        assert!(of(" PASS").len() > 20, "{version}:\n{said}");
    }
}

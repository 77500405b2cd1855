//! The units that wire/docs/virtual-machines.md has, to the letter, as systemd reads them.

use std::fs;
use std::path::Path;

use crate::harness::{Mode, Stage, perhaps_installed};

/// Every file of systemd's in the page: its path, and what it holds.
fn units() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/virtual-machines.md");
    let page = fs::read_to_string(page).expect("the page");
    let before = "`/etc/systemd/system/";
    let parts: Vec<&str> = page.split("```ini\n").collect();
    let pairs = parts.windows(2).map(|pair| {
        // The text between two blocks says last which file comes.
        let (_, named) = pair[0].rsplit_once(before).expect("the name of a unit");
        let name = named.split('`').next().expect("a name");
        let unit = pair[1].split("```").next().expect("a unit");
        (name.to_owned(), unit.to_owned())
    });
    pairs.collect()
}

#[test]
fn systemd_takes_the_units_of_the_page() {
    let units = units();
    assert_eq!(units.len(), 3, "{units:?}");
    let Some(analyze) = perhaps_installed("systemd-analyze") else {
        println!("left out: systemd-analyze is not installed");
        return;
    };
    let stage = Stage::new(Mode::Plain);
    // A system with nothing but these units, and what they name.
    let root = stage.path("root");
    let system = root.join("etc/systemd/system");
    for directory in [&system, &root.join("usr/local/bin"), &root.join("sbin")] {
        fs::create_dir_all(directory).expect("a directory");
    }
    for program in ["usr/local/bin/seekwire", "sbin/modprobe"] {
        fs::copy("/bin/true", root.join(program)).expect("a program");
    }
    for target in ["sysinit", "basic", "shutdown", "multi-user", "network"] {
        let file = system.join(format!("{target}.target"));
        fs::write(file, "[Unit]\nDescription=One of systemd's\n").expect("a file");
    }
    for (name, unit) in &units {
        fs::write(system.join(name), unit).expect("a file");
    }
    for (name, _) in &units {
        let mut verify = stage.plain_command(&analyze);
        verify.args(["verify", "--man=no", "--root"]).arg(&root).arg(name);
        let verified = stage.run(&mut verify);
        // Ignored settings are only reported on standard error.
        assert!(verified.status.success() && verified.stderr.is_empty(), "{}", verified.stderr);
    }
}

//! Builds in OpenSeadragon, the viewer in the pages. `scripts/openseadragon` fetches it and checks
//! its hash. Without a network, the program is built without the viewer, and prints a warning.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Names a file that the script has printed, for environments where it cannot run.
const VARIABLE: &str = "SEEKWIRE_OPENSEADRAGON";

fn main() {
    println!("cargo:rerun-if-env-changed={VARIABLE}");
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("openseadragon.js");
    let bytes = match source() {
        Ok(path) => {
            // If the file disappears, it is fetched again.
            println!("cargo:rerun-if-changed={}", path.display());
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        }
        Err(why) => {
            println!("cargo:warning=the viewer of `seekwire slides` is not built in: {why}");
            println!("cargo:rerun-if-changed=a file that there is not, so that it is tried again");
            Vec::new()
        }
    };
    fs::write(to, bytes).expect("cargo's directory can be written");
}

fn source() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(VARIABLE) {
        return Ok(path.into());
    }
    // Not env!: the directory may have moved since compilation.
    let here = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let script = Path::new(&here).join("../../scripts/openseadragon");
    println!("cargo:rerun-if-changed={}", script.display());
    let output = Command::new(&script).output();
    let output = output.map_err(|error| format!("{}: {error}", script.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("scripts/openseadragon failed").to_owned());
    }
    let path = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    Ok(path.trim_end().into())
}

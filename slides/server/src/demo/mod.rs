//! `seekwire slides --demo`: something to look at without a slide at hand.

mod synthetic;

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

/// Names a slide to show.
const VARIABLE: &str = "SEEKWIRE_DEMO_SLIDE";
/// Where `scripts/slide` puts its slide, relative to a program built by cargo.
const FETCHED: &str = "../slides/aperio.svs";
/// File name of the synthetic slide, the last choice.
const SYNTHETIC: &str = "synthetic.tif";

/// A slide, with annotations unless it is the user's own; a copy is deleted on drop.
pub(crate) struct Demo {
    pub(crate) location: String,
    /// Description of the slide.
    pub(crate) about: &'static str,
    _directory: Option<TempDir>,
}

impl Demo {
    /// The slide that the variable names, or else the tests' slide, or else a synthetic one.
    pub(crate) fn prepare() -> Result<Self> {
        if let Some(path) = env::var_os(VARIABLE) {
            let location = path
                .into_string()
                .ok()
                .with_context(|| format!("{VARIABLE}: a path that is not UTF-8"))?;
            return Ok(Self { location, about: "your slide", _directory: None });
        }
        let own = env::current_exe().ok();
        let fetched =
            own.as_deref().and_then(Path::parent).map(|directory| directory.join(FETCHED));
        let directory = tempfile::Builder::new().prefix("seekwire-slides-").tempdir()?;
        let (path, about) = match fetched.filter(|path| path.is_file()) {
            Some(real) => {
                let path = directory.path().join("aperio.svs");
                fs::copy(&real, &path).with_context(|| real.display().to_string())?;
                (path, "a real slide")
            }
            None => {
                let path = directory.path().join(SYNTHETIC);
                fs::write(&path, synthetic::slide()).with_context(|| path.display().to_string())?;
                (path, "a synthetic slide: a picture that was made here, not of tissue")
            }
        };
        annotate(&path)?;
        let location = path.into_os_string().into_string();
        let location = location.ok().context("the directory for temporary files is not UTF-8")?;
        Ok(Self { location, about, _directory: Some(directory) })
    }
}

/// Puts example annotations beside the slide.
fn annotate(slide: &Path) -> Result<()> {
    let around = (0..=64).map(|step| {
        let angle = f64::from(step % 64) / 64.0 * std::f64::consts::TAU;
        json!([(750.0 + 400.0 * angle.cos()).round(), (600.0 + 300.0 * angle.sin()).round()])
    });
    let ring: Vec<_> = around.collect();
    let example = json!({
        "type": "Feature",
        "geometry": { "type": "Polygon", "coordinates": [ring] },
        "properties": {
            "name": "An annotation",
            "classification": { "name": "Example", "color": [11, 87, 164] },
        },
    });
    let file: PathBuf = slide.with_extension("geojson");
    fs::write(&file, example.to_string()).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use seekwire_slides_image::{Limits, Region, Slide};

    #[test]
    fn what_is_made_is_a_slide() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SYNTHETIC);
        fs::write(&path, synthetic::slide()).unwrap();
        annotate(&path).unwrap();
        let slide = Slide::open(path.to_str().unwrap(), Limits::default()).unwrap();
        let sizes: Vec<_> =
            slide.levels().iter().map(|level| (level.width, level.height)).collect();
        assert_eq!(sizes, [(1536, 1280), (768, 640), (384, 320)]);
        let (across, down) = slide.microns_per_pixel().unwrap();
        assert!((across - 0.5).abs() < 1e-9 && (down - 0.5).abs() < 1e-9);
        let middle = slide.read(0, Region { x: 760, y: 630, width: 20, height: 20 }).unwrap();
        assert!(middle.pixels().iter().any(|part| *part < 200));
        let said = slide.properties().values().any(|value| value.starts_with("Synthetic"));
        assert!(said, "{:?}", slide.properties());
        assert!(directory.path().join("synthetic.geojson").exists());
    }
}

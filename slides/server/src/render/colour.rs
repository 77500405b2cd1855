//! Colours and ICC profiles (ICC.1:2022): conversion to sRGB, which browsers assume for images
//! without a profile.

use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use moxcms::{ColorProfile, Layout, Transform8BitExecutor, TransformOptions};
use seekwire_slides_image::Raster;
use serde::Serialize;

/// The treatment of colours of a slide that has a profile. Those of other slides are raw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum ColourMode {
    /// As they are stored.
    Raw,
    /// As they are stored, with the profile in the image.
    Embedded,
    /// Converted.
    Srgb,
}

/// Maximum profiles whose conversion tables are kept: enough for the scanners of one laboratory.
const KEPT: usize = 16;

fn table(icc: &[u8]) -> Result<Arc<Transform8BitExecutor>, String> {
    let wrong = |error| format!("the colour profile: {error:?}");
    let from = ColorProfile::new_from_slice(icc).map_err(wrong)?;
    let to = ColorProfile::new_srgb();
    let options = TransformOptions::default();
    let table = from.create_transform_8bit(Layout::Rgb, &to, Layout::Rgb, options);
    table.map(Arc::from).map_err(wrong)
}

/// Returns why a profile cannot be used for conversion, if so.
pub(crate) fn check(icc: &[u8]) -> Result<(), String> {
    let checked = catch_unwind(|| table(icc).map(drop));
    checked.unwrap_or_else(|_| Err("the colour profile: its reader panicked".to_owned()))
}

/// Converts to sRGB, and keeps the most recently used tables.
#[derive(Default)]
pub(crate) struct Conversions {
    cached: Mutex<Vec<CachedTransform>>,
}

struct CachedTransform {
    icc: Vec<u8>,
    table: Arc<Transform8BitExecutor>,
}

impl Conversions {
    /// Converts the colours of an image with this profile.
    pub(crate) fn convert(&self, icc: &[u8], raster: Raster) -> Result<Raster, String> {
        let table = self.table(icc)?;
        let (width, height) = (raster.width(), raster.height());
        let from = raster.into_pixels();
        let mut to = vec![0; from.len()];
        table.transform(&from, &mut to).map_err(|error| format!("the colours: {error:?}"))?;
        Raster::new(width, height, to).ok_or_else(|| "the colours: not as many as before".into())
    }

    fn table(&self, icc: &[u8]) -> Result<Arc<Transform8BitExecutor>, String> {
        let cached = || self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(transform) = cached().iter().find(|other| other.icc == icc) {
            return Ok(Arc::clone(&transform.table));
        }
        let table = table(icc)?;
        let mut cached = cached();
        if cached.len() == KEPT {
            cached.remove(0);
        }
        cached.push(CachedTransform { icc: icc.to_vec(), table: Arc::clone(&table) });
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_srgb_changes_nothing_and_another_one_does() {
        let conversions = Conversions::default();
        let pixels: Vec<u8> = (0..=255).flat_map(|level| [level, 255 - level, 77]).collect();
        let convert = |icc: &[u8]| {
            let raster = Raster::new(256, 1, pixels.clone()).unwrap();
            check(icc).unwrap();
            conversions.convert(icc, raster).unwrap().into_pixels()
        };
        let furthest = |other: &[u8]| {
            pixels.iter().zip(other).map(|(one, other)| one.abs_diff(*other)).max().unwrap()
        };
        assert!(furthest(&convert(&ColorProfile::new_srgb().encode().unwrap())) <= 2);
        // Encoded once, because the result contains the time.
        let adobe = ColorProfile::new_adobe_rgb().encode().unwrap();
        let wide = convert(&adobe);
        assert!(furthest(&wide) > 20);
        assert_eq!(convert(&adobe), wide);
        assert_eq!(conversions.cached.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_broken_profile_is_known_as_one() {
        let icc = ColorProfile::new_adobe_rgb().encode().unwrap();
        for length in [0, 4, 100, 131] {
            assert!(check(&icc[..length]).is_err(), "{length}");
        }
        for at in 0..icc.len() {
            let mut icc = icc.clone();
            icc[at] ^= 0x55;
            let _ = check(&icc);
        }
    }
}

//! Slides: the real one that `scripts/slide` fetches, and larger ones that vips makes by repeating
//! it. Those are synthetic, and reports say so.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::fs::Advice;

use super::pixels::Picture;
use super::view::{Region, Slide, SlideView};
use crate::launch::{Error, Mode, Program};

/// The slides of a run.
#[derive(Debug)]
pub(crate) struct Material {
    /// Directory of all of them.
    pub(crate) directory: PathBuf,
    /// The Aperio slide: one level, tiles of 240 pixels.
    pub(crate) real: Slide,
    /// Synthetic: all levels, each half as large as the one before, in tiles of 256 pixels.
    pub(crate) pyramid: Slide,
    /// Synthetic: as many pixels, one level.
    pub(crate) flat: Slide,
    /// Synthetic: as the pyramid, but large.
    pub(crate) large: Slide,
    /// The pixels of the real slide, as vips keeps them.
    pixels: PathBuf,
}

/// How often the real slide is repeated across and down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) across: u32,
    pub(crate) down: u32,
}

/// Width and height of the real slide, whose hash `scripts/slide` checks.
const REAL: (u32, u32) = (2220, 2967);
const REAL_TILE: u32 = 240;
const TILE: u32 = 256;

/// Layout of the slide with channels, which has as many samples as a slide of gigabytes in colours.
const FIVE: Layout = Layout { across: 3, down: 2 };
/// Distinct colours, and windows like those of a camera of 16 bits.
const CHANNELS: &str =
    "0:0000ff:200-12000,1:00ff00:300-20000,2:ff0000:250-30000,3:ffff00:400-9000,4:ff00ff:150-40000";
const MAKE: &str = include_str!("../../peer/slides_channels.py");

/// Making a slide of gigabytes takes minutes.
const SLIDE_BUILD_TIMEOUT: Duration = Duration::from_secs(1800);

/// Path of the slide that `scripts/slide` fetches, beside the build of `command`.
fn fetched(command: &Path) -> PathBuf {
    let build = command.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    build.join("slides/aperio.svs")
}

/// Why there are no slides, if so.
pub(crate) fn missing(command: &Path) -> Option<String> {
    let path = fetched(command);
    if !path.is_file() {
        return Some(format!(
            "there is no slide: {} is missing; `scripts/slide` fetches it",
            path.display()
        ));
    }
    let version = Program::new("vips", &Mode::Plain).arg("--version").run();
    version.err().map(|error| explained(error).to_string())
}

fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::NotInstalled { .. } => {
            anyhow!("vips is not installed (Debian package: libvips-tools)")
        }
        error => error.into(),
    }
}

/// An operation of vips.
fn vips<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<()> {
    let vips = Program::new("vips", &Mode::Plain).args(arguments).timeout(SLIDE_BUILD_TIMEOUT);
    vips.run().map(|_| ()).map_err(explained)
}

impl Material {
    /// Makes the missing slides; they are kept beside the build.
    ///
    /// # Errors
    ///
    /// If there is no real slide, no vips, or no room.
    pub(crate) fn make(
        command: &Path,
        layout: Layout,
        large: Layout,
        note: impl Fn(&str),
    ) -> Result<Self> {
        let fetched = fetched(command);
        let parent = fetched.parent().unwrap_or(Path::new("."));
        // A directory of its own, since servers look at all files in it.
        let directory = parent.join("lab");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let directory = directory.canonicalize()?;
        let real = Slide {
            file: "real.svs".to_owned(),
            width: REAL.0,
            height: REAL.1,
            tile: REAL_TILE,
            // A thumbnail, a label and a macro follow.
            images: 4,
            channels: None,
        };
        once(&directory.join(&real.file), |to| {
            fs::copy(&fetched, to).with_context(|| format!("cannot copy {}", fetched.display()))?;
            Ok(())
        })?;
        let pixels = directory.join("pixels.v");
        once(&pixels, |to| vips([Path::new("tiffload"), &fetched, to]))?;
        let made = |name: &str, layout: Layout, is_pyramid: bool| -> Result<Slide> {
            let Layout { across, down } = layout;
            let file = format!("{name}-{across}x{down}.tif");
            let (width, height) = (REAL.0 * across, REAL.1 * down);
            once(&directory.join(&file), |to| {
                note(&format!("making a synthetic slide of {width} x {height} pixels"));
                let pyramid = if is_pyramid { "pyramid," } else { "" };
                let to = format!(
                    "{}[tile,{pyramid}compression=jpeg,Q=85,tile-width={TILE},tile-height={TILE},strip,bigtiff]",
                    to.display()
                );
                let pixels = pixels.display().to_string();
                vips(["replicate", &pixels, &to, &across.to_string(), &down.to_string()])
            })?;
            // vips stops when a level fits into a tile.
            let halvings = (0u32..).find(|n| width.max(height) >> n <= TILE).unwrap_or(0);
            let images = if is_pyramid { 1 + halvings } else { 1 };
            Ok(Slide { file, width, height, tile: TILE, images, channels: None })
        };
        let pyramid = made("pyramid", layout, true)?;
        let flat = made("flat", layout, false)?;
        let large = if large == layout { pyramid.clone() } else { made("pyramid", large, true)? };
        Ok(Self { directory, real, pyramid, flat, large, pixels })
    }

    /// Makes the slide with channels, if it is not there yet, by a Python that has tifffile.
    ///
    /// # Errors
    ///
    /// If there is no room, or the Python fails.
    pub(crate) fn channels(&self, python: &Path) -> Result<Slide> {
        let Layout { across, down } = FIVE;
        let slide = Slide {
            file: format!("channels-{across}x{down}.ome.tif"),
            width: REAL.0 * across,
            height: REAL.1 * down,
            tile: TILE,
            images: 5,
            channels: Some(CHANNELS),
        };
        once(&self.path(&slide), |to| {
            let directory = tempfile::tempdir().context("cannot make a directory for pixels")?;
            let (script, source) =
                (directory.path().join("channels.py"), directory.path().join("a.ppm"));
            fs::write(&script, MAKE)?;
            vips([Path::new("copy"), &self.pixels, &source])?;
            let program = Program::new(python, &Mode::Plain).args([&script, &source]);
            let program = program.arg(to).arg(self.shown(&slide));
            let program = program.args([&across.to_string(), &down.to_string(), CHANNELS]);
            program.timeout(SLIDE_BUILD_TIMEOUT).run().map(drop).map_err(Into::into)
        })?;
        Ok(slide)
    }

    /// The pixels that a slide with channels shows.
    fn shown(&self, slide: &Slide) -> PathBuf {
        self.directory.join(format!("{}.ppm", slide.file))
    }

    pub(crate) fn path(&self, slide: &Slide) -> PathBuf {
        self.directory.join(&slide.file)
    }

    /// Bytes of the file.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub(crate) fn bytes(&self, slide: &Slide) -> Result<u64> {
        Ok(fs::metadata(self.path(slide))?.len())
    }

    /// A view as vips renders it.
    ///
    /// # Errors
    ///
    /// The error of vips.
    pub(crate) fn expected(&self, slide: &Slide, view: SlideView) -> Result<Picture> {
        let Region { x, y, width, height, to } = view.region(slide);
        let directory = tempfile::tempdir().context("cannot make a directory for pixels")?;
        let (part, shown) = (directory.path().join("part.v"), directory.path().join("shown.ppm"));
        // vips would read the real slide through OpenSlide, with transparency.
        let source = match slide.channels {
            Some(_) => self.shown(slide),
            None if *slide == self.real => self.pixels.clone(),
            None => self.path(slide),
        };
        let numbers = [x, y, width, height].map(|number| number.to_string());
        let text = |path: &Path| path.display().to_string();
        let mut crop = vec!["crop".to_owned(), text(&source), text(&part)];
        crop.extend(numbers);
        vips(crop)?;
        let (across, down) =
            (f64::from(to.0) / f64::from(width), f64::from(to.1) / f64::from(height));
        let mut scale = vec!["resize".to_owned(), text(&part), text(&shown), across.to_string()];
        scale.extend(["--vscale".to_owned(), down.to_string()]);
        vips(scale)?;
        let picture = Picture::of_ppm(&fs::read(&shown)?)?;
        ensure!(
            (picture.width, picture.height) == (to.0 as usize, to.1 as usize),
            "vips makes {} x {} pixels of {view:?}",
            picture.width,
            picture.height
        );
        Ok(picture)
    }

    /// Makes the kernel drop its cached pages of the file, which any user may request (it drops
    /// those that nobody maps or has changed). Returns the bytes that it keeps nevertheless, if
    /// `fincore` can report them.
    ///
    /// # Errors
    ///
    /// If the file is gone.
    pub(crate) fn forget(&self, slide: &Slide) -> Result<Option<u64>> {
        let path = self.path(slide);
        let file = File::open(&path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
            .with_context(|| format!("cannot drop {} from the page cache", path.display()))?;
        let fincore = Program::new("fincore", &Mode::Plain);
        let fincore = fincore.args(["--bytes", "--noheadings", "--output", "RES"]).arg(&path);
        Ok(fincore.run().ok().and_then(|finished| finished.stdout.trim().parse().ok()))
    }
}

/// Creates a file under another name and renames it, so that nobody ever finds a partial one.
fn once(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Servers ignore names that begin with a dot.
    let aside = path.with_file_name(format!(".{}-{name}", std::process::id()));
    let made = make(&aside).and_then(|()| {
        fs::rename(&aside, path).with_context(|| format!("cannot write {}", path.display()))
    });
    if made.is_err() {
        // The error to report is why it was not made.
        let _ = fs::remove_file(&aside);
    }
    made.with_context(|| format!("cannot make {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let why = missing(Path::new("/nowhere/bin/seekwire-lab")).unwrap();
        assert!(
            why.contains("/nowhere/slides/aperio.svs") && why.contains("scripts/slide"),
            "{why}"
        );
    }

    #[test]
    fn files_are_made_once_and_never_half() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("slide.tif");
        let failed = once(&path, |aside| {
            fs::write(aside, "half")?;
            anyhow::bail!("no room")
        });
        assert!(format!("{:#}", failed.unwrap_err()).ends_with("no room"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        once(&path, |aside| Ok(fs::write(aside, "whole")?)).unwrap();
        once(&path, |_| anyhow::bail!("made again")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    }
}

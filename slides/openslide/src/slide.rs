//! An open slide.

use crate::handle::Handle;
use crate::library::Library;
use crate::{Error, Result, pixels};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One level of a slide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Width in pixels.
    pub width: u64,
    /// Height in pixels.
    pub height: u64,
    /// Pixels of level 0 per pixel of this level, along a side.
    pub downsample: f64,
    /// Width and height of a stored tile, if OpenSlide reports them.
    pub tile: Option<(u32, u32)>,
}

/// An open slide. Any number of threads may use it at once.
pub struct Slide {
    library: &'static Library,
    path: CString,
    /// The shared handle; `None` after an error, until the next call.
    handle: Mutex<Option<Arc<Handle>>>,
    /// Held by the thread that opens a new handle.
    turn: Mutex<()>,
    levels: Vec<Level>,
    background: [u8; 3],
}

impl Slide {
    /// Opens a file. A format with several files is opened through the one that names the others.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::Generic`] and [`Error::Broken`]; also a path with a zero byte.
    pub fn open(library: &'static Library, path: &Path) -> Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::Argument("a path with a zero byte".into()))?;
        let handle = Handle::open(library, &path)?;
        let levels = levels(&handle)?;
        let background = handle.property(c"openslide.background-color");
        let background = background.and_then(|text| pixels::colour(&text)).unwrap_or([255; 3]);
        let (handle, turn) = (Mutex::new(Some(Arc::new(handle))), Mutex::new(()));
        Ok(Self { library, path, handle, turn, levels, background })
    }

    /// The levels, the largest first; there is at least one.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The slide's properties, in at most `most` bytes; the rest is left out.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn properties(&self, most: usize) -> Result<BTreeMap<String, String>> {
        self.call(|handle| handle.properties(most))
    }

    /// The colour profile of the levels; `None` if it has more than `most` bytes, or with versions
    /// of OpenSlide before 4.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn icc(&self, most: usize) -> Result<Option<Vec<u8>>> {
        self.call(|handle| handle.profile(most))
    }

    /// The names of the associated images, with width and height in pixels.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn associated(&self) -> Result<BTreeMap<String, (u32, u32)>> {
        self.call(|handle| {
            let names = handle.associated_names().into_iter();
            let sized = names.filter_map(|name| {
                let size = handle.associated_size(&name)?;
                Some((name.into_string().ok()?, size))
            });
            sized.collect()
        })
    }

    /// Width, height and pixels of an associated image, three bytes each: red, green and blue, over
    /// the background. It may have at most `most` pixels.
    ///
    /// # Errors
    /// [`Error::Broken`]; also no such image, or one with more pixels.
    pub fn read_associated(&self, name: &str, most: u64) -> Result<(u32, u32, Vec<u8>)> {
        let none = || Error::Argument(format!("no image {name} of at most {most} pixels"));
        let key = CString::new(name).map_err(|_| none())?;
        let image = self.call(|handle| handle.associated(&key, most))?;
        let (width, height, pixels) = image.ok_or_else(none)?;
        Ok((width, height, pixels::over(&pixels, self.background)))
    }

    /// The pixels of a level from `x`, `y` of that level on, three bytes each: red, green and blue,
    /// over the background, which also fills the area beyond the border. Temporarily takes four
    /// more bytes of memory per pixel.
    ///
    /// # Errors
    /// [`Error::Broken`]; also a level that does not exist.
    pub fn read(&self, level: usize, x: u64, y: u64, width: u32, height: u32) -> Result<Vec<u8>> {
        let none = || Error::Argument(format!("no level {level}"));
        let Level { downsample, .. } = self.levels.get(level).ok_or_else(none)?;
        // The nearest pixel of level 0, because OpenSlide takes coordinates of that level.
        let main = |coordinate: u64| (coordinate as f64 * downsample).round() as i64;
        let at = (main(x), main(y));
        let number = i32::try_from(level).map_err(|_| none())?;
        let pixels = self.call(|handle| handle.read(number, at, width, height))?;
        Ok(pixels::over(&pixels, self.background))
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Handle>>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function of a handle. A handle keeps its error, which may come from another thread's
    /// call: so the call is repeated with a new handle, which is shared only if it has no error.
    /// One thread at a time does this: each handle may have its own cache, and the other threads
    /// continue with the new handle.
    fn call<T>(&self, ask: impl Fn(&Handle) -> T) -> Result<T> {
        if let Some(answer) = self.shared(&ask) {
            return Ok(answer);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = self.shared(&ask) {
            return Ok(answer);
        }
        let handle = Handle::open(self.library, &self.path)?;
        if levels(&handle)? != self.levels {
            return Err(Error::Broken("the file has changed since it was opened".into()));
        }
        let answer = ask(&handle);
        handle.check()?;
        *self.current() = Some(Arc::new(handle));
        Ok(answer)
    }

    /// Calls the shared handle, if there is one. After an error it is abandoned.
    fn shared<T>(&self, ask: impl Fn(&Handle) -> T) -> Option<T> {
        let handle = self.current().clone()?;
        let answer = ask(&handle);
        if handle.check().is_ok() {
            return Some(answer);
        }
        let mut current = self.current();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &handle)) {
            *current = None;
        }
        // Closed, by its last user, without holding the lock.
        drop(current);
        drop(handle);
        None
    }
}

fn levels(handle: &Handle) -> Result<Vec<Level>> {
    let sizes = handle.levels();
    handle.check()?;
    let level = |(number, (width, height, downsample)): (usize, (i64, i64, f64))| {
        let side = |side| {
            let name = CString::new(format!("openslide.level[{number}].tile-{side}")).ok()?;
            handle.property(&name)?.parse().ok()
        };
        let (width, height) = (u64::try_from(width).ok()?, u64::try_from(height).ok()?);
        let is_sound = width > 0 && height > 0 && downsample.is_finite() && downsample > 0.0;
        is_sound.then(|| Level {
            width,
            height,
            downsample,
            tile: side("width").zip(side("height")),
        })
    };
    let levels: Option<Vec<Level>> = sizes.into_iter().enumerate().map(level).collect();
    let levels = levels.filter(|levels| !levels.is_empty());
    levels.ok_or_else(|| Error::Broken("a slide without pixels".into()))
}

//! A handle of OpenSlide. All calls into the library are here.

use crate::library::{Functions, Library, RawSlide};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;

/// The name of the reader for TIFF files that are not from a scanner.
const GENERIC: &str = "generic-tiff";

/// `openslide_t *`, closed on drop.
pub(crate) struct Handle {
    functions: &'static Functions,
    raw: NonNull<RawSlide>,
}

// SAFETY: all functions except `openslide_close` may be called from any threads at once, and that
// one from any thread when nothing else uses the handle, which the `&mut` of `drop` guarantees.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nothing else uses it.
        unsafe { (self.functions.close)(self.raw.as_ptr()) };
    }
}

impl Handle {
    /// Opens a file, without an error, unless its format is not a scanner's.
    pub(crate) fn open(library: &'static Library, path: &CStr) -> Result<Self> {
        let functions = &library.functions;
        // SAFETY: the path is a C string for the duration of the call; the library never changes or
        // frees the name that it returns.
        match unsafe { text((functions.detect_vendor)(path.as_ptr())) } {
            None => return Err(Error::Unknown),
            Some(vendor) if vendor == GENERIC => return Err(Error::Generic),
            Some(_) => {}
        }
        // SAFETY: the path is a C string for the duration of the call.
        let raw = unsafe { (functions.open)(path.as_ptr()) };
        let handle = Self { functions, raw: NonNull::new(raw).ok_or(Error::Unknown)? };
        handle.check()?;
        // Another file may have replaced the one that was checked.
        if handle.property(c"openslide.vendor").is_none_or(|vendor| vendor == GENERIC) {
            return Err(Error::Generic);
        }
        if let Some(cache) = functions.cache {
            // SAFETY: both are of this library; the cache is never released.
            unsafe { (cache.set)(handle.raw.as_ptr(), cache.shared.as_ptr()) };
        }
        Ok(handle)
    }

    /// Returns the handle's error, if it has one.
    pub(crate) fn check(&self) -> Result<()> {
        // SAFETY: the handle is open; the text belongs to it, and is copied at once.
        match unsafe { text((self.functions.error)(self.raw.as_ptr())) } {
            None => Ok(()),
            Some(what) => Err(Error::Broken(what)),
        }
    }

    /// Width, height and downsample of each level; empty if there is an error.
    pub(crate) fn levels(&self) -> Vec<(i64, i64, f64)> {
        let raw = self.raw.as_ptr();
        // SAFETY: the handle is open.
        let count = unsafe { (self.functions.level_count)(raw) };
        let level = |number| {
            let (mut width, mut height) = (-1, -1);
            // SAFETY: the handle is open; width and height outlive the call.
            unsafe { (self.functions.level_dimensions)(raw, number, &mut width, &mut height) };
            // SAFETY: the handle is open.
            let downsample = unsafe { (self.functions.level_downsample)(raw, number) };
            (width, height, downsample)
        };
        (0..count).map(level).collect()
    }

    /// Pixels of a level; `x` and `y` are in pixels of level 0.
    pub(crate) fn read(
        &self,
        level: i32,
        position: (i64, i64),
        width: u32,
        height: u32,
    ) -> Vec<u32> {
        let (x, y) = position;
        let mut pixels = vec![0; width as usize * height as usize];
        let (into, width, height) = (pixels.as_mut_ptr(), i64::from(width), i64::from(height));
        // SAFETY: the handle is open; there is room for `width * height` pixels.
        unsafe {
            (self.functions.read_region)(self.raw.as_ptr(), into, x, y, level, width, height);
        }
        pixels
    }

    /// The properties, in at most `most` bytes of names and values; others are left out.
    pub(crate) fn properties(&self, mut most: usize) -> BTreeMap<String, String> {
        let raw = self.raw.as_ptr();
        // SAFETY: the handle is open; the list belongs to it, and is read at once.
        let names = unsafe { texts((self.functions.property_names)(raw)) };
        let mut properties = BTreeMap::new();
        for name in names {
            let Some(value) = self.property(&name) else { continue };
            let bytes = name.as_bytes().len() + value.len();
            if bytes <= most {
                most -= bytes;
                properties.insert(name.to_string_lossy().into_owned(), value);
            }
        }
        properties
    }

    /// The value of a property.
    pub(crate) fn property(&self, name: &CStr) -> Option<String> {
        let get = self.functions.property_value;
        // SAFETY: the handle is open, and the name is a C string; the value belongs to the handle,
        // and is copied at once.
        unsafe { text(get(self.raw.as_ptr(), name.as_ptr())) }
    }

    /// The names of the associated images.
    pub(crate) fn associated_names(&self) -> Vec<CString> {
        // SAFETY: the handle is open; the list belongs to it, and is read at once.
        unsafe { texts((self.functions.associated_names)(self.raw.as_ptr())) }
    }

    /// Width and height of an associated image; `None` if none has that name.
    pub(crate) fn associated_size(&self, name: &CStr) -> Option<(u32, u32)> {
        let (mut width, mut height) = (-1, -1);
        let get = self.functions.associated_dimensions;
        // SAFETY: the handle is open, and the name is a C string; width and height outlive the
        // call.
        unsafe { get(self.raw.as_ptr(), name.as_ptr(), &mut width, &mut height) };
        Some((u32::try_from(width).ok()?, u32::try_from(height).ok()?))
    }

    /// The pixels of an associated image with its width and height, if it has at most `most`
    /// pixels.
    pub(crate) fn associated(&self, name: &CStr, most: u64) -> Option<(u32, u32, Vec<u32>)> {
        // Asked from this handle: when an earlier handle was opened, the file may have been another
        // one.
        let (width, height) = self.associated_size(name)?;
        let count = u64::from(width) * u64::from(height);
        if count > most {
            return None;
        }
        let mut pixels = vec![0; usize::try_from(count).ok()?];
        let read = self.functions.read_associated;
        // SAFETY: the handle is open, and the name is a C string; the buffer holds as many pixels
        // as this handle reports for the image.
        unsafe { read(self.raw.as_ptr(), name.as_ptr(), pixels.as_mut_ptr()) };
        Some((width, height, pixels))
    }

    /// The colour profile of the levels, if it has at most `most` bytes.
    pub(crate) fn profile(&self, most: usize) -> Option<Vec<u8>> {
        let profile = self.functions.profile?;
        let raw = self.raw.as_ptr();
        // SAFETY: the handle is open.
        let size = unsafe { (profile.size)(raw) };
        let size = usize::try_from(size).ok().filter(|size| (1..=most).contains(size))?;
        let mut bytes = vec![0; size];
        // SAFETY: the handle is open; the buffer has the size that it reports.
        unsafe { (profile.read)(raw, bytes.as_mut_ptr().cast()) };
        Some(bytes)
    }
}

/// Copies a C string; `None` if it is null.
///
/// # Safety
/// It is null, or a C string that does not change during the call.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Copies the strings of a null-terminated list.
///
/// # Safety
/// It is null, or such a list of C strings, and all of it does not change during the call.
unsafe fn texts(mut list: *const *const c_char) -> Vec<CString> {
    let mut copies = Vec::new();
    if list.is_null() {
        return copies;
    }
    // SAFETY: each pointer is in the list, because none before it held the terminating null.
    unsafe {
        while !(*list).is_null() {
            copies.push(CStr::from_ptr(*list).to_owned());
            list = list.add(1);
        }
    }
    copies
}

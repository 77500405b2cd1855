//! Loads the library with the dynamic linker.

use crate::{Error, Result};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// File names of versions 4 and 3.4.
const NAMES: [&str; 2] = ["libopenslide.so.1", "libopenslide.so.0"];
/// Bytes of decoded tiles that the library caches for all slides together. Versions before 4 cache
/// as many for each slide.
const CACHE: usize = 32 << 20;

/// `openslide_t`
#[repr(C)]
pub(crate) struct RawSlide {
    _opaque: [u8; 0],
}

/// Functions that came with version 4, for colour profiles.
#[derive(Clone, Copy)]
pub(crate) struct Profile {
    pub(crate) size: unsafe extern "C" fn(*mut RawSlide) -> i64,
    pub(crate) read: unsafe extern "C" fn(*mut RawSlide, *mut c_void),
}

/// A function that came with version 4, and the cache to set for each slide.
#[derive(Clone, Copy)]
pub(crate) struct Cache {
    pub(crate) set: unsafe extern "C" fn(*mut RawSlide, *mut c_void),
    pub(crate) shared: NonNull<c_void>,
}

type Texts = *const *const c_char;

/// The functions of the library, as `openslide.h` declares them.
pub(crate) struct Functions {
    pub(crate) detect_vendor: unsafe extern "C" fn(*const c_char) -> *const c_char,
    pub(crate) open: unsafe extern "C" fn(*const c_char) -> *mut RawSlide,
    pub(crate) close: unsafe extern "C" fn(*mut RawSlide),
    pub(crate) error: unsafe extern "C" fn(*mut RawSlide) -> *const c_char,
    pub(crate) level_count: unsafe extern "C" fn(*mut RawSlide) -> i32,
    pub(crate) level_dimensions: unsafe extern "C" fn(*mut RawSlide, i32, *mut i64, *mut i64),
    pub(crate) level_downsample: unsafe extern "C" fn(*mut RawSlide, i32) -> f64,
    pub(crate) read_region: unsafe extern "C" fn(*mut RawSlide, *mut u32, i64, i64, i32, i64, i64),
    pub(crate) property_names: unsafe extern "C" fn(*mut RawSlide) -> Texts,
    pub(crate) property_value: unsafe extern "C" fn(*mut RawSlide, *const c_char) -> *const c_char,
    pub(crate) associated_names: unsafe extern "C" fn(*mut RawSlide) -> Texts,
    pub(crate) associated_dimensions:
        unsafe extern "C" fn(*mut RawSlide, *const c_char, *mut i64, *mut i64),
    pub(crate) read_associated: unsafe extern "C" fn(*mut RawSlide, *const c_char, *mut u32),
    pub(crate) profile: Option<Profile>,
    pub(crate) cache: Option<Cache>,
}

// SAFETY: `Functions` is `Send` and `Sync` except for the cache, which belongs to the library, is
// never released, and is only passed to functions that may be called from any thread.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

/// The loaded OpenSlide library. It stays loaded for the rest of the process.
pub struct Library {
    pub(crate) functions: Functions,
    version: String,
}

impl Library {
    /// The library of this system. The first call loads it; later calls return the same result.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
        let library = LIBRARY.get_or_init(|| {
            let mut wrong = Vec::new();
            for name in NAMES {
                // SAFETY: on this system these names are OpenSlide's, as for every program that is
                // linked with it.
                match unsafe { Self::load(name.as_ref()) } {
                    Ok(library) => return Ok(library),
                    Err(Error::Missing(what)) => wrong.push(what),
                    Err(error) => return Err(error),
                }
            }
            Err(Error::Missing(wrong.join("; ")))
        });
        library.as_ref().map_err(Error::clone)
    }

    /// Loads a library by its name or path.
    ///
    /// # Safety
    /// If a library of that name can be loaded and has functions of these names, it must be
    /// OpenSlide 3.4 or newer.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub unsafe fn load(name: &OsStr) -> Result<Self> {
        // SAFETY: the caller guarantees that it is OpenSlide. Its initialisers and those of its
        // dependencies require nothing from us.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| missing(&error))?;
        // SAFETY: the types are those of `openslide.h`.
        let functions = unsafe { functions(&library) }.map_err(|error| missing(&error))?;
        // SAFETY: `const char *openslide_get_version(void)`, of that library; its string is
        // constant.
        let version = unsafe {
            let get: unsafe extern "C" fn() -> *const c_char =
                symbol(&library, "openslide_get_version").map_err(|error| missing(&error))?;
            CStr::from_ptr(get()).to_string_lossy().into_owned()
        };
        // GLib's threads and tables are never torn down, and the functions stay in use.
        std::mem::forget(library);
        Ok(Self { functions, version })
    }

    /// Its version, such as `3.4.1`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn missing(error: &libloading::Error) -> Error {
    Error::Missing(error.to_string())
}

/// A function of the library.
///
/// # Safety
/// `T` is the pointer type of that function, and nothing uses it after the library is unloaded.
unsafe fn symbol<T: Copy>(
    library: &libloading::Library,
    name: &str,
) -> std::result::Result<T, libloading::Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol)
}

/// # Safety
/// The library is OpenSlide, and is never unloaded.
unsafe fn functions(
    library: &libloading::Library,
) -> std::result::Result<Functions, libloading::Error> {
    // SAFETY: the fields have the types that `openslide.h` gives to these functions; the caller
    // guarantees the rest.
    unsafe {
        Ok(Functions {
            detect_vendor: symbol(library, "openslide_detect_vendor")?,
            open: symbol(library, "openslide_open")?,
            close: symbol(library, "openslide_close")?,
            error: symbol(library, "openslide_get_error")?,
            level_count: symbol(library, "openslide_get_level_count")?,
            level_dimensions: symbol(library, "openslide_get_level_dimensions")?,
            level_downsample: symbol(library, "openslide_get_level_downsample")?,
            read_region: symbol(library, "openslide_read_region")?,
            property_names: symbol(library, "openslide_get_property_names")?,
            property_value: symbol(library, "openslide_get_property_value")?,
            associated_names: symbol(library, "openslide_get_associated_image_names")?,
            associated_dimensions: symbol(library, "openslide_get_associated_image_dimensions")?,
            read_associated: symbol(library, "openslide_read_associated_image")?,
            profile: profile(library).ok(),
            cache: cache(library).ok().flatten(),
        })
    }
}

/// # Safety
/// As [`functions`].
unsafe fn profile(
    library: &libloading::Library,
) -> std::result::Result<Profile, libloading::Error> {
    // SAFETY: as in `functions`.
    unsafe {
        Ok(Profile {
            size: symbol(library, "openslide_get_icc_profile_size")?,
            read: symbol(library, "openslide_read_icc_profile")?,
        })
    }
}

/// # Safety
/// As [`functions`].
unsafe fn cache(
    library: &libloading::Library,
) -> std::result::Result<Option<Cache>, libloading::Error> {
    // SAFETY: as in `functions`; the cache is never released, so every slide may use it.
    unsafe {
        let create: unsafe extern "C" fn(usize) -> *mut c_void =
            symbol(library, "openslide_cache_create")?;
        let set = symbol(library, "openslide_set_cache")?;
        Ok(NonNull::new(create(CACHE)).map(|shared| Cache { set, shared }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        // SAFETY: there is no such library.
        let error = unsafe { Library::load("libopenslide.so.none".as_ref()) }.err().unwrap();
        assert!(error.to_string().contains("libopenslide.so.none"), "{error}");
        // SAFETY: this is another library, which has none of the functions, so none is called.
        let error = unsafe { Library::load("libc.so.6".as_ref()) }.err().unwrap();
        assert!(error.to_string().contains("openslide_detect_vendor"), "{error}");
    }
}

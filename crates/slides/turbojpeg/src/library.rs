//! The library as the dynamic linker finds it.

use crate::{Error, Result};
use std::ffi::{CStr, OsStr, c_char, c_int, c_uchar, c_ulong, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

const NAME: &str = "libturbojpeg.so.0";
const TJERR_WARNING: c_int = 0;

type Handle = *mut c_void;

/// The functions of the library, as `turbojpeg.h` declares them.
pub(crate) struct Functions {
    init_decompress: unsafe extern "C" fn() -> Handle,
    init_compress: unsafe extern "C" fn() -> Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    error: unsafe extern "C" fn(Handle) -> *const c_char,
    error_code: unsafe extern "C" fn(Handle) -> c_int,
    pub(crate) header: unsafe extern "C" fn(
        Handle,
        *const c_uchar,
        c_ulong,
        *mut c_int,
        *mut c_int,
        *mut c_int,
    ) -> c_int,
    pub(crate) decompress: unsafe extern "C" fn(
        Handle,
        *const c_uchar,
        c_ulong,
        *mut c_uchar,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
    ) -> c_int,
    pub(crate) buffer_size: unsafe extern "C" fn(c_int, c_int, c_int) -> c_ulong,
    pub(crate) compress: unsafe extern "C" fn(
        Handle,
        *const c_uchar,
        c_int,
        c_int,
        c_int,
        c_int,
        *mut *mut c_uchar,
        *mut c_ulong,
        c_int,
        c_int,
        c_int,
    ) -> c_int,
}

/// libjpeg-turbo, loaded. It stays for the rest of the process.
pub struct Library {
    pub(crate) functions: Functions,
}

/// What of the library one image needs, ended when it is dropped.
pub(crate) struct Instance {
    library: &'static Library,
    raw: NonNull<c_void>,
}

impl Library {
    /// The library of this system; the first call loads it, and what came of that is so for all
    /// later ones.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn get() -> Result<&'static Self> {
        static FOUND: OnceLock<Result<Library>> = OnceLock::new();
        // SAFETY: this name is libjpeg-turbo's on this system, as it is for every program that is
        // linked with it.
        let found = FOUND.get_or_init(|| unsafe { Self::load(NAME.as_ref()) });
        found.as_ref().map_err(Error::clone)
    }

    /// Loads a library by its name or path.
    ///
    /// # Safety
    /// It must be libjpeg-turbo, if it can be loaded and has functions of these names.
    ///
    /// # Errors
    /// [`Error::Missing`].
    unsafe fn load(name: &OsStr) -> Result<Self> {
        let missing = |error: libloading::Error| Error::Missing(error.to_string());
        // SAFETY: the caller says that it is libjpeg-turbo, which does nothing when it is loaded.
        let library = unsafe { libloading::Library::new(name) }.map_err(missing)?;
        // SAFETY: the types are those of `turbojpeg.h`, and the library is never unloaded.
        let functions = unsafe { functions(&library) }.map_err(missing)?;
        // The functions stay.
        std::mem::forget(library);
        Ok(Self { functions })
    }

    pub(crate) fn decompressor(&'static self) -> Result<Instance> {
        // SAFETY: it takes nothing.
        self.instance(unsafe { (self.functions.init_decompress)() })
    }

    pub(crate) fn compressor(&'static self) -> Result<Instance> {
        // SAFETY: it takes nothing.
        self.instance(unsafe { (self.functions.init_compress)() })
    }

    fn instance(&'static self, raw: Handle) -> Result<Instance> {
        let raw = NonNull::new(raw);
        let raw = raw.ok_or_else(|| Error::Broken("libjpeg-turbo has no memory".into()))?;
        Ok(Instance { library: self, raw })
    }
}

impl Instance {
    pub(crate) fn raw(&self) -> Handle {
        self.raw.as_ptr()
    }

    pub(crate) fn functions(&self) -> &'static Functions {
        &self.library.functions
    }

    /// The error of the last call, unless it was only a warning: then there is a result.
    pub(crate) fn error(&self) -> Result<()> {
        // SAFETY: it is open.
        if unsafe { (self.library.functions.error_code)(self.raw()) } == TJERR_WARNING {
            return Ok(());
        }
        // SAFETY: it is open; the text is the handle's, and is copied at once.
        let text = unsafe { CStr::from_ptr((self.library.functions.error)(self.raw())) };
        Err(Error::Broken(text.to_string_lossy().into_owned()))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: it was made by this library, and nobody else has it.
        unsafe { (self.library.functions.destroy)(self.raw.as_ptr()) };
    }
}

/// # Safety
/// The library is libjpeg-turbo, and is never unloaded.
unsafe fn functions(
    library: &libloading::Library,
) -> std::result::Result<Functions, libloading::Error> {
    // SAFETY: the fields have the types that `turbojpeg.h` gives to these functions; the rest is
    // said by the caller.
    unsafe {
        Ok(Functions {
            init_decompress: *library.get(b"tjInitDecompress")?,
            init_compress: *library.get(b"tjInitCompress")?,
            destroy: *library.get(b"tjDestroy")?,
            error: *library.get(b"tjGetErrorStr2")?,
            error_code: *library.get(b"tjGetErrorCode")?,
            header: *library.get(b"tjDecompressHeader2")?,
            decompress: *library.get(b"tjDecompress2")?,
            buffer_size: *library.get(b"tjBufSize")?,
            compress: *library.get(b"tjCompress2")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        // SAFETY: there is no such library.
        let error = unsafe { Library::load("libturbojpeg.so.none".as_ref()) }.err().unwrap();
        assert!(error.to_string().contains("libturbojpeg.so.none"), "{error}");
        // SAFETY: it is another library, which has none of the functions, so that none is called.
        let error = unsafe { Library::load("libc.so.6".as_ref()) }.err().unwrap();
        assert!(error.to_string().contains("tjInitDecompress"), "{error}");
    }
}

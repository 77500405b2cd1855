//! Loads the library with the dynamic linker.

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

/// The loaded libjpeg-turbo library. It stays loaded for the rest of the process.
pub struct Library {
    pub(crate) functions: Functions,
}

/// The library's state for one image, destroyed on drop.
pub(crate) struct CodecHandle {
    library: &'static Library,
    raw: NonNull<c_void>,
}

impl Library {
    /// The library of this system. The first call loads it; later calls return the same result.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
        // SAFETY: on this system this name is libjpeg-turbo's, as for every program that is linked
        // with it.
        let library = LIBRARY.get_or_init(|| unsafe { Self::load(NAME.as_ref()) });
        library.as_ref().map_err(Error::clone)
    }

    /// Loads a library by its name or path.
    ///
    /// # Safety
    /// If a library of that name can be loaded and has functions of these names, it must be
    /// libjpeg-turbo.
    ///
    /// # Errors
    /// [`Error::Missing`].
    unsafe fn load(name: &OsStr) -> Result<Self> {
        let missing = |error: libloading::Error| Error::Missing(error.to_string());
        // SAFETY: the caller guarantees that it is libjpeg-turbo, whose loading has no side
        // effects.
        let library = unsafe { libloading::Library::new(name) }.map_err(missing)?;
        // SAFETY: the types are those of `turbojpeg.h`, and the library is never unloaded.
        let functions = unsafe { functions(&library) }.map_err(missing)?;
        // The functions stay in use.
        std::mem::forget(library);
        Ok(Self { functions })
    }

    pub(crate) fn decompressor(&'static self) -> Result<CodecHandle> {
        // SAFETY: it takes no arguments.
        self.instance(unsafe { (self.functions.init_decompress)() })
    }

    pub(crate) fn compressor(&'static self) -> Result<CodecHandle> {
        // SAFETY: it takes no arguments.
        self.instance(unsafe { (self.functions.init_compress)() })
    }

    fn instance(&'static self, raw: Handle) -> Result<CodecHandle> {
        let raw = NonNull::new(raw);
        let raw = raw.ok_or_else(|| Error::Broken("libjpeg-turbo is out of memory".into()))?;
        Ok(CodecHandle { library: self, raw })
    }
}

impl CodecHandle {
    pub(crate) fn raw(&self) -> Handle {
        self.raw.as_ptr()
    }

    pub(crate) fn functions(&self) -> &'static Functions {
        &self.library.functions
    }

    /// The error of the last call; a mere warning counts as success, because there is a result.
    pub(crate) fn error(&self) -> Result<()> {
        // SAFETY: the handle is open.
        if unsafe { (self.library.functions.error_code)(self.raw()) } == TJERR_WARNING {
            return Ok(());
        }
        Err(Error::Broken(self.message()))
    }

    /// The error or the warning of the last call.
    pub(crate) fn message(&self) -> String {
        // SAFETY: the handle is open; the text belongs to it, and is copied at once.
        let text = unsafe { CStr::from_ptr((self.library.functions.error)(self.raw())) };
        text.to_string_lossy().into_owned()
    }
}

impl Drop for CodecHandle {
    fn drop(&mut self) {
        // SAFETY: this library made it, and nothing else uses it.
        unsafe { (self.library.functions.destroy)(self.raw.as_ptr()) };
    }
}

/// # Safety
/// The library is libjpeg-turbo, and is never unloaded.
unsafe fn functions(
    library: &libloading::Library,
) -> std::result::Result<Functions, libloading::Error> {
    // SAFETY: the fields have the types that `turbojpeg.h` gives to these functions; the caller
    // guarantees the rest.
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
        // SAFETY: this is another library, which has none of the functions, so none is called.
        let error = unsafe { Library::load("libc.so.6".as_ref()) }.err().unwrap();
        assert!(error.to_string().contains("tjInitDecompress"), "{error}");
    }
}

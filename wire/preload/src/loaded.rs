//! Functions of objects that are outside the global scope.
//!
//! Objects opened with RTLD_LOCAL bind to the functions of this library, which is in the global
//! scope, before their own and those of their dependencies, which are not: `dlsym(RTLD_NEXT)` does
//! not find them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use crate::ffi::guarded;

/// The function `name` that the calling object would have without this library; otherwise that of
/// the first object that has one. Null if none has.
///
/// It exists while that object is open: code that kept the pointer might call unmapped memory. Not
/// for signal handlers, since it waits for the dynamic linker, like every `dlsym`. No lock of the
/// library may be held.
#[cold]
pub(crate) fn function(name: &CStr) -> *mut c_void {
    let find = || {
        let in_caller = file_of(caller())
            .map(|file| function_in(&file, name))
            .filter(|function| !function.is_null());
        in_caller.unwrap_or_else(|| {
            let all = files();
            let mut functions = all.iter().map(|file| function_in(file, name));
            functions.find(|function| !function.is_null()).unwrap_or(ptr::null_mut())
        })
    };
    guarded(find).unwrap_or(ptr::null_mut())
}

/// The function `name` in the object of the file `file`, or in its dependencies; null if it is not
/// loaded, or if the function found is in a copy of this library.
fn function_in(file: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: they take C strings, and the handle while it is open. Nothing is loaded, so no code
    // of the program runs. Only if another thread has closed the object in the meantime, dlclose
    // runs the code that would otherwise have run in that thread.
    unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if handle.is_null() {
            return ptr::null_mut();
        }
        let mut function = libc::dlsym(handle, name.as_ptr());
        if !function.is_null() {
            // A second copy of this library would ask the first one, which has called it.
            let of_copy = libc::dlsym(handle, c"seekwire_stand_back".as_ptr());
            if object_of(function).dli_fbase == object_of(of_copy).dli_fbase {
                function = ptr::null_mut();
            }
        }
        libc::dlclose(handle);
        function
    }
}

/// The dynamic linker's information about the object at `address`: nulls if there is none.
pub(crate) fn object_of(address: *const c_void) -> libc::Dl_info {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: it compares the address with those of objects, and writes to a live structure.
    unsafe { libc::dladdr(address, &raw mut info) };
    info
}

/// The file of the object at `address`, which this thread is about to return to.
fn file_of(address: *const c_void) -> Option<CString> {
    let file = object_of(address).dli_fname;
    // SAFETY: a C string of the dynamic linker, which exists while the object is open. If it were
    // closed now, this call could not return to it.
    let file = (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) });
    file.filter(|file| is_path(file)).map(CStr::to_owned)
}

/// Excludes the program and objects of the kernel, which cannot be opened by name.
fn is_path(file: &CStr) -> bool {
    file.to_bytes().contains(&b'/')
}

/// The files of all loaded objects. They are opened later, because dlopen takes other locks before
/// the linker's lock that is held here.
fn files() -> Vec<CString> {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _: usize,
        files: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker's data about an object, with a C string, and the list below, which
        // nothing else uses during the call.
        let (name, files) = unsafe { ((*info).dlpi_name, &mut *files.cast::<Vec<CString>>()) };
        // SAFETY: as above.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
        files.extend(name.filter(|name| is_path(name)).map(CStr::to_owned));
        0
    }
    let mut files: Vec<CString> = Vec::new();
    // SAFETY: `note` is handed the list, which outlives the call, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut files).cast()) };
    files
}

/// The address to which this library returns; null if unknown. A function that ends with a jump to
/// this library is invisible: then this is where that function returns to.
fn caller() -> *const c_void {
    /// _Unwind_Reason_Code
    const GO_ON: c_int = 0;
    const STOP: c_int = 4;

    #[repr(C)]
    struct Context {
        _opaque: [u8; 0],
    }

    struct Search {
        ours: *mut c_void,
        caller: *const c_void,
    }

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            step: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
            search: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut Context) -> usize;
    }

    unsafe extern "C" fn step(context: *mut Context, search: *mut c_void) -> c_int {
        // SAFETY: the unwinder's own context, and the value below, which nothing else uses during
        // the call.
        let (at, search) = unsafe { (_Unwind_GetIP(context), &mut *search.cast::<Search>()) };
        let at = ptr::without_provenance(at);
        if object_of(at).dli_fbase == search.ours {
            return GO_ON;
        }
        search.caller = at;
        STOP
    }

    let ours = object_of(caller as *const c_void).dli_fbase;
    let mut search = Search { ours, caller: ptr::null() };
    // SAFETY: `step` has the type that the unwinder calls, gets a value that outlives the call, and
    // does not unwind. All frames that are gone through are this library's, which are built to be
    // unwound.
    unsafe { _Unwind_Backtrace(step, (&raw mut search).cast()) };
    search.caller
}

//! Functions of objects that are outside the global scope.
//!
//! What is opened with RTLD_LOCAL binds to the functions of this library, which is in the global
//! scope, before those of its own and of what it needs, which are not: `dlsym(RTLD_NEXT)` does not
//! find them.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr;

use crate::ffi::guarded;

/// The function `name` that the object that has called this library would have without it; or else
/// that of the first object that has one. Null where none has.
///
/// It is there for as long as that object is open: whoever kept it might call what has been
/// unmapped. Not for signal handlers, since it waits for the dynamic linker, as every `dlsym` does;
/// no lock of the library's may be held.
#[cold]
pub(crate) fn function(name: &CStr) -> *mut c_void {
    let find = || {
        let in_caller =
            file_of(caller()).map(|file| function_in(&file, name)).filter(|found| !found.is_null());
        in_caller.unwrap_or_else(|| {
            let all = files();
            let mut found = all.iter().map(|file| function_in(file, name));
            found.find(|found| !found.is_null()).unwrap_or(ptr::null_mut())
        })
    };
    guarded(find).unwrap_or(ptr::null_mut())
}

/// The function `name` in the object of the file `file`, or in what that needs; null if it is not
/// loaded, or what is found is a copy of this library.
fn function_in(file: &CStr, name: &CStr) -> *mut c_void {
    // SAFETY: they take C strings, and the handle while it is open. Nothing is loaded, so no code
    // of the program's runs; in dlclose it does if another thread closed the object meanwhile, for
    // the last time but for this: what it would have run there.
    unsafe {
        let handle = libc::dlopen(file.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if handle.is_null() {
            return ptr::null_mut();
        }
        let mut found = libc::dlsym(handle, name.as_ptr());
        if !found.is_null() {
            // A second copy of this library would ask the first one, which has asked it.
            let of_copy = libc::dlsym(handle, c"seekwire_stand_back".as_ptr());
            if object_of(found).dli_fbase == object_of(of_copy).dli_fbase {
                found = ptr::null_mut();
            }
        }
        libc::dlclose(handle);
        found
    }
}

/// What the dynamic linker says of the object at `address`: nulls if there is none.
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
    // SAFETY: a C string of the dynamic linker's, which is there for as long as the object is open.
    // Whoever closed it now could not have this call return.
    let file = (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) });
    file.filter(|file| is_path(file)).map(CStr::to_owned)
}

/// Not those of the program and of what the kernel maps, which cannot be opened by name.
fn is_path(file: &CStr) -> bool {
    file.to_bytes().contains(&b'/')
}

/// The files of all objects that are loaded. They are opened later: the linker's lock that is held
/// meanwhile is one that dlopen takes after others.
fn files() -> Vec<CString> {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _: usize,
        files: *mut c_void,
    ) -> c_int {
        // SAFETY: what the linker says of an object, with a C string, and the list below, which
        // nobody else uses meanwhile.
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

/// Where this library returns to; null if that is not known. A function whose last call is a jump
/// is not seen: then it is where that returns to.
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
        found: *const c_void,
    }

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            step: unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int,
            search: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut Context) -> usize;
    }

    unsafe extern "C" fn step(context: *mut Context, search: *mut c_void) -> c_int {
        // SAFETY: the unwinder's own context, and the value below, which nobody else uses
        // meanwhile.
        let (at, search) = unsafe { (_Unwind_GetIP(context), &mut *search.cast::<Search>()) };
        let at = ptr::without_provenance(at);
        if object_of(at).dli_fbase == search.ours {
            return GO_ON;
        }
        search.found = at;
        STOP
    }

    let ours = object_of(caller as *const c_void).dli_fbase;
    let mut search = Search { ours, found: ptr::null() };
    // SAFETY: `step` has the type that the unwinder calls, gets a value that outlives the call, and
    // does not unwind. All frames that are gone through are this library's, which are built to be
    // unwound.
    unsafe { _Unwind_Backtrace(step, (&raw mut search).cast()) };
    search.found
}

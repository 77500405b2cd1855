//! The functions that unwind the stack: for panics, which are caught, and for `pthread_cancel`.
//!
//! Minimal images have no libgcc_s.so.1, so libseekwire.so contains a copy of these functions
//! (build.rs). If that file exists, its functions must be used nevertheless: the C library cancels
//! threads with them, and the functions of one copy abort on a stack that another copy is
//! unwinding. So the linker redirects each call to a jump here (`ld --wrap`), and the jump leads to
//! the copy that [`start`] has chosen.
//!
//! libseekwire.a wraps nothing: its table is empty and the jumps are not used.

use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::ptr;

/// Calls a macro with the name of each function. build.rs passes the same names to the linker.
macro_rules! for_each_function {
    ($macro:ident) => {
        $macro! {
            "_Unwind_Backtrace" "_Unwind_DeleteException" "_Unwind_GetDataRelBase" "_Unwind_GetIP"
            "_Unwind_GetIPInfo" "_Unwind_GetLanguageSpecificData" "_Unwind_GetRegionStart"
            "_Unwind_GetTextRelBase" "_Unwind_RaiseException" "_Unwind_Resume" "_Unwind_SetGR"
            "_Unwind_SetIP"
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    ($name:literal) => {
        concat!("jmp qword ptr [rip + .Lseekwire", $name, "]")
    };
}

// A call may clobber register 16 before it reaches the called function (AAPCS64, 6.1.1).
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    ($name:literal) => {
        concat!(
            "adrp x16, .Lseekwire",
            $name,
            "\nldr x16, [x16, :lo12:.Lseekwire",
            $name,
            "]\nbr x16"
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! branch {
    () => {
        "jmp"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! branch {
    () => {
        "b"
    };
}

macro_rules! table {
    ($($name:literal)*) => {
        const NAMES: [&str; [$($name),*].len()] = [$(concat!($name, "\0")),*];

        global_asm!(
            ".pushsection .data.seekwire_unwinder, \"aw\"",
            ".balign 8",
            ".globl seekwire_unwinder",
            ".hidden seekwire_unwinder",
            "seekwire_unwinder:",
            $(
                concat!(".weak __real_", $name),
                concat!(".Lseekwire", $name, ": .quad __real_", $name),
            )*
            ".popsection",
            ".pushsection .text.seekwire_unwinder, \"ax\"",
            $(
                concat!(".globl __wrap_", $name),
                concat!(".hidden __wrap_", $name),
                concat!(".type __wrap_", $name, ", %function"),
                concat!("__wrap_", $name, ":"),
                jump!($name),
                concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            )*
            ".globl __wrap__dl_find_object",
            ".hidden __wrap__dl_find_object",
            ".type __wrap__dl_find_object, %function",
            "__wrap__dl_find_object:",
            concat!(branch!(), " {find_object}"),
            ".size __wrap__dl_find_object, . - __wrap__dl_find_object",
            ".popsection",
            find_object = sym find_object,
        );
    };
}

for_each_function! { table }

unsafe extern "C" {
    /// The addresses to jump to: at first the library's own copies.
    static mut seekwire_unwinder: [*mut c_void; NAMES.len()];
}

/// Chooses the functions of libgcc_s.so.1, if this system has it. Called once, before anything that
/// could panic.
pub(crate) fn start() {
    let table = &raw mut seekwire_unwinder;
    // SAFETY: the assembly defines the table with this length; only this function writes to it, and
    // no other thread runs code of this library yet.
    let is_wrapped = unsafe { (*table).iter().all(|address| !address.is_null()) };
    if !is_wrapped {
        return;
    }
    // SAFETY: a name that ends in a zero byte; the library has no constructor that calls back.
    let file = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    if file.is_null() {
        return;
    }
    let mut addresses = [ptr::null_mut(); NAMES.len()];
    for (address, name) in addresses.iter_mut().zip(NAMES) {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { return };
        // SAFETY: an open library, and a name that ends in a zero byte.
        *address = unsafe { libc::dlsym(file, name.as_ptr()) };
    }
    // All or none, because copies do not mix.
    if addresses.iter().all(|address| !address.is_null()) {
        // SAFETY: as above. The file stays open for as long as the process lives.
        unsafe { *table = addresses };
    }
}

/// struct dl_find_object of <dlfcn.h> on x86-64 and aarch64.
#[repr(C)]
struct DlFindObject {
    flags: c_ulong,
    map: [*mut c_void; 2],
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [c_ulong; 7],
}

/// Finds the table of frames for an address: `_dl_find_object` for the library's own copy of the
/// unwinder, even with C libraries that lack it. The copy reads only `eh_frame` of the result.
extern "C" fn find_object(address: *mut c_void, result: *mut DlFindObject) -> c_int {
    // SAFETY: a name that ends in a zero byte.
    let newer = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    if !newer.is_null() {
        // SAFETY: the function of that name, which has had this type since glibc 2.35.
        let newer: extern "C" fn(*mut c_void, *mut DlFindObject) -> c_int =
            unsafe { std::mem::transmute(newer) };
        return newer(address, result);
    }
    let mut sought = (address.addr(), ptr::null_mut::<c_void>());
    // SAFETY: `look` takes the arguments passed here, and keeps none.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut sought).cast()) };
    if sought.1.is_null() {
        return -1;
    }
    // SAFETY: the caller's own, as dl_find_object(3) has it.
    unsafe { (&raw mut (*result).eh_frame).write(sought.1) };
    0
}

/// Searches the segments of one object for an address; ends the search if it is found.
unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    sought: *mut c_void,
) -> c_int {
    // SAFETY: the arguments of dl_iterate_phdr(3), and the pair of `find_object`.
    let (info, sought) = unsafe { (&*info, &mut *sought.cast::<(usize, *mut c_void)>()) };
    // SAFETY: the number of headers is the one stated.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let begin =
        |header: &libc::Elf64_Phdr| (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
    let is_inside = headers.iter().any(|header| {
        header.p_type == libc::PT_LOAD
            && sought.0.wrapping_sub(begin(header)) < header.p_memsz as usize
    });
    let table = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    match table {
        Some(table) if is_inside => {
            sought.1 = ptr::with_exposed_provenance_mut(begin(table));
            1
        }
        _ => c_int::from(is_inside),
    }
}

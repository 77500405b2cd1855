//! Link arguments of the shared library.

use std::path::PathBuf;

/// Version of the C API and of the layout of its structs. It changes when programs linked with the
/// previous version would no longer work, and never for an addition.
const ABI: u32 = 0;

/// Replaces the shared library of this name, which minimal images do not have, with the archives
/// that every C compiler brings with the same functions.
const UNWINDER: &str = "INPUT(-lgcc_eh -lgcc)\n";

/// The functions of these archives that Rust's standard library calls: src/unwinder.rs selects the
/// copy that it gets, and has the same list.
const WRAPPED: [&str; 12] = [
    "Backtrace",
    "DeleteException",
    "GetDataRelBase",
    "GetIP",
    "GetIPInfo",
    "GetLanguageSpecificData",
    "GetRegionStart",
    "GetTextRelBase",
    "RaiseException",
    "Resume",
    "SetGR",
    "SetIP",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The dynamic loader gets this name from programs linked with the library, instead of the name
    // of the file that the linker found.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libseekwire.so.{ABI}");
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    std::fs::write(directory.join("libgcc_s.so"), UNWINDER).expect("OUT_DIR can be written to");
    println!("cargo::rustc-cdylib-link-arg=-L{}", directory.display());
    // GNU ld extracts nothing from an archive for the weak references that wrapping leaves.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined=_Unwind_RaiseException");
    // The copy calls this function, which C libraries before 2.35 do not have.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=_dl_find_object");
    for function in WRAPPED {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=_Unwind_{function}");
    }
}

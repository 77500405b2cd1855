//! How the shared library is linked.

use std::path::PathBuf;

/// Version of the C API and of the layout of its structs. It changes when a program that was linked
/// with the version before would not work any more, and never for an addition.
const ABI: u32 = 0;

/// In place of the shared library of this name, which minimal images do not have: the archives that
/// every C compiler brings with the same functions.
const UNWINDER: &str = "INPUT(-lgcc_eh -lgcc)\n";

/// The functions of these archives that Rust's standard library calls: src/unwinder.rs decides which
/// copy of them it gets, and lists the same ones.
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
    // The dynamic loader is given this name by programs that are linked with the library, and not
    // that of whatever file the linker found.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libseekwire.so.{ABI}");
    let directory = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    std::fs::write(directory.join("libgcc_s.so"), UNWINDER).expect("OUT_DIR can be written to");
    println!("cargo::rustc-cdylib-link-arg=-L{}", directory.display());
    // GNU ld takes nothing out of an archive for the weak references that wrapping leaves.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--undefined=_Unwind_RaiseException");
    // C libraries before 2.35 do not have it, which the copy calls.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=_dl_find_object");
    for function in WRAPPED {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=_Unwind_{function}");
    }
}

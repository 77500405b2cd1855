//! Names the shared library for the dynamic loader: programs that are linked with it ask for this
//! name, and not for whatever file the linker found.

/// Version of the C API and of the layout of its structs. It changes when a program that was linked
/// with the version before would not work any more, and never for an addition.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libseekwire.so.{ABI}");
}

//! The interposed functions, one file per family.
//!
//! All have the same shape: look the fd up; if the library takes part in it, its object answers,
//! otherwise libc does. [`interpose`] generates that shape. The functions can be unwound, because
//! pthread_cancel unwinds calls that sleep in libc. Panics of the library's own are caught before,
//! by [`crate::ffi::guarded`].

mod alias;
mod control;
mod descriptor;
mod epoll;
mod exec;
mod file;
mod filter;
mod flags;
mod liburing;
mod new_descriptors;
mod open;
mod option;
mod options;
mod poll;
mod print;
mod receive;
mod rpc;
mod select;
mod send;
mod signal;
mod stdio;
mod system;
mod uring;
mod vfork;

pub(crate) use open::socket;
pub(crate) use option::read_inherited;

/// Defines functions of libc: `fn name(arguments) -> result = lookup => |object, kernel| answer;`
/// where `kernel` makes the same call in libc.
macro_rules! interpose {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $lookup:expr => |$object:ident, $kernel:ident| $body:expr;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As the manual page of the C function says.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            #[inline(never)]
            unsafe extern "C-unwind" fn deferred($($arg: $ty),*) -> $ret {
                // SAFETY: these are the caller's own arguments.
                let $kernel = || unsafe { crate::real::$name($($arg),*) };
                match $lookup {
                    Some($object) => {
                        let $kernel = || crate::hazard::outside($kernel);
                        $body
                    }
                    None => $kernel(),
                }
            }
            let before = crate::cancel::defer();
            // SAFETY: these are the caller's own arguments.
            let result = unsafe { deferred($($arg),*) };
            crate::cancel::restore(before);
            result
        }
    )*};
}
pub(crate) use interpose;

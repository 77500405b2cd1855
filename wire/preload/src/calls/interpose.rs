//! The shape that all interposed functions have.

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
pub(super) use interpose;

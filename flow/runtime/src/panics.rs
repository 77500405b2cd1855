//! Panics in foreign code: filters, the memory of blocks, and observers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls foreign code. The state left after a panic must be fit for use, or not be used.
///
/// # Errors
///
/// The message of the panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(text_of)
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // The payload may panic when it is dropped, and the new payload again: that one is leaked.
    if let Err(again) = catch_unwind(AssertUnwindSafe(move || drop(panic))) {
        std::mem::forget(again);
    }
    format!("panicked: {}", text.unwrap_or_else(|| "no message".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Grenade(u32);

    impl Drop for Grenade {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Grenade(self.0 - 1));
            }
        }
    }

    #[test]
    fn what_is_thrown_may_throw_again() {
        for depth in 0..3 {
            let thrown = caught(|| std::panic::panic_any(Grenade(depth)));
            assert_eq!(thrown, Err("panicked: no message".to_owned()));
        }
        assert_eq!(caught(|| panic!("{}", 1)), Err::<(), _>("panicked: 1".to_owned()));
        assert_eq!(caught(|| 2), Ok(2));
    }
}

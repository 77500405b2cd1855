//! A testbed for each test, whose near end it works on.

use std::io::Write;

use seekwire_testbed::{Error, Side, Testbed};

/// Runs `test` in the near end of a testbed; programs that it starts are there, too. Where none can
/// be made, it says so and does nothing.
pub(crate) fn with_pair(test: impl FnOnce(&Testbed) + Send) {
    match Testbed::new() {
        Ok(testbed) => testbed.end(Side::Near).run(|| test(&testbed)).unwrap(),
        Err(why @ (Error::NotPermitted { .. } | Error::Unsupported { .. })) => {
            not_run(&why.to_string())
        }
        Err(why) => panic!("{why}"),
    }
}

/// Says so past the test harness, which swallows what a test that passes has to say.
pub(crate) fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {why}");
}

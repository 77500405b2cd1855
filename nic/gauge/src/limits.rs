//! How long one end waits for the other.

use std::time::Duration;

/// How long one end waits for the other, in the middle of something.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How often one who waits looks whether the caller still wants it.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

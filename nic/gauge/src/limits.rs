//! How long one end waits for the other.

use std::time::Duration;

/// How long one end waits for the other in the middle of an exchange.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How often a waiting thread checks whether the caller has interrupted it.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);

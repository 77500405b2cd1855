//! A filter, built from its options.

use std::sync::Arc;

use seekwire_flow::{Factory, Filter, Ports};

use super::process::ProgramName;
use crate::outputs::Destination;

/// Whether a filter treats each block by itself, so that it can continue after an error and its
/// output has the origin of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blockwise {
    Never,
    /// If the pipeline declares it, with `on_error` or `idempotent`.
    Declared,
    Always,
}

/// A filter, built from its options.
pub(crate) struct BuiltFilter {
    pub(crate) ports: Ports,
    pub(crate) factory: Factory,
    /// True if several copies share the work.
    pub(crate) is_split: bool,
    /// True if output belongs to the block that the filter was given, or is sent at the end.
    pub(crate) knows_order: bool,
    pub(crate) blockwise: Blockwise,
    /// The program that the filter starts.
    pub(crate) program: Option<ProgramName>,
    /// Where the filter writes to, if it writes.
    pub(crate) destination: Option<Destination>,
    /// How long a byte takes, if an option of the filter states it.
    pub(crate) nanoseconds_per_byte: Option<u64>,
}

impl BuiltFilter {
    pub(super) fn new<F: Filter + 'static>(
        ports: Ports,
        make: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        let factory: Factory = Arc::new(move || Box::new(make()));
        Self {
            ports,
            factory,
            is_split: true,
            knows_order: true,
            blockwise: Blockwise::Never,
            program: None,
            destination: None,
            nanoseconds_per_byte: None,
        }
    }

    pub(super) fn blockwise(self, blockwise: Blockwise) -> Self {
        Self { blockwise, ..self }
    }

    /// For filters whose copies would each do all of the work, or need to see all of it.
    pub(super) fn alone(self) -> Self {
        Self { is_split: false, ..self }
    }
}

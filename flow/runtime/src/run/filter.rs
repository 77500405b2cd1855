//! The interface between filters and the runtime.

use std::sync::Arc;

use crate::memory::block::Block;
use crate::run::filter_error::FilterError;
use crate::run::output::Outputs;

/// The handling of a block for which a filter returns an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The unit of work ends.
    #[default]
    Fail,
    /// The block is rejected: the filter's output for it is dropped, and the unit goes on.
    Skip,
    /// The same, and the original block goes to the output port with this number.
    To(usize),
}

/// Whether a source has more blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call it again.
    More,
    /// The unit has no more blocks.
    Done,
}

/// One step of a pipeline.
///
/// Each copy of a filter has an instance of its own for each unit of work: the runtime first calls
/// `init`, then `process` for each block, or `generate` again and again for a source, and finally
/// `finalize`. Units that are under way at the same time do not share instances. A filter does not
/// know where it runs, nor how many copies of it there are.
///
/// An error or a panic ends the unit of work, and nothing else. If a unit ends early, its instances
/// are dropped without `finalize`.
pub trait Filter: Send {
    /// Begins the unit of work. `argument` is the one that the unit was submitted with.
    ///
    /// # Errors
    ///
    /// An error ends the unit of work.
    fn init(&mut self, _argument: &str, _out: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }

    /// Processes one block, from the input port with this number.
    ///
    /// # Errors
    ///
    /// An error ends the unit of work, or rejects the block ([`OnError`]).
    fn process(
        &mut self,
        _block: Block,
        _port: usize,
        _out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        Err("this filter takes no blocks".into())
    }

    /// Sends some of a source's blocks: not all at once, so that more urgent units get their turn.
    ///
    /// # Errors
    ///
    /// An error ends the unit of work.
    fn generate(&mut self, _out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        Err("this filter is no source".into())
    }

    /// Called when all blocks of the unit that this copy gets have been processed.
    ///
    /// # Errors
    ///
    /// An error ends the unit of work.
    fn finalize(&mut self, _out: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

/// Makes the instance of a filter for one copy and one unit of work.
pub type Factory = Arc<dyn Fn() -> Box<dyn Filter> + Send + Sync>;

//! What a filter is to the runtime, and the runtime to a filter.

use std::sync::Arc;

use crate::block::Block;
use crate::output::Outputs;

/// An error of a filter, which ends the unit of work.
pub type FilterError = Box<dyn std::error::Error + Send + Sync>;

/// The handling of a block for which a filter returns an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The unit of work ends.
    #[default]
    Fail,
    /// It is rejected: what the filter has sent for it is dropped, and the unit goes on.
    Skip,
    /// The same, and it goes as it came to the output port with this number.
    To(usize),
}

/// Whether a source has more to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is to be called again.
    More,
    /// That was all of the unit.
    Done,
}

/// One step of a pipeline.
///
/// Each copy of a filter has a value of its own for each unit of work: first comes `init`, then
/// `process` for each block, or `generate` again and again for a source, at last `finalize`. Units
/// that are under way at the same time do not meet. A filter does not know where it runs, nor how
/// many copies of it there are.
///
/// An error or a panic ends the unit of work, and nothing else. When a unit ends before it is done,
/// the values are dropped, without `finalize`.
pub trait Filter: Send {
    /// The unit of work begins. `argument` is what the unit was asked for with.
    ///
    /// # Errors
    ///
    /// Whatever ends the unit of work.
    fn init(&mut self, _argument: &str, _out: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }

    /// One block, from the input port with this number.
    ///
    /// # Errors
    ///
    /// Whatever ends the unit of work.
    fn process(
        &mut self,
        _block: Block,
        _port: usize,
        _out: &mut Outputs<'_>,
    ) -> Result<(), FilterError> {
        Err("this filter takes no blocks".into())
    }

    /// A source gives some of its blocks: not all at once, so that units that are more urgent get
    /// their turn.
    ///
    /// # Errors
    ///
    /// Whatever ends the unit of work.
    fn generate(&mut self, _out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        Err("this filter is no source".into())
    }

    /// All blocks of the unit that this copy gets have been processed.
    ///
    /// # Errors
    ///
    /// Whatever ends the unit of work.
    fn finalize(&mut self, _out: &mut Outputs<'_>) -> Result<(), FilterError> {
        Ok(())
    }
}

/// Makes the filter's value for one copy and one unit of work.
pub type Factory = Arc<dyn Fn() -> Box<dyn Filter> + Send + Sync>;

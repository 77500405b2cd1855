//! Launchers of parallel jobs.

use std::fmt;

/// The launcher that started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Launcher {
    /// No launcher of parallel jobs: this process is alone.
    Alone,
    /// `mpiexec` of MPICH, Intel MPI or MVAPICH.
    Hydra,
    /// `srun`.
    Slurm,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// Another launcher that speaks PMI-1.
    Pmi1,
    /// A user or script that has set `SEEKWIRE_FLOW_RANK` and `SEEKWIRE_FLOW_SIZE`.
    Given,
}

impl fmt::Display for Launcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Alone => "nobody",
            Self::Hydra => "Hydra",
            Self::Slurm => "Slurm",
            Self::OpenMpi => "Open MPI",
            Self::Pmi1 => "a launcher with PMI-1",
            Self::Given => "SEEKWIRE_FLOW_RANK",
        })
    }
}

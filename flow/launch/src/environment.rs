//! Finds out from the environment how this process was started.

use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use seekwire_values::{Time, TimeUnit};

use crate::Launcher;
use crate::encoding;
use crate::error::{Error, shown};

/// Most processes of a job; a larger number is a mistake.
const MOST: u32 = 1 << 20;

/// How long to wait unless the environment sets a limit.
const LIMIT: Duration = Duration::from_secs(120);
/// The longest limit that it may set: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// How the processes of the job exchange values.
#[derive(Debug, PartialEq)]
pub(crate) enum ExchangeMethod {
    /// There are no others.
    Memory,
    /// A descriptor on which the launcher speaks PMI-1.
    Descriptor(i32),
    /// The address at which it does, and the number by which this process identifies itself there.
    /// The launcher also provides rank and size.
    Port(Vec<SocketAddr>, u32),
    /// A directory, and a name for this job among others in it.
    Directory(PathBuf, String),
}

/// The part that is known before asking a launcher.
#[derive(Debug, PartialEq)]
pub(crate) struct LaunchInfo {
    pub(crate) launcher: Launcher,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) method: ExchangeMethod,
}

/// An environment; in tests not that of this process.
pub(crate) struct Environment<'a>(pub(crate) &'a dyn Fn(&str) -> Option<OsString>);

impl Environment<'_> {
    /// The launch given by the first launcher that left its variables. A job may have been started
    /// within another: mpirun of Open MPI knows nothing of PMI, whose descriptor would be that of
    /// the outer job. Variables that a user has set take precedence.
    pub(crate) fn launch_info(&self) -> Result<LaunchInfo, Error> {
        if self.has("SEEKWIRE_FLOW_RANK") || self.has("SEEKWIRE_FLOW_SIZE") {
            let (rank, size) = self.rank_and_size("SEEKWIRE_FLOW_RANK", "SEEKWIRE_FLOW_SIZE")?;
            let job = self.word("SEEKWIRE_FLOW_JOB")?.unwrap_or_else(|| "job".into());
            return self.rendezvous(Launcher::Given, rank, size, None, &job);
        }
        if self.has("OMPI_COMM_WORLD_RANK") || self.has("OMPI_COMM_WORLD_SIZE") {
            return self.open_mpi();
        }
        if self.has("PMI_FD") {
            let (rank, size) = self.rank_and_size("PMI_RANK", "PMI_SIZE")?;
            let number = self.number("PMI_FD", "the number of a descriptor", i32::MAX as u32)?;
            let method = ExchangeMethod::Descriptor(number as i32);
            return Ok(LaunchInfo { launcher: Launcher::Pmi1, rank, size, method });
        }
        if self.has("PMI_PORT") {
            let id = self.number("PMI_ID", "the number of a process", MOST)?;
            let method = ExchangeMethod::Port(self.port()?, id);
            return Ok(LaunchInfo { launcher: Launcher::Pmi1, rank: 0, size: 1, method });
        }
        if self.has("SLURM_STEP_ID") && self.has("SLURM_STEP_NUM_TASKS") {
            let (rank, size) = self.rank_and_size("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")?;
            let job = self.word("SLURM_JOB_ID")?.unwrap_or_default();
            let step = self.word("SLURM_STEP_ID")?.unwrap_or_default();
            return self.rendezvous(Launcher::Slurm, rank, size, None, &format!("{job}-{step}"));
        }
        if self.has("PMIX_RANK") {
            return Err(Error::UnknownLauncher);
        }
        Ok(LaunchInfo {
            launcher: Launcher::Alone,
            rank: 0,
            size: 1,
            method: ExchangeMethod::Memory,
        })
    }

    /// How long to wait for the launcher and for other processes.
    pub(crate) fn limit(&self) -> Result<Duration, Error> {
        let Some(value) = self.word("SEEKWIRE_FLOW_LIMIT")? else { return Ok(LIMIT) };
        let time = Time::parse(&value, TimeUnit::Second).map(Time::get);
        time.filter(|time| (Duration::from_secs(1)..=LONGEST).contains(time)).ok_or_else(|| {
            wrong("SEEKWIRE_FLOW_LIMIT", &value, "a time of at least 1s, or a number of seconds")
        })
    }

    /// mpirun sets rank and size in the environment, but exchanges values only through PMIx. It has
    /// a directory for the job on each host, which can serve if all processes are on one host.
    fn open_mpi(&self) -> Result<LaunchInfo, Error> {
        let (rank, size) = self.rank_and_size("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?;
        let mut directory = None;
        if self.word("OMPI_COMM_WORLD_LOCAL_SIZE")? == Some(size.to_string()) {
            directory = (self.0)("OMPI_MCA_orte_jobfam_session_dir");
        }
        // The first is random; the second distinguishes the jobs that one mpirun has started.
        let mut job = String::from("openmpi");
        for part in ["OMPI_MCA_orte_precondition_transports", "OMPI_MCA_ess_base_jobid"] {
            if let Some(value) = self.word(part)? {
                job = format!("{job}-{value}");
            }
        }
        self.rendezvous(Launcher::OpenMpi, rank, size, directory, &job)
    }

    /// Uses the directory that the user gives, or else the launcher's.
    fn rendezvous(
        &self,
        launcher: Launcher,
        rank: u32,
        size: u32,
        directory: Option<OsString>,
        job: &str,
    ) -> Result<LaunchInfo, Error> {
        if size == 1 {
            return Ok(LaunchInfo { launcher, rank, size, method: ExchangeMethod::Memory });
        }
        let rendezvous = (self.0)("SEEKWIRE_FLOW_RENDEZVOUS").filter(|path| !path.is_empty());
        let Some(directory) = rendezvous.or(directory) else {
            return Err(Error::NoExchange { launcher, size });
        };
        // A valid part of a file name, in which `.` separates it from the rest.
        let job: String = encoding::encode(job).replace(['.', '/'], "+");
        if job.is_empty() || job.len() > 128 {
            return Err(wrong("SEEKWIRE_FLOW_JOB", &job, "a word of at most 128 characters"));
        }
        Ok(LaunchInfo {
            launcher,
            rank,
            size,
            method: ExchangeMethod::Directory(directory.into(), job),
        })
    }

    fn rank_and_size(&self, rank: &'static str, size: &'static str) -> Result<(u32, u32), Error> {
        let processes = self.number(size, "a number of processes", MOST)?;
        if processes == 0 {
            return Err(wrong(size, "0", "a number of processes, at least 1"));
        }
        let expected = format!("a rank below {size}, which is {processes}");
        Ok((self.number(rank, &expected, processes - 1)?, processes))
    }

    fn number(&self, name: &'static str, expected: &str, most: u32) -> Result<u32, Error> {
        let value = self.word(name)?.unwrap_or_default();
        // `parse` also accepts a sign.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        match value.parse() {
            Ok(number) if digits && number <= most => Ok(number),
            _ => Err(wrong(name, &value, expected)),
        }
    }

    fn port(&self) -> Result<Vec<SocketAddr>, Error> {
        let value = self.word("PMI_PORT")?.unwrap_or_default();
        let expected = "the host and port of the launcher, with a `:` between them";
        if !value.contains(':') {
            return Err(wrong("PMI_PORT", &value, expected));
        }
        match value.to_socket_addrs() {
            Ok(addresses) if addresses.len() > 0 => Ok(addresses.collect()),
            Ok(_) => Err(wrong("PMI_PORT", &value, expected)),
            Err(error) => Err(wrong("PMI_PORT", &value, &format!("{expected} ({error})"))),
        }
    }

    fn has(&self, name: &str) -> bool {
        (self.0)(name).is_some()
    }

    fn word(&self, name: &'static str) -> Result<Option<String>, Error> {
        let Some(value) = (self.0)(name) else { return Ok(None) };
        match value.into_string() {
            Ok(value) => Ok(Some(value)),
            Err(value) => Err(wrong(name, &value.to_string_lossy(), "text in UTF-8")),
        }
    }
}

fn wrong(variable: &'static str, value: &str, expected: &str) -> Error {
    Error::Environment { variable, value: shown(value.as_bytes()), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch_info(variables: &[(&str, &str)]) -> Result<LaunchInfo, Error> {
        let find = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| value.into())
        };
        Environment(&find).launch_info()
    }

    fn refused(variables: &[(&str, &str)]) -> String {
        launch_info(variables).unwrap_err().to_string()
    }

    #[test]
    fn without_a_launcher_a_process_is_alone() {
        let alone = LaunchInfo {
            launcher: Launcher::Alone,
            rank: 0,
            size: 1,
            method: ExchangeMethod::Memory,
        };
        assert_eq!(launch_info(&[("HOME", "/")]).unwrap(), alone);
        // The script of a batch job, which srun has not started.
        assert_eq!(launch_info(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]).unwrap(), alone);
    }

    #[test]
    fn a_descriptor_and_a_port_are_pmi() {
        let info = launch_info(&[("PMI_FD", "6"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]).unwrap();
        assert_eq!((info.rank, info.size, info.method), (1, 2, ExchangeMethod::Descriptor(6)));
        let info = launch_info(&[("PMI_PORT", "127.0.0.1:4711"), ("PMI_ID", "3")]).unwrap();
        assert_eq!(info.method, ExchangeMethod::Port(vec!["127.0.0.1:4711".parse().unwrap()], 3));
    }

    #[test]
    fn ranks_and_sizes_that_cannot_be_are_named() {
        for (rank, size, variable) in [
            ("2", "2", "PMI_RANK"),
            ("-1", "2", "PMI_RANK"),
            ("+1", "2", "PMI_RANK"),
            ("", "2", "PMI_RANK"),
            ("0", "0", "PMI_SIZE"),
            ("0", "4294967296", "PMI_SIZE"),
            ("0", "two", "PMI_SIZE"),
        ] {
            let error = refused(&[("PMI_FD", "6"), ("PMI_RANK", rank), ("PMI_SIZE", size)]);
            assert!(error.contains(variable), "{rank} of {size}: {error}");
        }
        let error = refused(&[("PMI_FD", "6"), ("PMI_SIZE", "2")]);
        assert!(error.contains("PMI_RANK"), "{error}");
        let error = refused(&[("PMI_FD", "-6"), ("PMI_SIZE", "2"), ("PMI_RANK", "0")]);
        assert!(error.contains("PMI_FD"), "{error}");
        for port in ["", "localhost", "127.0.0.1:", "127.0.0.1:99999"] {
            let error = refused(&[("PMI_PORT", port), ("PMI_ID", "0")]);
            assert!(error.contains("PMI_PORT"), "{error}");
        }
    }

    #[test]
    fn open_mpi_uses_its_own_directory_on_one_host_only() {
        let mut variables = vec![
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("OMPI_MCA_orte_precondition_transports", "66fa-de8e"),
            ("OMPI_MCA_orte_jobfam_session_dir", "/tmp/ompi.host.0/pid.1"),
            // Of the surrounding job.
            ("PMI_FD", "6"),
        ];
        let info = launch_info(&variables).unwrap();
        assert_eq!(info.launcher, Launcher::OpenMpi);
        let directory =
            ExchangeMethod::Directory("/tmp/ompi.host.0/pid.1".into(), "openmpi-66fa-de8e".into());
        assert_eq!(info.method, directory);
        variables[2].1 = "1";
        let error = refused(&variables);
        assert!(error.contains("SEEKWIRE_FLOW_RENDEZVOUS"), "{error}");
        variables.push(("SEEKWIRE_FLOW_RENDEZVOUS", "/shared/run"));
        let directory = ExchangeMethod::Directory("/shared/run".into(), "openmpi-66fa-de8e".into());
        assert_eq!(launch_info(&variables).unwrap().method, directory);
    }

    #[test]
    fn slurm_without_pmi_takes_a_directory_or_says_what_to_do() {
        let mut variables = vec![
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_PROCID", "1"),
        ];
        let error = refused(&variables);
        assert!(error.contains("--mpi=pmi2"), "{error}");
        variables.push(("SEEKWIRE_FLOW_RENDEZVOUS", "/shared/run"));
        let info = launch_info(&variables).unwrap();
        assert_eq!(info.method, ExchangeMethod::Directory("/shared/run".into(), "7-0".into()));
        assert!(refused(&[("PMIX_RANK", "0")]).contains("SEEKWIRE_FLOW_RANK"));
    }

    #[test]
    fn a_user_names_rank_size_and_job() {
        let mut variables = vec![
            ("SEEKWIRE_FLOW_RANK", "0"),
            ("SEEKWIRE_FLOW_SIZE", "3"),
            ("SEEKWIRE_FLOW_RENDEZVOUS", "/shared/run"),
        ];
        assert_eq!(
            launch_info(&variables).unwrap().method,
            ExchangeMethod::Directory("/shared/run".into(), "job".into())
        );
        variables.push(("SEEKWIRE_FLOW_JOB", "../of mine"));
        let method = ExchangeMethod::Directory("/shared/run".into(), "+++of%20mine".into());
        assert_eq!(launch_info(&variables).unwrap().method, method);
        variables[3].1 = "";
        assert!(refused(&variables).contains("SEEKWIRE_FLOW_JOB"));
    }

    #[test]
    fn the_limit_is_some_seconds() {
        let limit = |value: &str| Environment(&|_| Some(value.into())).limit();
        assert_eq!(limit("3").unwrap(), Duration::from_secs(3));
        assert_eq!(limit("1.5min").unwrap(), Duration::from_secs(90));
        assert_eq!(Environment(&|_| None).limit().unwrap(), LIMIT);
        for value in ["0", "", "-1", "999ms", "99999999999999"] {
            assert!(limit(value).unwrap_err().to_string().contains("SEEKWIRE_FLOW_LIMIT"));
        }
    }
}

//! One binary, `examples/whoami.rs`, under real launchers, whose daemons run in network namespaces
//! of their own. If this process may not create such namespaces, a test reports that and does
//! nothing.

#![forbid(unsafe_code)]

mod cluster;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cluster::{Bed, Outcome, Shell, Slurm, directory, installed};

impl Outcome {
    /// Checks that every process has found all others. Returns the network namespaces that they are
    /// in.
    fn check(&self, size: usize, launcher: &str) -> BTreeSet<String> {
        assert_eq!(self.code, Some(0), "{self:#?}");
        let lines: BTreeSet<&str> = self.output.lines().collect();
        let mut networks = BTreeSet::new();
        for rank in 0..size {
            let line = format!("{rank} of {size} by {launcher}");
            assert!(lines.contains(line.as_str()), "{line}: {self:#?}");
            let next = (rank + 1) % size;
            let line = format!("{rank} hears that {next} has {} others", size - 1);
            assert!(lines.contains(line.as_str()), "{line}: {self:#?}");
            for other in (0..size).filter(|other| *other != rank) {
                let start = format!("{rank} sees {other}: address=127.0.0.1:");
                let seen = lines.iter().find(|line| line.starts_with(&start));
                let seen = seen.unwrap_or_else(|| panic!("{start}: {self:#?}"));
                assert!(seen.ends_with(" long=true"), "{seen}");
                networks.extend(seen.split(' ').find(|word| word.starts_with("network=")));
            }
        }
        let secrets: BTreeSet<&str> = lines
            .iter()
            .filter_map(|line| line.split_once(" knows a secret: "))
            .map(|(_, s)| s)
            .collect();
        assert_eq!(secrets.len(), 1, "{self:#?}");
        networks.into_iter().map(str::to_owned).collect()
    }

    /// Checks that the job failed, and that no process waited until the limit, at which `timeout`
    /// exits with one of these codes.
    fn check_failed(&self) {
        assert!(!matches!(self.code, None | Some(0 | 124 | 137)), "{self:#?}");
        assert!(!self.output.contains("hears"), "{self:#?}");
    }
}

/// The example, which `cargo test` builds beside this test.
fn whoami() -> String {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().and_then(Path::parent).unwrap().join("examples/whoami");
    assert!(example.exists(), "run cargo build --package seekwire-launch --examples");
    example.to_str().unwrap().to_owned()
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

mod hydra {
    use super::*;

    fn hydra(bed: &Bed, options: &[&str], arguments: &[&str]) -> Outcome {
        hydra_within("50", bed, options, arguments)
    }

    fn hydra_within(limit: &str, bed: &Bed, options: &[&str], arguments: &[&str]) -> Outcome {
        installed("mpiexec.hydra");
        let whoami = whoami();
        let mut command = vec!["mpiexec.hydra", "-iface", bed.near().interface()];
        command.extend(options);
        command.push(&whoami);
        command.extend(arguments);
        bed.run(&command, &[("SEEKWIRE_FLOW_LIMIT", limit)])
    }

    #[test]
    fn processes_of_one_host_find_each_other() {
        let Some(bed) = Bed::new() else { return };
        for size in [1, 2, 4] {
            let outcome = hydra(&bed, &["-n", &size.to_string()], &[]);
            outcome.check(size, "Hydra");
        }
    }

    #[test]
    fn by_a_port_too() {
        let Some(bed) = Bed::new() else { return };
        for size in [2, 4] {
            let outcome = hydra(&bed, &["-pmi-port", "-n", &size.to_string()], &[]);
            outcome.check(size, "Hydra");
        }
    }

    #[test]
    fn processes_of_two_hosts_find_each_other() {
        let Some(bed) = Bed::new() else { return };
        let shell = Shell::new(&bed);
        let hosts = format!("{},{}", bed.near().address(), bed.far().address());
        let script = &shell.script;
        let options = ["-launcher", "rsh", "-launcher-exec", script, "-hosts", &hosts, "-ppn", "1"];
        for size in [2, 4] {
            let size_option = ["-n", &size.to_string()].map(str::to_owned);
            let mut options = options.to_vec();
            options.extend(size_option.iter().map(String::as_str));
            let outcome = hydra(&bed, &options, &[]);
            let networks = outcome.check(size, "Hydra");
            assert_eq!(networks.len(), 2, "{outcome:#?}");
        }
    }

    #[test]
    fn a_process_that_ends_the_job_ends_it_with_its_status() {
        let Some(bed) = Bed::new() else { return };
        for options in [&["-n", "2"][..], &["-pmi-port", "-n", "2"]] {
            let outcome = hydra(&bed, options, &["abort", "1"]);
            assert_eq!(outcome.code, Some(7), "{outcome:#?}");
            outcome.check_failed();
            assert!(outcome.errors.contains("rank 1 of 2: as requested"), "{outcome:#?}");
        }
    }

    #[test]
    fn a_process_that_goes_leaves_nobody_waiting() {
        let Some(bed) = Bed::new() else { return };
        hydra(&bed, &["-n", "2"], &["leave", "1"]).check_failed();
    }

    #[test]
    fn a_process_that_does_not_come_is_waited_for_until_the_limit() {
        let Some(bed) = Bed::new() else { return };
        let outcome = hydra_within("1", &bed, &["-n", "2"], &["stay", "1"]);
        outcome.check_failed();
        let why = "waited 1 s for the launcher, which was asked to wait for all other processes";
        assert!(outcome.errors.contains(why), "{outcome:#?}");
    }
}

mod open_mpi {
    use super::*;

    fn mpirun(bed: &Bed, options: &[&str], arguments: &[&str]) -> Outcome {
        installed("mpirun.openmpi");
        let directory = directory();
        let whoami = whoami();
        let mut command = vec!["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];
        command.extend(options);
        command.push(&whoami);
        command.extend(arguments);
        bed.run(&command, &[("TMPDIR", directory.path().to_str().unwrap())])
    }

    #[test]
    fn processes_of_one_host_connect_in_its_own_directory() {
        let Some(bed) = Bed::new() else { return };
        for size in [1, 2, 4] {
            let outcome = mpirun(&bed, &["-n", &size.to_string()], &[]);
            outcome.check(size, "Open MPI");
        }
    }

    #[test]
    fn or_in_one_that_the_user_gives() {
        let Some(bed) = Bed::new() else { return };
        let rendezvous = directory();
        let variable = format!("SEEKWIRE_FLOW_RENDEZVOUS={}", rendezvous.path().display());
        // One after the other in the same directory.
        for _ in 0..2 {
            mpirun(&bed, &["-n", "2", "-x", &variable], &[]).check(2, "Open MPI");
            assert!(is_empty(rendezvous.path()));
        }
        fs::set_permissions(rendezvous.path(), Permissions::from_mode(0o777)).unwrap();
        let outcome = mpirun(&bed, &["-n", "2", "-x", &variable], &[]);
        outcome.check_failed();
        assert!(outcome.errors.contains("others can write in it"), "{outcome:#?}");
    }

    #[test]
    fn a_process_that_ends_the_job_ends_it_with_its_status() {
        let Some(bed) = Bed::new() else { return };
        let outcome = mpirun(&bed, &["-n", "2"], &["abort", "1"]);
        outcome.check_failed();
        assert!(outcome.errors.contains("rank 1 of 2: as requested"), "{outcome:#?}");
    }
}

mod slurm {
    use super::*;

    /// A single test, because the nodes take long to start.
    #[test]
    fn processes_of_two_nodes_find_each_other() {
        let Some(bed) = Bed::new() else { return };
        let slurm = Slurm::start(&bed);
        let whoami = whoami();
        let srun = |options: &[&str], arguments: &[&str], variables: &[(&str, &str)]| {
            let command = [&["srun"], options, &[&whoami], arguments].concat();
            slurm.run(&bed, &command, variables)
        };
        let nodes = ["-N2", "-n2"];
        let with = |option: &'static str| [&nodes[..], &[option]].concat();

        let outcome = srun(&with("--mpi=pmi2"), &[], &[]);
        assert_eq!(outcome.check(2, "Slurm").len(), 2, "{outcome:#?}");
        let outcome = srun(&["-N1", "-n1", "--mpi=pmi2"], &[], &[]);
        outcome.check(1, "Slurm");

        let outcome = srun(&with("--mpi=none"), &[], &[]);
        outcome.check_failed();
        assert!(outcome.errors.contains("--mpi=pmi2"), "{outcome:#?}");
        let rendezvous = directory();
        let variables = [("SEEKWIRE_FLOW_RENDEZVOUS", rendezvous.path().to_str().unwrap())];
        srun(&with("--mpi=none"), &[], &variables).check(2, "Slurm");
        assert!(is_empty(rendezvous.path()));

        // The step is killed as a whole, and srun's status shows it. Messages may get lost.
        let outcome = srun(&with("--mpi=pmi2"), &["abort", "1"], &[]);
        assert!(matches!(outcome.code, Some(7 | 137)), "{outcome:#?}");
        assert!(!outcome.output.contains("hears"), "{outcome:#?}");
    }
}

mod none {
    use super::*;

    fn whoami_as(rank: u32, size: u32, rendezvous: &Path, arguments: &[&str]) -> Child {
        let mut command = Command::new(whoami());
        command.args(arguments).env("SEEKWIRE_FLOW_RANK", rank.to_string());
        command.env("SEEKWIRE_FLOW_SIZE", size.to_string());
        command.env("SEEKWIRE_FLOW_RENDEZVOUS", rendezvous);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(size: u32, rendezvous: &Path, arguments: &[&str]) -> Outcome {
        let start = |rank| whoami_as(rank, size, rendezvous, arguments);
        let children: Vec<Child> = (0..size).map(start).collect();
        let mut outcome = Outcome { code: Some(0), output: String::new(), errors: String::new() };
        for child in children {
            let output = child.wait_with_output().unwrap();
            outcome.output.push_str(&String::from_utf8(output.stdout).unwrap());
            outcome.errors.push_str(&String::from_utf8(output.stderr).unwrap());
            outcome.code = outcome.code.max(output.status.code());
        }
        outcome
    }

    #[test]
    fn alone_a_process_is_a_job() {
        let output = Command::new(whoami()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("0 of 1 by nobody\n"), "{text}");
        assert!(output.status.success());
    }

    #[test]
    fn manually_numbered_processes_connect_in_a_directory() {
        let rendezvous = directory();
        for size in [2, 5] {
            run(size, rendezvous.path(), &[]).check(size as usize, "SEEKWIRE_FLOW_RANK");
            assert!(is_empty(rendezvous.path()));
        }
    }

    /// Rank 0 is already waiting for rank 1, which then cannot write its values.
    #[test]
    fn a_full_file_system_of_the_directory_lets_nobody_wait() {
        let Some(bed) = Bed::new() else { return };
        let rendezvous = directory();
        let script = r#"
            mount -t tmpfs -o size=1m,mode=700 tmpfs "$1"
            export SEEKWIRE_FLOW_RENDEZVOUS="$1" SEEKWIRE_FLOW_SIZE=2 SEEKWIRE_FLOW_LIMIT=50
            SEEKWIRE_FLOW_RANK=0 "$2" & first=$!
            until [ -e "$1/job.0.1" ]; do kill -0 $first; done
            head -c 2M /dev/zero >"$1/fill" 2>/dev/null || true
            SEEKWIRE_FLOW_RANK=1 "$2" || echo 1 has failed
            wait $first || echo 0 has failed
            ls "$1""#;
        let command = ["unshare", "--mount", "sh", "-ec", script, "sh"];
        let arguments = [rendezvous.path().to_str().unwrap(), &whoami()];
        let outcome = bed.run(&[&command[..], &arguments].concat(), &[]);
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        let ends = "1 has failed\n0 has failed\nfill\njob.stop\n";
        assert!(outcome.output.ends_with(ends), "{outcome:#?}");
        for why in ["No space left on device", "ended by a process that had no room"] {
            assert!(outcome.errors.contains(why), "{outcome:#?}");
        }
    }

    #[test]
    fn who_goes_ends_the_job_for_all_and_says_why() {
        for (how, why) in [("abort", "rank 1: as requested"), ("leave", "left without finishing")] {
            let rendezvous = directory();
            let outcome = run(3, rendezvous.path(), &[how, "1"]);
            outcome.check_failed();
            assert!(outcome.errors.matches(why).count() >= 2, "{outcome:#?}");
        }
    }
}

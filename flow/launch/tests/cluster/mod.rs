//! Two hosts of a cluster in one: network namespaces, and launchers that start processes in both.
//! The host name of the far one is `far`, or `two` as a node of Slurm.
//!
//! The tests of several packages include this file by its path.

#![allow(dead_code, reason = "each of them uses a part")]

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekwire_testbed::{Error, Side, TestHost, Testbed};

/// Two namespaces; all processes in them end with the test.
pub(crate) struct Bed(Testbed);

impl Bed {
    pub(crate) fn new() -> Option<Self> {
        match Testbed::new() {
            Ok(testbed) => Some(Self(testbed)),
            Err(why @ Error::NotPermitted { .. }) => {
                // Bypass the test harness, which hides the output of tests that pass.
                let _ = writeln!(std::io::stderr(), "not run: {why}");
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    pub(crate) fn near(&self) -> &TestHost {
        self.0.end(Side::Near)
    }

    pub(crate) fn far(&self) -> &TestHost {
        self.0.end(Side::Far)
    }

    /// Runs a command to its end, in the near namespace, for a minute at most.
    pub(crate) fn run(&self, command: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let mut limited = Command::new("timeout");
        limited.args(["--kill-after=5", "60"]).args(command).stdin(Stdio::null());
        limited.envs(variables.iter().copied());
        let output = self.near().run(|| limited.output()).unwrap().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Outcome {
            code: output.status.code(),
            output: text(output.stdout),
            errors: text(output.stderr),
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for end in [self.near(), self.far()] {
            let Ok(ours) = end.run(|| fs::read_link("/proc/thread-self/ns/net")) else { continue };
            let Ok(ours) = ours else { continue };
            for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
                let process = entry.file_name().to_str().and_then(|name| name.parse().ok());
                let its = fs::read_link(entry.path().join("ns/net")).ok();
                let is_ours = its.as_ref() == Some(&ours);
                if let Some(pid) = process.and_then(Pid::from_raw).filter(|_| is_ours) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

pub(crate) fn installed(program: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live in sbin, which is not in every PATH.
    let mut directories = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = directories.any(|directory| directory.join(program).exists());
    assert!(found, "{program} is not installed: run scripts/deps test");
}

/// A directory as `mktemp -d` makes it.
pub(crate) fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    directory
}

/// A shell script that runs a command under another host name.
fn named(host: &str, command: &str) -> String {
    format!("hostname {host} && exec {command}")
}

/// A stand-in for ssh(1), through which launchers enter the far namespace.
pub(crate) struct Shell {
    /// Its first argument is the host; the others are words for the shell there.
    pub(crate) script: String,
    directory: tempfile::TempDir,
    /// A process in the far namespace, so that others can enter it.
    there: Child,
}

impl Shell {
    pub(crate) fn new(bed: &Bed) -> Self {
        let directory = directory();
        let there = bed.far().spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        let script = directory.path().join("rsh");
        let text = format!(
            "#!/bin/sh\nshift\n\
            exec nsenter --net=/proc/{}/ns/net unshare --uts sh -c '{}' \"$*\"\n",
            there.id(),
            named("far", "sh -c \"$0\"")
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        Self { script: script.to_str().unwrap().to_owned(), directory, there }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.there.stdin.take());
        let _ = self.there.wait();
    }
}

/// A command in the far namespace, on a host named `far`.
pub(crate) fn on_far(program: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", &named("far", "\"$0\" \"$@\""), program]);
    command
}

/// A controller and two nodes, one in each namespace.
pub(crate) struct Slurm {
    directory: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    pub(crate) fn start(bed: &Bed) -> Self {
        for program in ["slurmctld", "slurmd", "srun", "sinfo"] {
            installed(program);
        }
        let directory = directory();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let configuration = include_str!("slurm.conf")
            .replace("@DIRECTORY@", directory.path().to_str().unwrap())
            .replace("@USER@", String::from_utf8(user).unwrap().trim())
            .replace("@NEAR@", &bed.near().address().to_string())
            .replace("@FAR@", &bed.far().address().to_string());
        fs::write(directory.path().join("slurm.conf"), configuration).unwrap();
        fs::create_dir(directory.path().join("state")).unwrap();
        let mut slurm = Self { directory, daemons: Vec::new() };
        slurm.daemon(bed.near(), "slurmctld", &["-D"]);
        for (end, name) in [(bed.near(), "one"), (bed.far(), "two")] {
            slurm.daemon(
                end,
                "unshare",
                &["--uts", "sh", "-c", &named(name, "slurmd -D -N $0"), name],
            );
        }
        slurm.wait(bed);
        slurm
    }

    fn daemon(&mut self, end: &TestHost, program: &str, options: &[&str]) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("daemons.log"))
            .unwrap();
        let mut command = Command::new(program);
        command.args(options).env("SLURM_CONF", self.configuration());
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(end.spawn(&mut command).unwrap());
    }

    pub(crate) fn configuration(&self) -> String {
        self.directory.path().join("slurm.conf").to_str().unwrap().to_owned()
    }

    /// Waits until both nodes have registered.
    fn wait(&self, bed: &Bed) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let outcome = self.run(bed, &["sinfo", "-h", "-N", "-o", "%T"], &[]);
            if outcome.output == "idle\nidle\n" {
                return;
            }
            assert!(Instant::now() < end, "{outcome:#?}\n{}", self.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command of Slurm's to its end.
    pub(crate) fn run(&self, bed: &Bed, command: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let configuration = self.configuration();
        let mut variables = variables.to_vec();
        variables.push(("SLURM_CONF", &configuration));
        bed.run(command, &variables)
    }

    /// Runs a batch job to its end, and returns the exit status of its script. `sbatch --wait`
    /// notices the end seconds later.
    pub(crate) fn batch(&self, bed: &Bed, options: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let mut outcome = self.run(bed, &[&["sbatch", "--parsable"], options].concat(), variables);
        assert_eq!(outcome.code, Some(0), "{outcome:#?}");
        let show = ["scontrol", "--oneliner", "show", "job", outcome.output.trim()];
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let shown = self.run(bed, &show, &[]);
            let value = |key: &str| {
                let mut words = shown.output.split_whitespace();
                words.find_map(|word| word.strip_prefix(key)).unwrap_or_default()
            };
            let state = value("JobState=");
            if !["PENDING", "CONFIGURING", "RUNNING", "COMPLETING"].contains(&state) {
                let code = value("ExitCode=").split(':').next().unwrap().parse().ok();
                // A cancelled job may have a status of 0.
                outcome.code = code.filter(|code| (*code == 0) == (state == "COMPLETED"));
                outcome.errors += &shown.errors;
                return outcome;
            }
            assert!(Instant::now() < end, "{shown:#?}\n{}", self.logs());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        let names = ["daemons.log", "slurmctld.log", "slurmd-one.log", "slurmd-two.log"];
        let read = |name| fs::read_to_string(self.directory.path().join(name));
        names.map(|name| read(name).unwrap_or_default()).join("\n")
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}", self.logs());
        }
    }
}

//! A virtual machine: QEMU, and the agent in it, which runs commands (wire/tests/vm/guest/init).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::launch::{self, Mode, Program, Running, interrupt};

/// Far more than starting takes.
const BOOT: Duration = Duration::from_secs(300);
/// More than an answer takes after its command's time limit.
const GRACE: Duration = Duration::from_secs(30);

/// An emulated processor with everything that QEMU has, except that it does not report `rep movsb`
/// as fast (ERMS, FSRM). Otherwise the kernel and the C library would copy with it, and QEMU
/// executes a step for each byte.
const EMULATED: &str = "max,-erms,-fsrm";

/// How a guest's processors are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processor {
    Kvm,
    Emulated,
    /// Emulated one instruction after another, each of which takes a nanosecond of the guest's
    /// time.
    Counted,
}

impl Processor {
    /// QEMU's options.
    pub(super) fn arguments(self) -> Vec<String> {
        match self {
            Self::Kvm => quoted(["-accel", "kvm", "-cpu", "host"]),
            Self::Emulated => quoted(["-accel", "tcg,thread=multi", "-cpu", EMULATED]),
            Self::Counted => {
                quoted(["-accel", "tcg,thread=single", "-icount", "shift=0", "-cpu", EMULATED])
            }
        }
    }
}

/// Whether KVM may run guests here, as far as one can tell before trying it.
///
/// # Errors
///
/// Why not.
pub(super) fn kvm() -> Result<(), String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !has_virtualization(&cpuinfo) {
        return Err("the processor shows no extension for it (vmx or svm)".to_owned());
    }
    let opened = File::options().read(true).write(true).open("/dev/kvm");
    opened.map(|_| ()).map_err(|error| format!("/dev/kvm: {error}"))
}

/// Some hosts have a /dev/kvm without it, on which guests start, and die in instructions that are
/// not emulated.
fn has_virtualization(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| ["vmx", "svm"].contains(&flag))
}

/// A running machine. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Machine {
    number: usize,
    running: Running,
    agent: BufReader<std::os::unix::net::UnixStream>,
    console: PathBuf,
    /// Its answers do not match the requests any more.
    is_lost: bool,
}

impl Machine {
    /// Starts QEMU with these options in addition to those of every machine. The machine reports
    /// when it is ready, see [`Machine::await_ready`].
    pub(super) fn start(
        directory: &Path,
        number: usize,
        options: Vec<String>,
        start: impl FnOnce(Program) -> Result<Running>,
    ) -> Result<Self> {
        let path_of = |name: &str| directory.join(format!("{name}.{number}"));
        let (socket, console) = (path_of("agent"), path_of("console"));
        // Bound here, and not in QEMU, so that the agent notices when this process ends.
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let program = Program::new("qemu-system-x86_64", &Mode::Plain)
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(["-serial", &format!("file:{}", escaped(&console))])
            .args(["-device", "virtio-serial-pci"])
            .args(["-chardev", &format!("socket,id=agent,path={}", escaped(&socket))])
            .args(["-device", "virtserialport,chardev=agent,name=agent"])
            .args(options)
            .timeout(BOOT);
        let running = start(program)?;
        let mut agent = None;
        running.wait_until(|| {
            agent = listener.accept().ok();
            agent.is_some()
        })?;
        let (agent, _) = agent.context("QEMU did not connect for the agent")?;
        agent.set_nonblocking(false)?;
        Ok(Self { number, running, agent: BufReader::new(agent), console, is_lost: false })
    }

    /// Waits until `is_ready` returns true, while the machine runs.
    pub(super) fn wait_until(&self, is_ready: impl FnMut() -> bool) -> Result<()> {
        Ok(self.running.wait_until(is_ready)?)
    }

    /// Waits until it takes commands.
    pub(super) fn await_ready(&mut self) -> Result<()> {
        self.agent.get_ref().set_read_timeout(Some(BOOT))?;
        let mut line = Vec::new();
        let read = self.agent.read_until(b'\n', &mut line);
        if read.is_ok() && line == b"ready\n" {
            return Ok(());
        }
        interrupt::check()?;
        let seconds = BOOT.as_secs();
        Err(self.gone(&match read {
            Ok(_) => "it did not start".to_owned(),
            Err(error) => format!("it did not start within {seconds} s ({error})"),
        }))
    }

    /// Runs a shell script, for `limit` at most, and returns its output. Errors call it `what`.
    ///
    /// # Errors
    ///
    /// If the script fails, or the machine has gone.
    pub(super) fn run(&mut self, what: &str, script: &str, limit: Duration) -> Result<String> {
        ensure!(!self.is_lost, "{what}: this guest has failed to answer before");
        match self.ask(script, limit) {
            Ok((output, 0)) => Ok(output),
            Ok((output, status)) => {
                bail!("{what}: status {status}{}", launch::last_words(&output))
            }
            Err(error) => {
                self.is_lost = true;
                interrupt::check()?;
                let error = match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer".to_owned(),
                    _ => error.to_string(),
                };
                Err(self.gone(&error).context(what.to_owned()))
            }
        }
    }

    fn ask(&mut self, script: &str, limit: Duration) -> io::Result<(String, i32)> {
        let request = format!("{} {}\n", limit.as_secs().max(1), encoded(script));
        self.agent.get_mut().write_all(request.as_bytes())?;
        self.agent.get_ref().set_read_timeout(Some(limit + GRACE))?;
        answer(&mut self.agent)
    }

    /// The error for a missing answer, with the last output of QEMU and the kernel.
    fn gone(&self, error: &str) -> anyhow::Error {
        let words = self.running.obituary().unwrap_or_default();
        let console = tail(&self.console);
        let between = if words.is_empty() { "" } else { "; " };
        anyhow!("machine {}: {error}{between}{words}; its console{console}", self.number)
    }
}

/// Reads the agent's answer to a command: the output, and the status.
fn answer(from: &mut impl BufRead) -> io::Result<(String, i32)> {
    let mut output = String::new();
    loop {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "it has gone"));
        }
        let line = String::from_utf8_lossy(&line);
        match line.split_at_checked(1) {
            Some((" ", text)) => output.push_str(text),
            Some(("=", status)) => {
                let status = status.trim().parse().map_err(|_| {
                    io::Error::new(ErrorKind::InvalidData, format!("strange status {status:?}"))
                })?;
                return Ok((output, status));
            }
            _ => {
                let why = format!("strange answer {:?}", line.trim_end());
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
        }
    }
}

/// A script as the agent takes it: on one line.
pub(super) fn encoded(script: &str) -> String {
    BASE64_STANDARD.encode(format!("{script}\n"))
}

/// A path within an option of QEMU, where a comma ends it.
pub(super) fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

pub(super) fn quoted<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// The lines at the end of a console, for error messages.
fn tail(console: &Path) -> String {
    let text = fs::read(console).map(|text| String::from_utf8_lossy(&text).into_owned());
    launch::last_words(&text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_up_to_its_status() {
        let mut said = " first\n\n second\n=0\n left\n=7\n".as_bytes();
        assert_eq!(answer(&mut said).unwrap_err().kind(), ErrorKind::InvalidData);
        let mut said = " first\n   indented\n=0\n =1\n=7\n".as_bytes();
        assert_eq!(answer(&mut said).unwrap(), ("first\n  indented\n".to_owned(), 0));
        assert_eq!(answer(&mut said).unwrap(), ("=1\n".to_owned(), 7));
        assert_eq!(answer(&mut said).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let strange = answer(&mut "=seven\n".as_bytes()).unwrap_err();
        assert!(strange.to_string().contains("seven"), "{strange}");
    }

    #[test]
    fn a_script_of_several_lines_becomes_one() {
        let script = "echo one\n".repeat(50);
        let text = encoded(&script);
        assert!(!text.contains(char::is_whitespace));
        assert_eq!(BASE64_STANDARD.decode(&text).unwrap(), format!("{script}\n").as_bytes());
    }

    #[test]
    fn kvm_is_not_taken_where_the_processor_cannot_virtualize() {
        let of = |flags: &str| has_virtualization(&format!("model\t: x\nflags\t\t: {flags}\n"));
        assert!(of("fpu svm sse") && of("vmx"));
        assert!(!of("fpu hypervisor vmxnet") && !has_virtualization(""));
    }

    #[test]
    fn a_comma_does_not_end_a_path() {
        assert_eq!(escaped(Path::new("/tmp/a,b")), "/tmp/a,,b");
    }
}

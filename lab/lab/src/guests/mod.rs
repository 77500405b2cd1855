//! Two virtual machines of this host that share memory and a network, and programs in them.
//!
//! ```text
//! requirements  what this host has to have for them
//! image         their kernel and file system, which scripts make that this program carries
//! network       how their networks are joined
//! machine       QEMU, and the agent in a guest, which runs commands
//! here          both guests: started, attached to the link between them, asked to run something
//! ```
//!
//! They are the guests of the project's tests (wire/tests/vm): two virtual machines with ivshmem,
//! or two domains of Xen within one. A guest ends with the laboratory, however that ends: its agent
//! then loses its connection, and without the agent the machine stops.

mod image;
mod machine;
mod network;
pub(crate) mod requirements;

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::FallocateFlags;
use tempfile::TempDir;

use crate::launch::{Program, interrupt};

pub(crate) use image::{Contents, GuestImage, GuestKind};
use machine::{Machine, Processor, quoted};
use network::Network;

/// Bytes of the memory that two machines share: a connection has less than 4 MiB of each half.
const REGION: u64 = 128 << 20;
/// Memory that a domain of Xen grants the other.
const GRANTED: &str = "32M";
/// Programs that are measured. Other processes of a guest keep running.
const MEASURED: &str = "streambench iperf3 redis-server redis-benchmark vchan";
/// Memory of each of two machines, in MiB; Xen divides its part as wire/tests/vm/xen does.
const MEMORY: &str = "768";
const MEMORY_OF_XEN: &str = "1664";
/// More than a short command takes on a machine that is busy.
const SHORT: Duration = Duration::from_secs(30);
/// More than a domain of Xen takes to start.
const START: Duration = Duration::from_secs(120);

/// One of the two. Servers usually run in the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    One = 1,
    Two = 2,
}

pub(crate) const BOTH: [Guest; 2] = [Guest::One, Guest::Two];

impl Guest {
    /// As wire/tests/vm/guest/init sets it.
    pub(crate) fn address(self) -> String {
        format!("192.0.2.{}", self as usize)
    }

    pub(crate) fn other(self) -> Self {
        if self == Self::One { Self::Two } else { Self::One }
    }
}

/// How their processors are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// As fast as possible.
    Time,
    /// Emulated, with a clock that advances by a nanosecond with each instruction.
    Instructions,
}

/// How the guests run, in words for results.
#[derive(Clone, Debug)]
pub(crate) struct GuestSettings {
    pub(crate) processors: String,
    pub(crate) is_emulated: bool,
    pub(crate) network: String,
    pub(crate) kernel: String,
}

/// Both guests, ready for commands. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Guests {
    /// Two, or the one that Xen runs in.
    machines: Vec<RefCell<Machine>>,
    kind: GuestKind,
    pub(crate) setting: GuestSettings,
    _network: Option<Network>,
    _region: Option<File>,
    _directory: TempDir,
}

impl Guests {
    /// Starts them, with KVM if that works here, and waits until they take commands.
    ///
    /// # Errors
    ///
    /// If QEMU cannot be started, or a guest does not start.
    pub(crate) fn start(image: &GuestImage, clock: Clock) -> Result<Self> {
        let why = match (clock, machine::kvm()) {
            (Clock::Instructions, _) => {
                return Self::boot(image, Processor::Counted, "emulated by QEMU (TCG), counted");
            }
            (Clock::Time, Ok(())) => {
                match Self::boot(image, Processor::Kvm, "those of this host (KVM)") {
                    Ok(guests) => return Ok(guests),
                    Err(error) => {
                        interrupt::check()?;
                        format!("no guest starts with it: {error:#}")
                    }
                }
            }
            (Clock::Time, Err(why)) => why,
        };
        let processors = format!("emulated by QEMU (TCG), since KVM cannot be used: {why}");
        Self::boot(image, Processor::Emulated, &processors)
    }

    fn boot(image: &GuestImage, processor: Processor, processors: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("seekwire-guests-").tempdir()?;
        let guests = match image.kind {
            GuestKind::Machines => Self::boot_machines(image, processor, processors, directory)?,
            GuestKind::Xen => Self::boot_xen(image, processor, processors, directory)?,
        };
        for machine in &guests.machines {
            machine.borrow_mut().await_ready()?;
        }
        if image.kind == GuestKind::Xen {
            let mut domain0 = guests.machines[0].borrow_mut();
            for command in ["dom0 start", "dom0 domain 1", "dom0 domain 2"] {
                domain0.run(command, command, START)?;
            }
        }
        Ok(guests)
    }

    fn boot_machines(
        image: &GuestImage,
        processor: Processor,
        processors: &str,
        directory: TempDir,
    ) -> Result<Self> {
        let region = region().context("no room for the memory that the guests share")?;
        let network = Network::new(directory.path());
        // Otherwise they would wait for each other's.
        let count = match processor {
            Processor::Counted => 1,
            _ => (host_processors() / 2).clamp(1, 4),
        };
        let mut machines = Vec::new();
        for guest in BOTH {
            let number = guest as usize;
            let mut options = processor.arguments();
            options.extend(["-smp", &count.to_string(), "-m", MEMORY].map(str::to_owned));
            options.extend(image.kernel(&format!("console=ttyS0 oops=panic guest={number}")));
            options.extend(network.arguments(number));
            options.extend(memory(&region));
            let start = |program| network.start(program);
            let machine = Machine::start(directory.path(), number, options, start)?;
            network.await_first(&machine)?;
            machines.push(RefCell::new(machine));
        }
        let setting = GuestSettings {
            processors: format!("{processors}; {count} for each guest"),
            is_emulated: processor != Processor::Kvm,
            network: network.describe(),
            kernel: image.name.clone(),
        };
        let kind = GuestKind::Machines;
        let (_network, _region, _directory) = (Some(network), Some(region), directory);
        Ok(Self { machines, kind, setting, _network, _region, _directory })
    }

    fn boot_xen(
        image: &GuestImage,
        processor: Processor,
        processors: &str,
        directory: TempDir,
    ) -> Result<Self> {
        let mut options = processor.arguments();
        if processor != Processor::Kvm {
            // Debian's domain 0 does not start on a processor that has everything that QEMU
            // emulates.
            options.extend(["-cpu", "qemu64"].map(str::to_owned));
        }
        // With only one, the domains would wait for each other's turn.
        let count = host_processors().clamp(1, 4);
        options.extend(["-smp", &count.to_string(), "-m", MEMORY_OF_XEN].map(str::to_owned));
        options.extend(image.xen("console=hvc0 oops=panic guest=0"));
        let start = |program: Program| Ok(program.start()?);
        let machine = Machine::start(directory.path(), 0, options, start)?;
        let setting = GuestSettings {
            processors: format!("{processors}; {count} for Xen and its domains"),
            is_emulated: processor != Processor::Kvm,
            network: "Xen’s netfront and netback, by a bridge in domain 0".to_owned(),
            kernel: image.name.clone(),
        };
        let (machines, kind) = (vec![RefCell::new(machine)], GuestKind::Xen);
        let (_network, _region, _directory) = (None, None, directory);
        Ok(Self { machines, kind, setting, _network, _region, _directory })
    }

    /// Attaches both ends of a link between the guests.
    ///
    /// # Errors
    ///
    /// If one of them cannot be attached, with the report of `seekwire` about it.
    pub(crate) fn attach(&self) -> Result<()> {
        if self.kind == GuestKind::Xen {
            self.grant()?;
        } else {
            self.on(Guest::One, "seekwire vm attach", "seekwire vm attach", SHORT)?;
        }
        self.on(Guest::Two, "seekwire vm attach", "seekwire vm attach", SHORT)?;
        for guest in BOTH {
            let status = "seekwire vm status --json";
            let said = self.on(guest, status, status, SHORT)?;
            let is_attached = ["\"state\":\"attached\"", "\"peer\":\"attached\""];
            ensure!(
                is_attached.iter().all(|words| said.contains(words)),
                "no link is attached at both ends; guest {} says: {}",
                guest as usize,
                said.trim()
            );
        }
        Ok(())
    }

    /// Makes the first domain grant the second one memory, while it runs. The numbers of domains,
    /// which the map names, are known only now.
    fn grant(&self) -> Result<()> {
        for guest in BOTH {
            let side = if guest == Guest::One { "first" } else { "second" };
            let (other, domain) = (guest.other().address(), self.domain(guest.other())?);
            let script = format!(
                "mkdir -p /etc/seekwire
                printf '%s\\n' 'link guests xen {domain}/{GRANTED} {side}' '{other} guests' \
                    >/etc/seekwire/links
                if [ -e /sys/module/xen_gntalloc/parameters/limit ]; then
                    echo 65536 >/sys/module/xen_gntalloc/parameters/limit
                fi"
            );
            self.on(guest, "write the map", &script, SHORT)?;
        }
        let hold = "start holder '*held and attached*' seekwire vm hold guests";
        self.on(Guest::One, "seekwire vm hold", hold, SHORT)?;
        Ok(())
    }

    /// Runs a shell script in a guest, for `limit` at most, and returns its output. Errors call it
    /// `what`.
    ///
    /// # Errors
    ///
    /// If it fails, with the end of its output, or if the guest has gone.
    pub(crate) fn on(
        &self,
        guest: Guest,
        what: &str,
        script: &str,
        limit: Duration,
    ) -> Result<String> {
        let what = format!("guest {}: {what}", guest as usize);
        match self.kind {
            GuestKind::Machines => {
                self.machines[guest as usize - 1].borrow_mut().run(&what, script, limit)
            }
            GuestKind::Xen => {
                let text = machine::encoded(script);
                let passed = format!("domain {} {} {text}", guest as usize, limit.as_secs());
                // Domain 0 waits longer than they do.
                self.machines[0].borrow_mut().run(&what, &passed, limit + Duration::from_secs(10))
            }
        }
    }

    /// Xen's number of a guest.
    pub(crate) fn domain(&self, guest: Guest) -> Result<u32> {
        if self.kind != GuestKind::Xen {
            bail!("only Xen has domains");
        }
        let script = format!("cat /run/number.{}", guest as usize);
        let said = self.machines[0].borrow_mut().run("domain 0", &script, SHORT)?;
        said.trim().parse().with_context(|| format!("domain 0 says {said:?}"))
    }

    /// Ends the measured programs in both guests, and removes their files.
    ///
    /// # Errors
    ///
    /// As [`Guests::on`].
    pub(crate) fn tidy(&self) -> Result<()> {
        let script = format!("killall -q -9 {MEASURED}; rm -rf /tmp/* /dev/shm/*");
        for guest in BOTH {
            self.on(guest, "tidy up", &script, SHORT)?;
        }
        Ok(())
    }
}

/// Processors that this process may use.
fn host_processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// QEMU's options for the memory that both guests have (wire/docs/virtual-machines.md). This
/// process holds it, and QEMU opens it through this process: it does so only some time after it has
/// started, and would create a file of its own if none existed.
fn memory(region: &File) -> Vec<String> {
    let (process, descriptor) = (std::process::id(), region.as_raw_fd());
    let path = format!("/proc/{process}/fd/{descriptor}");
    let backend = format!("memory-backend-file,id=region,share=on,mem-path={path},size={REGION}");
    quoted(["-object", &backend, "-device", "ivshmem-plain,memdev=region"])
}

/// Creates the region in memory, where there is room, so that no disk is measured. It has no name,
/// so nothing is left of it, however this process ends.
fn region() -> Result<File> {
    let with_room = |file: File| -> Result<File> {
        // Otherwise a guest would be killed when it uses more than there is room for.
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, REGION)?;
        Ok(file)
    };
    let in_memory = || with_room(tempfile::tempfile_in("/dev/shm")?);
    in_memory().or_else(|_| with_room(tempfile::tempfile()?))
}

//! `seekwire vm plan`: the steps on the host that make machines share memory, and the maps of these
//! machines.
//!
//! ivshmem-plain is a PCI device whose memory is a file of the host (QEMU's
//! docs/specs/ivshmem-spec.txt); libvirt calls it `shmem` (formatdomain, "Shared memory device").
//! Xen has its own way.

mod pairs;
mod xen;

use std::process::ExitCode;

use anyhow::Result;

use self::pairs::{Pair, of_machine, pairs};
use super::output::print;
use super::size;
use crate::arguments::{Runner, VmPlan};

/// The exit status for options that are not understood.
const USAGE: u8 = 2;

/// Prints the plan.
///
/// # Errors
///
/// Those of writing to standard output.
pub(super) fn plan(options: &VmPlan) -> Result<ExitCode> {
    let pairs = match pairs(&options.names) {
        Ok(pairs) => pairs,
        Err(why) => {
            seekwire_program::tell(format_args!("seekwire: {why}"));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let size = options.size.get();
    if options.runner == Runner::Xen && !xen::SIZES.contains(&size) {
        let most = size::shown(*xen::SIZES.end());
        seekwire_program::tell(format_args!(
            "seekwire: with Xen, a region has at most {most}: choose a smaller --size"
        ));
        return Ok(ExitCode::from(USAGE));
    }
    print(&render(&options.names, &pairs, size, options.runner))?;
    Ok(ExitCode::SUCCESS)
}

fn render(names: &[String], pairs: &[Pair], size: u64, runner: Runner) -> String {
    let is_qemu = match runner {
        Runner::Qemu => true,
        Runner::Libvirt => false,
        Runner::Xen => return xen::render(names, pairs, size),
    };
    let mut text = if is_qemu { files(pairs, size) } else { lasting_files(pairs) };
    for (machine, name) in names.iter().enumerate() {
        text.push_str(&if is_qemu {
            format!("\n# For the machine {name}: arguments of QEMU\n")
        } else {
            format!("\n# For the machine {name}: in <devices> of its domain\n")
        });
        for (pair, slot) in of_machine(pairs, machine) {
            let region = pair.region();
            let device = if is_qemu { arguments } else { element };
            text.push_str(&device(&region, size, slot));
        }
    }
    for (machine, name) in names.iter().enumerate() {
        text.push_str(&format!("\n# In the machine {name}: /etc/seekwire/links\n"));
        for (pair, slot) in of_machine(pairs, machine) {
            text.push_str(&line(names, pair, machine, slot));
        }
    }
    text.push_str(
        "\n# In each machine: `lspci -D -d 1af4:1110` says whether the devices are where the map has\n\
         # them. Then add the addresses of the other machines, and attach for a group of users:\n",
    );
    text.push_str(
        "#   sudo seekwire vm map add ADDRESS LINK\n#   sudo seekwire vm attach --group GROUP\n",
    );
    text
}

/// The commands that create the files of the regions, for the user who runs the machines.
fn files(pairs: &[Pair], size: u64) -> String {
    let mut text =
        "# On the host, as the user who runs the machines, and again after each start of \
                    the host\n"
            .to_owned();
    for pair in pairs {
        let (size, region) = (size::shown(size), pair.region());
        text.push_str(&format!("(umask 077; truncate --size={size} /dev/shm/{region})\n"));
    }
    text
}

/// The configuration that creates empty files for the regions at each start of the host
/// (tmpfiles.d(5)): QEMU sets their size. Files that QEMU creates itself can be read by everybody.
fn lasting_files(pairs: &[Pair]) -> String {
    let mut text = "# On the host: /etc/tmpfiles.d/seekwire.conf; then, before the machines start:\n\
                    #   sudo systemd-tmpfiles --create seekwire.conf\n\
                    # libvirt-qemu is the user of libvirt's machines on Debian; elsewhere it is qemu\n"
        .to_owned();
    for pair in pairs {
        text.push_str(&format!("f /dev/shm/{} 0600 libvirt-qemu - -\n", pair.region()));
    }
    text
}

fn arguments(region: &str, size: u64, slot: usize) -> String {
    format!(
        "-object memory-backend-file,id={region},share=on,mem-path=/dev/shm/{region},size={}\n\
         -device ivshmem-plain,id={region},memdev={region},addr={slot:#x}\n",
        size::shown(size)
    )
}

fn element(region: &str, size: u64, slot: usize) -> String {
    format!(
        "<shmem name='{region}'>\n  \
           <model type='ivshmem-plain'/>\n  \
           <size unit='M'>{}</size>\n  \
           <address type='pci' domain='0x0000' bus='0x00' slot='{slot:#x}' function='0x0'/>\n\
         </shmem>\n",
        size >> 20
    )
}

/// The line of a machine's map, and a comment on what is still missing there.
fn line(names: &[String], pair: &Pair, machine: usize, slot: usize) -> String {
    let (link, side) = (&pair.link, pair.side(machine).unwrap_or_default());
    let other = &names[pair.other(machine)];
    format!(
        "link  {link}  ivshmem  0000:00:{slot:02x}.0  {side}\n\
         # here, for each address of {other}:  ADDRESS  {link}\n"
    )
}

#[cfg(test)]
mod tests {
    use seekwire_link::Map;

    use super::*;

    fn names(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    fn planned(line: &str, runner: Runner) -> String {
        let names = names(line);
        render(&names, &pairs(&names).unwrap(), 256 << 20, runner)
    }

    /// The map that the plan has for a machine.
    fn map(plan: &str, machine: &str) -> Map {
        let title = format!("# In the machine {machine}: /etc/seekwire/links\n");
        let text = plan.split(&title).nth(1).unwrap().split("\n\n").next().unwrap();
        Map::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn every_two_machines_have_a_region_in_different_halves_of_which_they_are() {
        let plan = planned("db web cache", Runner::Qemu);
        let maps = ["db", "web", "cache"].map(|machine| map(&plan, machine));
        for (link, [one, other]) in
            [("db-web", [0, 1]), ("db-cache", [0, 2]), ("web-cache", [1, 2])]
        {
            let sides = [one, other].map(|machine: usize| maps[machine].get(link).unwrap().side);
            assert_ne!(sides[0], sides[1], "{link}");
            let devices = plan.matches(&format!("memdev=seekwire-{link},")).count();
            assert_eq!(devices, 2, "{plan}");
        }
        assert!(maps.iter().all(|map| map.links().len() == 2));
    }

    #[test]
    fn the_map_has_the_address_at_which_the_device_is_put() {
        for (runner, address) in [(Runner::Qemu, "addr=0x11"), (Runner::Libvirt, "slot='0x11'")] {
            let plan = planned("db web cache", runner);
            let own = plan.split("# For the machine cache: ").nth(1).unwrap();
            let own = own.split("\n\n").next().unwrap();
            // The second of two.
            assert!(own.contains(address), "{own}");
            let map = map(&plan, "cache");
            let (_, place) = super::super::map_file::provider(&map.links()[1].provider);
            assert_eq!(place, "0000:00:11.0");
        }
    }

    #[test]
    fn names_that_no_link_could_have_are_refused() {
        let refused = |line: &str| pairs(&names(line)).unwrap_err();
        assert!(refused("db Web").contains("\"Web\""));
        assert!(refused("db -web").contains("do not begin with -"));
        assert!(refused("db db").contains("same name"));
        assert!(refused("a a-b b-c c a-b-c").contains("links of the same name"));
        assert!(refused("a-rather-long-name another-long-name").contains("longer than 32"));
        assert!(refused("a b c d e f g h i j").contains("at most 9"));
        assert_eq!(pairs(&names("a b c d e f g h i")).unwrap().len(), 36);
    }
}

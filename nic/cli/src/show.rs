//! `seekwire nic show`: prints the settings of interfaces.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use seekwire_nic::{Error, Feature, Interface, Kernel, Parameter, Read, Saved};
use seekwire_program::standard;
use seekwire_program::table::{self, Align};
use serde::Serialize;

use crate::arguments::NicShow;
use crate::unrestored;

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    interface: Interface,
    saved: Option<Saved>,
}

pub(crate) fn show(options: &NicShow) -> Result<ExitCode> {
    let mut kernel = Kernel::open()?;
    let store = options.state.store();
    let (interfaces, failures) = match &options.interface {
        Some(name) => (vec![kernel.interface(name)?], Vec::new()),
        None => sort_out(kernel.interfaces()?),
    };
    let mut shown = Vec::new();
    let mut closed = None;
    for interface in interfaces {
        unrestored::tell_of_left_behind(&store, &interface);
        let saved = match store.load(&interface) {
            Ok(saved) => saved,
            Err(error) => {
                // Any other failure has just been reported.
                closed = matches!(error, Error::Closed(_)).then_some(error).or(closed);
                None
            }
        };
        shown.push(Shown { interface, saved });
    }
    for failure in closed.iter().map(ToString::to_string).chain(failures.iter().cloned()) {
        seekwire_program::tell(format_args!("seekwire: {failure}"));
    }
    let text = if options.json {
        serde_json::to_string_pretty(&shown)? + "\n"
    } else {
        shown.iter().map(render).collect::<Vec<_>>().join("\n")
    };
    standard::output()?.lock().write_all(text.as_bytes())?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The interfaces that could be read, and messages about the others.
fn sort_out(all: Vec<Read>) -> (Vec<Interface>, Vec<String>) {
    let (mut interfaces, mut failures) = (Vec::new(), Vec::new());
    for (_, read) in all {
        match read {
            Ok(interface) => interfaces.push(interface),
            Err(error) => failures.push(error.to_string()),
        }
    }
    (interfaces, failures)
}

fn render(shown: &Shown) -> String {
    let Shown { interface, saved } = shown;
    let mut text = format!("{}: {}\n", interface.name, summary(interface));
    if saved.is_some() {
        let name = &interface.name;
        text.push_str(&format!(
            "  changed; `seekwire nic restore {name}` restores the original state\n"
        ));
    }
    let mut section = |title: &'static str, rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            const VALUES: [(&str, Align); 2] = [("VALUE", Align::Left), ("MEANING", Align::Left)];
            let columns = [(title, Align::Left), VALUES[0], VALUES[1]];
            text.push('\n');
            text.extend(table::layout(&columns, &rows).lines().map(|line| format!("  {line}\n")));
        }
    };
    let (changeable, fixed): (Vec<&Feature>, Vec<&Feature>) =
        interface.features.iter().partition(|feature| feature.changeable);
    section("OFFLOAD", changeable.into_iter().map(feature).collect());
    section("OFFLOAD, FIXED", fixed.into_iter().map(feature).collect());
    let parameters =
        |prefix: &str, all: &[Parameter]| all.iter().map(|one| parameter(prefix, one)).collect();
    section("COALESCING", parameters("coalesce.", &interface.coalescing));
    section("RING", parameters("ring.", &interface.rings));
    section("CHANNELS", parameters("", &interface.queues.channels));
    section("PRIVATE FLAG", parameters("private.", &interface.private_flags));
    text
}

fn summary(interface: &Interface) -> String {
    let speed = interface.speed_mbps.map(|speed| format!("{speed} Mb/s"));
    let parts = [
        interface.driver.clone().map(|driver| format!("driver {driver}")),
        Some(if interface.up { "up" } else { "down" }.to_owned()),
        speed.map(|speed| match interface.duplex {
            Some(duplex) => format!("{speed} {duplex} duplex"),
            None => speed,
        }),
        Some(format!("MTU {}", interface.mtu)),
        Some(format!("queues {} rx, {} tx", interface.queues.rx, interface.queues.tx)),
        interface.default_route.then(|| "carries the default route".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn feature(feature: &Feature) -> Vec<String> {
    let value = match (feature.active, feature.wanted) {
        (true, true) => "on",
        (false, false) => "off",
        (false, true) => "off, wanted",
        (true, false) => "on, not wanted",
    };
    vec![feature.name.clone(), value.to_owned(), feature.meaning.to_owned()]
}

fn parameter(prefix: &str, parameter: &Parameter) -> Vec<String> {
    let value = match parameter.maximum {
        Some(maximum) => format!("{} of {maximum}", parameter.value),
        None => parameter.value.to_string(),
    };
    vec![format!("{prefix}{}", parameter.name), value, parameter.meaning.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_cannot_be_read_does_not_hide_the_others() {
        let mut all = Kernel::open().unwrap().interfaces().unwrap();
        let count = all.len();
        all.insert(0, ("eth7".to_owned(), Err(Error::Detached("eth7".to_owned()))));
        let (interfaces, failures) = sort_out(all);
        assert_eq!(interfaces.len(), count);
        assert!(count > 0 && failures.len() == 1 && failures[0].contains("eth7"), "{failures:?}");
    }
}

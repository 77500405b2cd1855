//! The state of the agent.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Mutex;

use seekwire_link::{Link, Published};

use super::addresses::Addresses;
use super::findings::Findings;
use super::log::{self, lock};

/// State that the threads of the agent share.
pub(super) struct Agent {
    /// The port at which it answers.
    pub(super) port: u16,
    pub(super) addresses: Mutex<Addresses>,
    pub(super) findings: Mutex<Findings>,
    pub(super) links: Mutex<Links>,
}

/// The links that this machine is attached to, by their names.
#[derive(Default)]
pub(super) struct Links {
    pub(super) open: BTreeMap<String, Link>,
    /// True once nothing may be published any more.
    pub(super) is_over: bool,
}

impl Agent {
    /// The data that this machine publishes.
    pub(super) fn published(&self) -> Published {
        Published::new(self.port, lock(&self.addresses).configured().iter().copied())
    }

    /// Whether this machine has an address itself.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        lock(&self.addresses).is_own(address)
    }

    pub(super) fn look_at_addresses(&self, configured: &[IpAddr]) {
        match Addresses::look(configured) {
            Ok(addresses) => *lock(&self.addresses) = addresses,
            Err(error) => log::complain(None, format_args!("{error:#}")),
        }
    }

    /// Publishes the data in the region of a link, unless the agent is about to end.
    pub(super) fn publish(&self, link: &Link, published: &Published) {
        let links = lock(&self.links);
        if !links.is_over {
            link.publish(published);
        }
    }

    /// Removes everything that programs or other machines would believe.
    pub(super) fn end(&self) {
        lock(&self.findings).end();
        let mut links = lock(&self.links);
        links.is_over = true;
        for link in links.open.values() {
            link.publish(&Published::default());
            link.ask(0);
        }
    }
}

//! Links: their names, their sizes, which is above which, and the drivers of physical ones.

use std::ffi::CStr;
use std::path::Path;

use netlink_bindings::ethtool;
use netlink_bindings::rt_link::{self, Ifinfomsg, IterableLinkAttrs};
use netlink_bindings::utils::ErrorContext;

use super::{COMPACT, Kernel, Refusal, Which, command};

/// IFF_UP of net_device_flags.
const UP: u32 = 1;
/// RTEXT_FILTER_SKIP_STATS: counters are not needed.
const SKIP_STATS: u32 = 1 << 3;
/// Longest name, without the terminator (IFNAMSIZ).
const LONGEST_NAME: usize = 15;

/// The attributes of an interface in rtnetlink.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    pub(super) up: bool,
    pub(super) rx_queues: u32,
    pub(super) tx_queues: u32,
    /// The permanent address if there is one, else the present one; and which of them it is.
    pub(super) address: Option<String>,
    pub(super) has_permanent_address: bool,
    /// `veth`, `bridge` ...; `None` for devices.
    pub(super) kind: Option<String>,
    /// Bus and name of the device.
    device: Option<(String, String)>,
    /// The bridge or bond that it belongs to.
    pub(super) master: Option<u32>,
    /// The interface that it is stacked on, in the same namespace.
    pub(super) below: Option<u32>,
}

impl Link {
    fn understand(
        header: &Ifinfomsg,
        attributes: &IterableLinkAttrs<'_>,
    ) -> Result<Self, ErrorContext> {
        let kind = attributes.get_linkinfo().ok().and_then(|info| info.get_kind().ok()).map(text);
        let device = attributes
            .get_parent_dev_bus_name()
            .ok()
            .zip(attributes.get_parent_dev_name().ok())
            .map(|(bus, name)| (text(bus), text(name)));
        let permanent = attributes.get_perm_address().ok().and_then(mac);
        let has_permanent_address = permanent.is_some();
        let address = permanent.or_else(|| attributes.get_address().ok().and_then(mac));
        // For a veth it names the other end; with a namespace id it is in another namespace.
        let is_stacked = kind.as_deref() != Some("veth") && attributes.get_link_netnsid().is_err();
        Ok(Self {
            index: header.ifi_index.unsigned_abs(),
            name: text(attributes.get_ifname()?),
            mtu: attributes.get_mtu()?,
            up: header.ifi_flags & UP != 0,
            rx_queues: attributes.get_num_rx_queues().unwrap_or(1),
            tx_queues: attributes.get_num_tx_queues().unwrap_or(1),
            master: attributes.get_master().ok(),
            below: attributes.get_link().ok().filter(|_| is_stacked),
            address,
            has_permanent_address,
            kind,
            device,
        })
    }

    /// Where the device is plugged in.
    pub(super) fn bus(&self) -> Option<String> {
        self.device.as_ref().map(|(bus, name)| format!("{bus}/{name}"))
    }

    /// The driver of the device, else the kind. ethtool netlink does not have it.
    pub(super) fn driver(&self) -> Option<String> {
        let driver = |(bus, name): &(String, String)| {
            let link = Path::new("/sys/bus").join(bus).join("devices").join(name).join("driver");
            Some(std::fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
        };
        self.device.as_ref().and_then(driver).or_else(|| self.kind.clone())
    }
}

/// As people write the address of an Ethernet interface; none of another kind, and none of
/// loopback, which has zeros.
fn mac(bytes: &[u8]) -> Option<String> {
    let text = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    (bytes.len() == 6 && bytes != [0; 6]).then_some(text)
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

impl Kernel {
    pub(super) fn links(&mut self) -> Result<Vec<Link>, Refusal> {
        let mut request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
        request.encode().push_ext_mask(SKIP_STATS);
        let mut links = Vec::new();
        let mut replies = self.socket.request(&request)?;
        while let Some(reply) = replies.recv() {
            let (header, attributes) = reply?;
            links.push(Link::understand(&header, &attributes)?);
        }
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    pub(super) fn link(&mut self, which: Which<'_>) -> Result<Link, Refusal> {
        let header = Ifinfomsg {
            ifi_index: match which {
                Which::Index(index) => index as i32,
                Which::Name(_) => 0,
            },
            ..Ifinfomsg::new()
        };
        let mut request = rt_link::Request::new().op_getlink_do(&header);
        let attributes = request.encode().push_ext_mask(SKIP_STATS);
        match which {
            Which::Index(_) => drop(attributes),
            Which::Name(name) if name.contains('\0') => {
                return Err(std::io::Error::from(rustix::io::Errno::NODEV).into());
            }
            Which::Name(name) if name.len() <= LONGEST_NAME => {
                drop(attributes.push_ifname_bytes(name.as_bytes()));
            }
            Which::Name(name) => drop(attributes.push_alt_ifname_bytes(name.as_bytes())),
        }
        let link =
            self.ask(&request, |(header, attributes)| Link::understand(&header, &attributes))?;
        link.ok_or_else(|| std::io::Error::from(rustix::io::Errno::NODEV).into())
    }

    /// Megabits per second and duplex.
    #[allow(clippy::type_complexity)]
    pub(super) fn speed(
        &mut self,
        index: u32,
    ) -> Result<Option<(Option<u32>, Option<&'static str>)>, Refusal> {
        const UNKNOWN: u32 = u32::MAX;
        let mut request = request!(op_linkmodes_get_do, LINKMODES_GET);
        request.encode().nested_header().push_dev_index(index).push_flags(COMPACT);
        self.ask(&request, |modes| {
            let duplex = match modes.get_duplex() {
                Ok(0) => Some("half"),
                Ok(1) => Some("full"),
                _ => None,
            };
            let speed = modes.get_speed().ok().filter(|speed| ![0, UNKNOWN].contains(speed));
            Ok((speed, duplex))
        })
    }
}

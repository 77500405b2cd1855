//! Options for the hosts of network tests, which experiments receive in their context.

/// How network tests find their hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkOptions {
    /// The other host, `HOST:PORT`, where `seekwire nic serve` runs; `None`: two network
    /// namespaces.
    pub peer: Option<String>,
    /// A second `seekwire nic serve`, which has little processor time; without it a peer has no
    /// weak receiver.
    pub weak_peer: Option<String>,
    /// The interface whose settings are changed, if not the one that leads to the peer.
    pub interface: Option<String>,
    /// Whether this may be an interface that carries the default route.
    pub default_route: bool,
    /// CPU limit of the receiver on a weak host, in percent of one processor; with `weak_peer`, the
    /// limit that it already has.
    pub weak_cpu: f64,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self { peer: None, weak_peer: None, interface: None, default_route: false, weak_cpu: 20.0 }
    }
}

//! The user that a process acts for, and the systemd unit and the container that it is in, by the
//! names of its control groups (cgroups(7)). Those are conventions of systemd, Docker, Podman,
//! Kubernetes, LXC and others.

use nix::unistd::{Uid, User};

/// Where a process runs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The unit, as systemctl(1) names it.
    pub(crate) unit: Option<String>,
    /// The kind of container and its name, with a colon between them; of an id the first twelve
    /// digits, as the tools show it.
    pub(crate) container: Option<String>,
}

impl Place {
    /// As the file `cgroup` of a process says: lines of `hierarchy:controllers:path`.
    pub(crate) fn of(groups: &str) -> Self {
        let mut place = Self::default();
        for path in groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
            let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
            for (at, name) in names.iter().enumerate() {
                let before = at.checked_sub(1).map_or("", |at| names[at]);
                let after = names.get(at + 1).copied();
                if let Some(container) = container(before, name, after) {
                    place.container.get_or_insert(container);
                }
            }
            let is_unit = |name: &&&str| name.ends_with(".service") || name.ends_with(".scope");
            if let Some(unit) = names.iter().rev().find(is_unit) {
                place.unit.get_or_insert((*unit).to_owned());
            }
        }
        place
    }
}

/// The name of a user, or the number, if it has none on this host.
pub(crate) fn user_name(user: u32) -> String {
    let found = User::from_uid(Uid::from_raw(user)).ok().flatten();
    found.map_or_else(|| user.to_string(), |user| user.name)
}

/// The container of a control group with this name.
fn container(before: &str, name: &str, after: Option<&str>) -> Option<String> {
    const ID: usize = 64;
    let is_id = |name: &str| name.len() == ID && name.bytes().all(|it| it.is_ascii_hexdigit());
    let shown = |kind: &str, id: &str| format!("{kind}:{}", &id[..12]);
    // systemd escapes nothing in these names.
    let scope = name.strip_suffix(".scope").unwrap_or(name);
    let kinds = [("docker-", "docker"), ("libpod-", "podman"), ("crio-", "cri-o")];
    for (start, kind) in kinds.into_iter().chain([("cri-containerd-", "containerd")]) {
        if let Some(id) = scope.strip_prefix(start).filter(|id| is_id(id)) {
            return Some(shown(kind, id));
        }
    }
    if is_id(name) {
        let kind = match before {
            "docker" => "docker",
            _ if before.starts_with("pod") => "kubernetes",
            _ => "container",
        };
        return Some(shown(kind, name));
    }
    let lxc = name.strip_prefix("lxc.payload.").or_else(|| after.filter(|_| name == "lxc"));
    if let Some(name) = lxc {
        return Some(format!("lxc:{name}"));
    }
    scope.strip_prefix("machine-").filter(|_| scope != name).map(|name| format!("machine:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_name_units_and_containers() {
        const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (groups, unit, container) in [
            ("0::/\n", None, None),
            ("", None, None),
            ("0::/system.slice/nginx.service\n", Some("nginx.service"), None),
            ("1:name=systemd:/system.slice/a.service\n0::/\n", Some("a.service"), None),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/x.service\n",
                Some("x.service"),
                None,
            ),
            ("0::/user.slice/user-0.slice/session-3.scope\n", Some("session-3.scope"), None),
            (
                "0::/machine.slice/machine-web.scope/payload\n",
                Some("machine-web.scope"),
                Some("machine:web"),
            ),
            ("12:memory:/docker/ID\n0::/docker/ID\n", None, Some("docker:0123456789ab")),
            (
                "0::/system.slice/docker-ID.scope\n",
                Some("docker-ID.scope"),
                Some("docker:0123456789ab"),
            ),
            (
                "0::/machine.slice/libpod-ID.scope/container\n",
                Some("libpod-ID.scope"),
                Some("podman:0123456789ab"),
            ),
            ("0::/kubepods/besteffort/pod1-2/ID\n", None, Some("kubernetes:0123456789ab")),
            (
                "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope\n",
                Some("cri-containerd-ID.scope"),
                Some("containerd:0123456789ab"),
            ),
            ("0::/lxc.payload.db\n", None, Some("lxc:db")),
            ("4:memory:/lxc/db\n", None, Some("lxc:db")),
        ] {
            let id = |text: &str| text.replace("ID", ID);
            let expected = Place { unit: unit.map(id), container: container.map(str::to_owned) };
            assert_eq!(Place::of(&id(groups)), expected, "{groups}");
        }
    }
}

//! Placement: on which processes of a job filters run.

use std::ops::Range;

use seekwire_launch::Launcher;

use crate::job::Member;
use crate::options::{Fault, OptionTable};

/// The placement of one filter in a pipeline file.
#[derive(Clone, Debug, Default)]
pub(crate) enum Placement {
    /// None given: rank 0.
    #[default]
    Coordinator,
    Ranks(Vec<u64>, Range<usize>),
    /// Patterns of names: `*` is any text.
    Hosts(Vec<String>, Range<usize>),
    Role(String, Range<usize>),
}

impl Placement {
    pub(crate) fn take(options: &mut OptionTable<'_>) -> Result<Self, Fault> {
        let locations = ["ranks", "hosts", "role"].map(|name| options.location(name));
        let [ranks_at, hosts_at, role_at] = locations;
        let ranks = options.numbers("ranks")?.map(|ranks| Self::Ranks(ranks, ranks_at.clone()));
        let hosts = options.strings("hosts")?.map(|hosts| Self::Hosts(hosts, hosts_at));
        let role = options.string("role")?.map(|role| Self::Role(role, role_at));
        let mut all = [ranks, hosts, role].into_iter().flatten();
        let placement = all.next().unwrap_or_default();
        if all.next().is_some() {
            let why = "a filter is placed by one of ranks, hosts and role, not by several";
            return Err((options.span(), why.to_owned()));
        }
        match &placement {
            Self::Ranks(ranks, at) if ranks.is_empty() => {
                Err((at.clone(), "ranks must name at least one rank".to_owned()))
            }
            Self::Hosts(hosts, at) if hosts.is_empty() => {
                Err((at.clone(), "hosts must name at least one host".to_owned()))
            }
            _ => Ok(placement),
        }
    }

    /// The matching ranks, in order.
    pub(crate) fn ranks(&self, members: &[Member], launcher: Launcher) -> Result<Vec<u32>, Fault> {
        let matching = |is_meant: &dyn Fn(&Member) -> bool| -> Vec<u32> {
            let all = members.iter().enumerate().filter(|(_, member)| is_meant(member));
            all.map(|(rank, _)| rank as u32).collect()
        };
        let (ranks, at, what) = match self {
            Self::Coordinator => return Ok(vec![0]),
            Self::Ranks(ranks, at) => {
                if let Some(rank) = ranks.iter().find(|rank| **rank >= members.len() as u64) {
                    let why = format!("there is no rank {rank}: {}", there_are(members, launcher));
                    return Err((at.clone(), why));
                }
                return Ok(ranks.iter().map(|rank| *rank as u32).collect());
            }
            Self::Hosts(patterns, at) => {
                let is_meant =
                    |member: &Member| patterns.iter().any(|pattern| matches(pattern, &member.host));
                (matching(&is_meant), at, format!("runs on {}", patterns.join(" or ")))
            }
            Self::Role(role, at) => {
                let is_meant = |member: &Member| member.role == *role;
                (matching(&is_meant), at, format!("has the role {role}"))
            }
        };
        if ranks.is_empty() {
            let why = format!("no process {what}: {}", there_are(members, launcher));
            return Err((at.clone(), why));
        }
        Ok(ranks)
    }

    /// As shown to people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Coordinator => String::new(),
            Self::Ranks(ranks, _) => {
                let ranks: Vec<String> = ranks.iter().map(u64::to_string).collect();
                format!(", on ranks {}", ranks.join(", "))
            }
            Self::Hosts(hosts, _) => format!(", on hosts {}", hosts.join(", ")),
            Self::Role(role, _) => format!(", where the role is {role}"),
        }
    }
}

fn there_are(members: &[Member], launcher: Launcher) -> String {
    let describe = |(rank, member): (usize, &Member)| {
        let role = if member.role.is_empty() { "no role" } else { &member.role };
        format!("rank {rank} on {} ({role})", member.host)
    };
    let some: Vec<String> = members.iter().enumerate().map(describe).take(8).collect();
    let more = if members.len() > 8 { ", ..." } else { "" };
    let how = match launcher {
        Launcher::Alone => "; start more with mpiexec, srun or mpirun",
        _ => "",
    };
    format!("there are {}{more}{how}", some.join(", "))
}

/// `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    let Some(mut rest) = rest.strip_suffix(last) else { return false };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::Files;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("node1", "node1", true),
            ("node1", "node12", false),
            ("node*", "node12", true),
            ("*", "", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("*.gpu", "x.gpu", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn placements_are_resolved_or_the_available_processes_are_listed() {
        let member = |host: &str, role: &str| Member {
            host: host.into(),
            role: role.into(),
            files: Files::default(),
        };
        let members = [member("a1", ""), member("b1", "worker"), member("b2", "worker")];
        let ranks = |placement: Placement| placement.ranks(&members, Launcher::Hydra);
        assert_eq!(ranks(Placement::Coordinator), Ok(vec![0]));
        assert_eq!(
            ranks(Placement::Hosts(vec!["b*".into(), "a1".into()], 0..1)),
            Ok(vec![0, 1, 2])
        );
        assert_eq!(ranks(Placement::Role("worker".into(), 0..1)), Ok(vec![1, 2]));
        assert_eq!(ranks(Placement::Ranks(vec![2, 1, 2], 0..1)), Ok(vec![2, 1, 2]));
        let (at, why) = ranks(Placement::Role("viewer".into(), 3..5)).unwrap_err();
        assert_eq!(at, 3..5);
        assert!(why.starts_with("no process has the role viewer: there are rank 0 on a1 (no role), rank 1 on b1 (worker)"), "{why}");
        let (_, why) = ranks(Placement::Ranks(vec![3], 0..1)).unwrap_err();
        assert!(why.starts_with("there is no rank 3"), "{why}");
    }
}

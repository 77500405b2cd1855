//! Named sets of settings: three steps to measure the effect of offloads on messages, and two sets
//! for practical use.

use std::fmt;
use std::str::FromStr;

use crate::interface::Interface;
use crate::setting::{Group, Key, Setting, Value};

/// A set of settings. Settings that a profile does not name stay as they are: ring sizes, because
/// many drivers take the link down to change them, and everything that has no effect on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// No offload: the CPU does checksums, scatter-gather, segmentation and joining, packet by
    /// packet.
    Baseline,
    /// The interface computes checksums, nothing else.
    Checksum,
    /// Checksums, scatter-gather and segmentation (TSO, GSO); received packets are not joined.
    Offload,
    /// Sends like `offload`; received packets are passed on at once, one by one.
    LowLatency,
    /// As `offload`, and received packets are joined (GRO) and may wait for each other, depending
    /// on the load.
    Throughput,
}

impl Profile {
    /// All profiles, from no offload to all.
    pub const ALL: [Self; 5] =
        [Self::Baseline, Self::Checksum, Self::Offload, Self::LowLatency, Self::Throughput];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Checksum => "checksum",
            Self::Offload => "offload",
            Self::LowLatency => "low-latency",
            Self::Throughput => "throughput",
        }
    }

    /// The settings of the profile for this interface, without coalescing settings that the
    /// interface does not have.
    #[must_use]
    pub fn settings(self, interface: &Interface) -> Vec<Setting> {
        let (checksums, segmentation, joining) = match self {
            Self::Baseline => (false, false, false),
            Self::Checksum => (true, false, false),
            Self::Offload | Self::LowLatency => (true, true, false),
            Self::Throughput => (true, true, true),
        };
        let mut settings = Vec::new();
        let mut add = |key: Key, value| settings.push(Setting { key, value, required: false });
        for (name, on) in [
            ("rx", checksums),
            ("tx", checksums),
            ("sg", segmentation),
            ("tso", segmentation),
            ("gso", segmentation),
            ("gro", joining),
            // Both delay messages or change forwarded packets; GRO joins packets without that.
            ("rx-gro-hw", false),
            ("lro", false),
        ] {
            add(Key::feature(name), Value::Switch(on));
        }
        let offers = |name: &str| interface.parameter(&Key::new(Group::Coalescing, name)).is_some();
        let mut coalesce = |name: &str, value| {
            if offers(name) {
                add(Key::new(Group::Coalescing, name), value);
            }
        };
        match self {
            Self::Baseline | Self::Checksum | Self::Offload => {}
            Self::LowLatency => {
                for adaptive in ["adaptive-rx", "adaptive-tx"] {
                    coalesce(adaptive, Value::Switch(false));
                }
                // Zero for both would mean never.
                for (wait, frames) in [("rx-usecs", "rx-frames"), ("tx-usecs", "tx-frames")] {
                    coalesce(wait, Value::Number(0));
                    coalesce(frames, Value::Number(1));
                }
            }
            Self::Throughput => {
                const WAIT: Value = Value::Number(50);
                for (adaptive, wait) in [("adaptive-rx", "rx-usecs"), ("adaptive-tx", "tx-usecs")] {
                    if offers(adaptive) {
                        coalesce(adaptive, Value::Switch(true));
                    } else {
                        coalesce(wait, WAIT);
                    }
                }
            }
        }
        settings
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|profile| profile.name() == name);
        named
            .ok_or_else(|| format!("no profile `{name}`: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::sample;

    fn values(profile: Profile, interface: &Interface) -> Vec<String> {
        let settings = profile.settings(interface);
        assert!(settings.iter().all(|setting| !setting.required));
        settings.iter().map(|setting| format!("{}={}", setting.key, setting.value)).collect()
    }

    #[test]
    fn each_profile_says_everything_about_offloads() {
        let interface = sample();
        let offloads = |profile| values(profile, &interface)[..6].join(" ");
        assert_eq!(offloads(Profile::Baseline), "rx=off tx=off sg=off tso=off gso=off gro=off");
        assert_eq!(offloads(Profile::Checksum), "rx=on tx=on sg=off tso=off gso=off gro=off");
        assert_eq!(offloads(Profile::Offload), "rx=on tx=on sg=on tso=on gso=on gro=off");
        assert_eq!(offloads(Profile::Throughput), "rx=on tx=on sg=on tso=on gso=on gro=on");
    }

    #[test]
    fn coalescing_is_named_only_where_there_is_some() {
        let mut interface = sample();
        assert_eq!(
            values(Profile::LowLatency, &interface)[8..],
            [
                "coalesce.adaptive-rx=off",
                "coalesce.rx-usecs=0",
                "coalesce.rx-frames=1",
                "coalesce.tx-usecs=0"
            ]
        );
        assert_eq!(
            values(Profile::Throughput, &interface)[8..],
            ["coalesce.adaptive-rx=on", "coalesce.tx-usecs=50"]
        );
        interface.coalescing.clear();
        assert_eq!(values(Profile::LowLatency, &interface).len(), 8);
    }

    #[test]
    fn names_lead_back() {
        for profile in Profile::ALL {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
        assert!("fast".parse::<Profile>().unwrap_err().contains("low-latency"));
    }
}

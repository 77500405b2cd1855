//! Offloads in steps, as in "Network hardware for business messaging", section 4: everything off,
//! checksums, then segmentation. Joining (GRO) came to the kernel later, in Linux 2.6.29.

use seekwire_nic::{Interface, Profile, Setting};

/// The offloads that are on. Each step also has those of the preceding steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffloadStep {
    Off,
    Checksums,
    /// TSO, GSO and scatter-gather.
    Segmentation,
    /// GRO.
    Joining,
}

impl OffloadStep {
    pub(crate) const ALL: [Self; 4] =
        [Self::Off, Self::Checksums, Self::Segmentation, Self::Joining];

    /// The name in tables and legends.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "everything off",
            Self::Checksums => "checksums",
            Self::Segmentation => "+ TSO, GSO, SG",
            Self::Joining => "+ GRO",
        }
    }

    /// The settings of an interface.
    pub(crate) fn settings(self, interface: &Interface) -> Vec<Setting> {
        let profile = match self {
            Self::Off => Profile::Baseline,
            Self::Checksums => Profile::Checksum,
            Self::Segmentation | Self::Joining => Profile::Offload,
        };
        let mut settings = profile.settings(interface);
        if self == Self::Joining {
            let mut joining: Setting = "gro=on".parse().expect("this is a setting");
            joining.required = false;
            settings.retain(|setting| setting.key != joining.key);
            settings.push(joining);
        }
        settings
    }
}

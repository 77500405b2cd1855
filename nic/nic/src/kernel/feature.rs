//! Offloads: ETHTOOL_MSG_FEATURES_GET and _SET, names by ETHTOOL_MSG_STRSET_GET.

use netlink_bindings::ethtool::{self, IterableStrset, Stringset};

use super::{COMPACT, Kernel, OMIT_REPLY, Refusal, command, set_bits};
use crate::interface::Feature;
use crate::setting::Value;

/// ETH_SS_FEATURES.
const FEATURES: u32 = 4;

impl Kernel {
    /// The kernel's names of features, by bit; holes are empty.
    pub(super) fn feature_names(&mut self) -> Result<Vec<String>, Refusal> {
        let mut request = request!(op_strset_get_do, STRSET_GET);
        // The kernel wants the header even if it is empty.
        let message = request.encode().nested_header().push_flags(0).end_nested();
        message.nested_stringsets().nested_stringset().push_id(FEATURES);
        Ok(self.ask(&request, |strings| Ok(names(&strings)))?.unwrap_or_default())
    }

    pub(super) fn features(&mut self, index: u32) -> Result<Vec<Feature>, Refusal> {
        let names = self.feature_names()?;
        let mut request = request!(op_features_get_do, FEATURES_GET);
        request.encode().nested_header().push_dev_index(index).push_flags(COMPACT);
        let features = self.ask(&request, |answer| {
            let changeable = set_bits(answer.get_hw()?.get_value()?);
            let never = set_bits(answer.get_nochange()?.get_value()?);
            let wanted = set_bits(answer.get_wanted()?.get_value()?);
            let active = set_bits(answer.get_active()?.get_value()?);
            let has = |bits: &[bool], bit: usize| bits.get(bit) == Some(&true);
            let named = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
            let features = named.map(|(bit, name)| {
                let changeable = has(&changeable, bit) && !has(&never, bit);
                Feature::new(name, has(&active, bit), has(&wanted, bit), changeable)
            });
            Ok(features.collect())
        })?;
        Ok(features.unwrap_or_default())
    }

    /// Asks for features. Success says only that it was heard: what the kernel made of it is to be
    /// read.
    pub(super) fn set_features(
        &mut self,
        index: u32,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        let mut request = request!(op_features_set_do, FEATURES_SET);
        let message = request.encode();
        let message =
            message.nested_header().push_dev_index(index).push_flags(OMIT_REPLY).end_nested();
        let mut bits = message.nested_wanted().nested_bits();
        for (name, value) in values {
            let bit = bits.nested_bit().push_name_bytes(name.as_bytes());
            bits = if value.number() == 0 { bit } else { bit.push_value(()) }.end_nested();
        }
        bits.end_nested().end_nested();
        self.order(&request)
    }
}

/// The strings of the only set in an answer, each at its index.
pub(super) fn names(answer: &IterableStrset<'_>) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(sets) = answer.get_stringsets() else { return names };
    // Not by the bindings' own iterator over `Strings`: it ends at the first attribute of another
    // kind.
    let strings = sets.get_stringset().flatten().filter_map(|attribute| match attribute {
        Ok(Stringset::Strings(strings)) => Some(strings),
        _ => None,
    });
    for string in strings.flat_map(|strings| strings.get_string()) {
        let (Ok(index), Ok(value)) = (string.get_index(), string.get_value()) else { continue };
        // Far more than there are: an index is no reason to use up memory.
        let index = (index as usize).min(1023);
        names.resize(names.len().max(index + 1), String::new());
        names[index] = value.to_string_lossy().into_owned();
    }
    names
}

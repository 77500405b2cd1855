//! Numbers and switches other than offloads: ETHTOOL_MSG_COALESCE, _RINGS, _CHANNELS and
//! _PRIVFLAGS.

use netlink_bindings::ethtool::{
    self, IterableChannels, IterableCoalesce, IterableRings, PushCoalesce, PushRings,
};
use netlink_bindings::traits::Pusher;

use super::feature::names;
use super::{COMPACT, Kernel, Refusal, command, set_bits};
use crate::interface::Parameter;
use crate::setting::Value;

/// ETH_SS_PRIV_FLAGS.
const PRIVATE_FLAGS: u32 = 2;

fn number(raw: u32) -> Value {
    Value::Number(raw)
}

fn switch(raw: u8) -> Value {
    Value::Switch(raw != 0)
}

/// A function that reads every parameter that an answer has, and one that adds a parameter to a
/// request. The names are those of ethtool(8); an attribute that the driver does not support is not
/// in the answer.
macro_rules! parameters {
    ($read:ident $answer:ident, $write:ident $request:ident;
     $($name:literal $get:ident $push:ident $value:ident $(max $maximum:ident)?, $meaning:literal;)*) => {
        fn $read(answer: &$answer<'_>) -> Vec<Parameter> {
            let mut parameters = Vec::new();
            $(if let Ok(raw) = answer.$get() {
                let maximum = None $(.or(answer.$maximum().ok()))?;
                parameters.push(Parameter { name: $name.to_owned(), value: $value(raw), maximum, meaning: $meaning });
            })*
            parameters
        }

        fn $write<P: Pusher>(request: $request<P>, name: &str, value: Value) -> Result<$request<P>, Refusal> {
            match name {
                $($name => match value.number().try_into() {
                    Ok(raw) => Ok(request.$push(raw)),
                    Err(_) => Err(unfit(format!("{value} is out of range for {name}"))),
                },)*
                _ => Err(unfit(format!("there is no parameter {name}"))),
            }
        }
    };
}

fn unfit(reason: String) -> Refusal {
    Refusal { errno: None, reason }
}

parameters! {
    read_coalescing IterableCoalesce, write_coalescing PushCoalesce;
    "adaptive-rx" get_use_adaptive_rx push_use_adaptive_rx switch,
        "the driver adapts the delay to the load: good for latency and for CPU time, best for neither";
    "adaptive-tx" get_use_adaptive_tx push_use_adaptive_tx switch, "the same for what was sent";
    "rx-usecs" get_rx_usecs push_rx_usecs number,
        "microseconds that a received packet may wait for others: adds to the latency, saves CPU";
    "rx-frames" get_rx_max_frames push_rx_max_frames number, "received packets that end the waiting";
    "rx-usecs-irq" get_rx_usecs_irq push_rx_usecs_irq number, "the same wait while an interrupt is served";
    "rx-frames-irq" get_rx_max_frames_irq push_rx_max_frames_irq number, "packets that end it then";
    "tx-usecs" get_tx_usecs push_tx_usecs number,
        "microseconds until the CPU hears that a packet has left: later means fewer interrupts";
    "tx-frames" get_tx_max_frames push_tx_max_frames number, "sent packets that end that waiting";
    "tx-usecs-irq" get_tx_usecs_irq push_tx_usecs_irq number, "the same wait while an interrupt is served";
    "tx-frames-irq" get_tx_max_frames_irq push_tx_max_frames_irq number, "packets that end it then";
    "stats-block-usecs" get_stats_block_usecs push_stats_block_usecs number,
        "microseconds between updates of the counters: no effect on messages";
    "pkt-rate-low" get_pkt_rate_low push_pkt_rate_low number, "packets per second below which the low values count";
    "rx-usecs-low" get_rx_usecs_low push_rx_usecs_low number, "rx-usecs at a low rate";
    "rx-frames-low" get_rx_max_frames_low push_rx_max_frames_low number, "rx-frames at a low rate";
    "tx-usecs-low" get_tx_usecs_low push_tx_usecs_low number, "tx-usecs at a low rate";
    "tx-frames-low" get_tx_max_frames_low push_tx_max_frames_low number, "tx-frames at a low rate";
    "pkt-rate-high" get_pkt_rate_high push_pkt_rate_high number,
        "packets per second above which the high values count";
    "rx-usecs-high" get_rx_usecs_high push_rx_usecs_high number, "rx-usecs at a high rate";
    "rx-frames-high" get_rx_max_frames_high push_rx_max_frames_high number, "rx-frames at a high rate";
    "tx-usecs-high" get_tx_usecs_high push_tx_usecs_high number, "tx-usecs at a high rate";
    "tx-frames-high" get_tx_max_frames_high push_tx_max_frames_high number, "tx-frames at a high rate";
    "sample-interval" get_rate_sample_interval push_rate_sample_interval number,
        "seconds over which the rate is measured";
    "cqe-mode-rx" get_use_cqe_mode_rx push_use_cqe_mode_rx switch, "the wait begins anew with each packet";
    "cqe-mode-tx" get_use_cqe_mode_tx push_use_cqe_mode_tx switch, "the same for what was sent";
    "tx-aggr-max-bytes" get_tx_aggr_max_bytes push_tx_aggr_max_bytes number,
        "bytes that are gathered before they are sent in one block";
    "tx-aggr-max-frames" get_tx_aggr_max_frames push_tx_aggr_max_frames number, "packets that are gathered";
    "tx-aggr-time-usecs" get_tx_aggr_time_usecs push_tx_aggr_time_usecs number,
        "microseconds that a packet may wait to be sent in a block";
}

parameters! {
    read_rings IterableRings, write_rings PushRings;
    "rx" get_rx push_rx number max get_rx_max,
        "packets that can arrive before the CPU comes: short rings lose bursts, long ones let latency grow";
    "rx-mini" get_rx_mini push_rx_mini number max get_rx_mini_max, "the same for small packets";
    "rx-jumbo" get_rx_jumbo push_rx_jumbo number max get_rx_jumbo_max, "the same for jumbo frames";
    "tx" get_tx push_tx number max get_tx_max,
        "packets that can wait to be sent: what waits there is late, and cannot be overtaken";
    "rx-buf-len" get_rx_buf_len push_rx_buf_len number, "bytes of each buffer for receiving";
    "cqe-size" get_cqe_size push_cqe_size number, "bytes of each completion entry";
    "tx-push" get_tx_push push_tx_push switch, "descriptors are written straight to the interface: less latency";
    "rx-push" get_rx_push push_rx_push switch, "the same for receiving";
    "tx-push-buf-len" get_tx_push_buf_len push_tx_push_buf_len number max get_tx_push_buf_len_max,
        "bytes of a packet that are written straight to the interface";
    "hds-thresh" get_hds_thresh push_hds_thresh number max get_hds_thresh_max,
        "packets larger than this have headers and payload apart";
}

fn read_channels(answer: &IterableChannels<'_>) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    let mut add = |name: &str, count, maximum, meaning| {
        if let Ok(count) = count {
            parameters.push(Parameter {
                name: name.to_owned(),
                value: number(count),
                maximum,
                meaning,
            });
        }
    };
    let meaning = "interrupts that each serve a queue in both directions: up to one for each CPU";
    add("combined", answer.get_combined_count(), answer.get_combined_max().ok(), meaning);
    add("rx", answer.get_rx_count(), answer.get_rx_max().ok(), "interrupts for receiving only");
    add("tx", answer.get_tx_count(), answer.get_tx_max().ok(), "interrupts for sending only");
    add(
        "other",
        answer.get_other_count(),
        answer.get_other_max().ok(),
        "interrupts for events of the link",
    );
    parameters
}

impl Kernel {
    pub(super) fn coalescing(&mut self, index: u32) -> Result<Option<Vec<Parameter>>, Refusal> {
        let mut request = request!(op_coalesce_get_do, COALESCE_GET);
        request.encode().nested_header().push_dev_index(index);
        self.ask(&request, |answer| Ok(read_coalescing(&answer)))
    }

    pub(super) fn rings(&mut self, index: u32) -> Result<Option<Vec<Parameter>>, Refusal> {
        let mut request = request!(op_rings_get_do, RINGS_GET);
        request.encode().nested_header().push_dev_index(index);
        self.ask(&request, |answer| Ok(read_rings(&answer)))
    }

    pub(super) fn channels(&mut self, index: u32) -> Result<Option<Vec<Parameter>>, Refusal> {
        let mut request = request!(op_channels_get_do, CHANNELS_GET);
        request.encode().nested_header().push_dev_index(index);
        self.ask(&request, |answer| Ok(read_channels(&answer)))
    }

    pub(super) fn private_flags(&mut self, index: u32) -> Result<Option<Vec<Parameter>>, Refusal> {
        let mut request = request!(op_privflags_get_do, PRIVFLAGS_GET);
        request.encode().nested_header().push_dev_index(index).push_flags(COMPACT);
        let Some(bits) =
            self.ask(&request, |answer| Ok(set_bits(answer.get_flags()?.get_value()?)))?
        else {
            return Ok(None);
        };
        let mut request = request!(op_strset_get_do, STRSET_GET);
        let message = request.encode().nested_header().push_dev_index(index).end_nested();
        message.nested_stringsets().nested_stringset().push_id(PRIVATE_FLAGS);
        let names = self.ask(&request, |answer| Ok(names(&answer)))?.unwrap_or_default();
        let flag = |(name, on): (String, bool)| Parameter {
            name,
            value: Value::Switch(on),
            maximum: None,
            meaning: "the driver's own: see its documentation",
        };
        let named = names.into_iter().zip(bits).filter(|(name, _)| !name.is_empty());
        Ok(Some(named.map(flag).collect()))
    }

    pub(super) fn set_coalescing(
        &mut self,
        index: u32,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        let mut request = request!(op_coalesce_set_do, COALESCE_SET);
        let mut message = request.encode().nested_header().push_dev_index(index).end_nested();
        for (name, value) in values {
            message = write_coalescing(message, name, *value)?;
        }
        drop(message);
        self.order(&request)
    }

    pub(super) fn set_rings(
        &mut self,
        index: u32,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        let mut request = request!(op_rings_set_do, RINGS_SET);
        let mut message = request.encode().nested_header().push_dev_index(index).end_nested();
        for (name, value) in values {
            message = write_rings(message, name, *value)?;
        }
        drop(message);
        self.order(&request)
    }

    pub(super) fn set_private_flags(
        &mut self,
        index: u32,
        values: &[(&str, Value)],
    ) -> Result<(), Refusal> {
        let mut request = request!(op_privflags_set_do, PRIVFLAGS_SET);
        let message = request.encode().nested_header().push_dev_index(index).end_nested();
        let mut bits = message.nested_flags().nested_bits();
        for (name, value) in values {
            let bit = bits.nested_bit().push_name_bytes(name.as_bytes());
            bits = if value.number() == 0 { bit } else { bit.push_value(()) }.end_nested();
        }
        bits.end_nested().end_nested();
        self.order(&request)
    }
}

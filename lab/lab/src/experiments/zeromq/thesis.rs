//! Measurements from "Network hardware for business messaging", sections 4.1 and 4.2, made with
//! libzmq's perf tools between two hosts and 1 Gb/s Ethernet between them: a dual-core Athlon 64 X2
//! 3800+ and a Pentium 4, Linux 2.6.26.
//!
//! Headings say MB/s where Mb/s is meant, as the rates of messages beside them show. For messages
//! of 128 B with everything off, the throughput and the rate contradict each other; both are as
//! printed.

use crate::experiments::by_size::{Column, SIZES};

/// With everything off, and with checksums, TSO and scatter-gather.
pub(super) type Columns = [Column; 2];

const fn columns([off, offloads]: [[f64; SIZES.len()]; 2]) -> Columns {
    [Column::new("everything off", off), Column::new("+ TSO, SG", offloads)]
}

/// With everything off, one cell contradicts that of the other table.
const fn doubted(mut columns: Columns) -> Columns {
    columns[0].doubt = Some((DOUBTED, WHY));
    columns
}

/// Index of the row whose cells contradict each other.
const DOUBTED: usize = 7;

const WHY: &str = "As printed, but the throughput and the rate of these messages contradict each other: 409,307 of \
                   128 B are 419 Mb/s, not 393.";

/// One-way latency in µs, by local_lat and remote_lat: table 4.1.2, graph 4.1.2.
pub(super) const LATENCY: Columns = columns([
    [
        60.32, 62.22, 59.32, 64.78, 60.29, 60.28, 65.36, 65.09, 70.45, 73.35, 76.15, 95.15, 123.95,
        185.55, 300.23, 537.11, 1012.7,
    ],
    [
        61.26, 60.88, 63.19, 63.66, 61.43, 61.19, 64.77, 68.84, 68.48, 73.36, 75.24, 94.73, 119.18,
        170.51, 247.81, 399.34, 715.33,
    ],
]);

/// Throughput in MB/s: see [`MEGABITS`].
pub(super) const THROUGHPUT: Columns = {
    let mut columns = MEGABITS;
    let mut index = 0;
    while index < 2 * SIZES.len() {
        columns[index / SIZES.len()].values[index % SIZES.len()] /= 8.0;
        index += 1;
    }
    columns
};

/// Throughput in Mb/s, by local_thr and remote_thr: tables 4.2.7 and 4.2.8, graph 4.2.4.
const MEGABITS: Columns = doubted(columns([
    [
        20.33, 41.33, 75.33, 149.66, 218.33, 246.0, 324.0, 393.0, 448.33, 497.33, 511.66, 517.33,
        528.0, 514.0, 522.33, 588.66, 549.66,
    ],
    [
        24.33, 33.0, 66.66, 132.0, 290.0, 283.33, 485.66, 590.33, 612.66, 652.33, 674.0, 698.66,
        706.33, 710.66, 734.33, 750.0, 763.0,
    ],
]));

/// Messages per second: the same tables.
pub(super) const RATE: Columns = doubted(columns([
    [
        2_606_934.0,
        2_614_850.0,
        2_374_849.66,
        2_341_569.67,
        1_707_506.33,
        963_705.33,
        634_318.0,
        409_307.0,
        219_136.33,
        121_506.33,
        62_526.66,
        31_605.33,
        16_128.0,
        7_846.0,
        3_990.33,
        2_247.66,
        1_049.0,
    ],
    [
        3_098_845.0,
        2_082_542.0,
        2_091_455.66,
        2_068_998.33,
        2_267_505.66,
        1_108_615.33,
        949_367.66,
        577_023.0,
        299_433.66,
        159_329.0,
        82_327.0,
        42_666.33,
        21_569.0,
        10_850.33,
        5_605.66,
        2_862.33,
        1_457.0,
    ],
]));

/// CPU load of the receiving host in %, 100 % for each processor: the same tables.
pub(super) const CPU: Columns = columns([
    [
        84.9, 80.46, 79.5, 77.98, 85.54, 83.47, 97.47, 94.06, 94.88, 104.8, 104.12, 108.48, 97.96,
        79.02, 70.64, 101.93, 97.48,
    ],
    [
        53.94, 72.69, 108.67, 73.02, 82.18, 99.49, 120.6, 123.54, 114.82, 109.89, 109.08, 108.6,
        112.48, 114.4, 106.89, 104.5, 102.7,
    ],
]);

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables have two columns for the same quantity, which verify the transcription.
    #[test]
    fn throughput_is_rate_times_size() {
        for (throughput, rate) in MEGABITS.into_iter().zip(RATE) {
            let doubt = throughput.doubt.map(|(power, _)| power);
            assert_eq!(doubt, rate.doubt.map(|(power, _)| power));
            for (power, (throughput, rate)) in
                throughput.values.into_iter().zip(rate.values).enumerate()
            {
                let doubted = doubt == Some(power);
                let bits = rate * f64::from(8u32 << power) / 1e6;
                // The tool prints whole megabits, so small ones are coarse.
                assert_eq!(
                    (bits - throughput).abs() < 1.0,
                    !doubted,
                    "{power}: {throughput} Mb/s, {rate}/s"
                );
            }
        }
    }

    #[test]
    fn megabytes_are_eight_megabits() {
        assert_eq!(THROUGHPUT.map(|column| column.values[16]), [549.66 / 8.0, 763.0 / 8.0]);
    }
}

//! Measurements from "Network hardware for business messaging", sections 4.1 and 4.2, made with
//! netperf between two hosts and 1 Gb/s Ethernet between them, Linux 2.6.26.
//!
//! All cells of these tables are legible in the scan. Headings say MB/s where Mb/s is meant: no
//! more than 949 of them go through 1 Gb/s. The steps have different names in different places;
//! here they are those of [`Step`](crate::network::step::Step), of which the thesis has the first
//! three.

use crate::experiments::by_size::SIZES;

/// A value for each of [`SIZES`].
pub(super) type Column = [f64; SIZES.len()];

/// A measurement: its columns in the order of the steps, everything off, checksums, segmentation.
pub(super) type Columns = [Column; 3];

/// One-way latency in µs: table 4.1.1, graph 4.1.1. Dual-core Athlon 64 X2 3800+ and Pentium 4.
pub(super) const LATENCY: Columns = [
    [
        29.96, 30.4, 30.21, 30.13, 30.39, 30.63, 32.26, 32.85, 34.93, 38.28, 46.89, 67.15, 88.0,
        142.97, 246.49, 442.11, 859.55,
    ],
    [
        29.97, 29.98, 30.08, 30.11, 30.2, 30.48, 32.06, 32.72, 34.7, 37.93, 46.16, 66.88, 86.77,
        141.28, 237.62, 429.9, 840.65,
    ],
    [
        32.21, 32.21, 32.18, 32.19, 32.39, 32.73, 33.28, 33.84, 36.03, 39.67, 48.53, 69.79, 88.79,
        143.1, 226.0, 385.59, 727.87,
    ],
];

/// Throughput in Mb/s between hosts with two quad-core Xeon and Opteron: tables 4.2.1 to 4.2.3,
/// graph 4.2.1.
pub(super) const FAST_THROUGHPUT: Columns = [
    [
        28.42, 54.52, 109.88, 222.49, 391.5, 674.62, 942.2, 949.21, 949.21, 949.21, 949.21, 949.21,
        949.21, 949.21, 949.21, 949.21, 949.21,
    ],
    [
        29.25, 58.14, 95.97, 188.15, 360.35, 640.75, 949.18, 949.21, 949.21, 949.21, 949.21,
        949.21, 949.21, 949.21, 949.21, 949.21, 949.21,
    ],
    [
        27.34, 54.98, 90.36, 214.14, 386.81, 665.38, 949.19, 949.21, 949.21, 949.21, 949.21,
        949.21, 949.21, 949.21, 949.21, 949.21, 949.21,
    ],
];

/// CPU load there in %: tables 4.2.1 to 4.2.3, graph 4.2.2.
pub(super) const FAST_CPU: Columns = [
    [
        124.56, 117.76, 122.56, 138.4, 126.48, 123.36, 94.4, 51.52, 37.04, 34.64, 29.04, 33.68,
        26.56, 34.16, 13.52, 20.64, 23.6,
    ],
    [
        116.24, 110.08, 108.4, 134.0, 124.48, 127.76, 76.56, 71.52, 44.72, 14.64, 30.08, 20.88,
        23.2, 23.28, 32.32, 13.04, 21.44,
    ],
    [
        115.2, 107.84, 119.28, 116.48, 120.56, 114.96, 93.76, 31.68, 28.08, 19.36, 10.88, 11.44,
        11.04, 15.68, 16.56, 13.84, 11.44,
    ],
];

/// Throughput in Mb/s between the hosts of the latency: tables 4.2.4 to 4.2.6, graph 4.2.3.
pub(super) const WEAK_THROUGHPUT: Columns = [
    [
        9.2, 19.67, 37.07, 74.78, 149.9, 236.2, 322.52, 381.32, 435.7, 478.07, 506.46, 536.83,
        553.07, 587.43, 586.72, 581.63, 566.82,
    ],
    [
        10.65, 20.35, 37.34, 77.43, 152.69, 227.16, 289.92, 378.46, 441.63, 476.06, 498.41, 542.86,
        553.09, 587.3, 575.41, 570.02, 556.88,
    ],
    [
        7.02, 13.67, 31.25, 54.85, 118.43, 214.4, 265.96, 356.54, 425.49, 479.75, 496.21, 606.33,
        938.94, 938.95, 938.95, 938.95, 938.95,
    ],
];

/// Capacity of their link.
pub(super) const FULL_LINK: f64 = 938.95;

/// CPU load there in % of the available time: tables 4.2.4 to 4.2.6, graph 4.2.3.
pub(super) const WEAK_CPU: Columns = [
    [
        99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9,
        99.9, 99.9,
    ],
    [
        100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0,
        100.0, 100.0, 100.0, 100.0,
    ],
    [
        99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 99.9, 82.3, 59.04, 39.06,
        36.78, 37.74,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_columns_are_where_they_belong() {
        let last = SIZES.len() - 1;
        assert_eq!((LATENCY[0][last], LATENCY[2][last]), (859.55, 727.87));
        assert_eq!((WEAK_THROUGHPUT[0][last], WEAK_THROUGHPUT[2][last]), (566.82, 938.95));
        assert_eq!((WEAK_CPU[0][last], WEAK_CPU[2][last]), (99.9, 37.74));
        assert!(FAST_THROUGHPUT.iter().all(|column| column[last] == 949.21));
    }
}

//! The tables of annex K of ITU-T T.81.

use super::bits::{Code, Codes};

/// The position in a block, row by row, of each coefficient in coding order.
pub(super) const ZIGZAG: [u8; 64] = zigzag();

const fn zigzag() -> [u8; 64] {
    let mut order = [0; 64];
    let (mut at, mut diagonal) = (0, 0);
    while diagonal < 15 {
        let mut step = 0;
        while step <= diagonal {
            // Odd diagonals go down, even ones up.
            let row = if diagonal % 2 == 1 { step } else { diagonal - step };
            let column = diagonal - row;
            if row < 8 && column < 8 {
                order[at] = row * 8 + column;
                at += 1;
            }
            step += 1;
        }
        diagonal += 1;
    }
    order
}

/// Tables K.1 and K.2, for a quality of 50.
const QUANTISATION: [[u8; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, //
        12, 12, 14, 19, 26, 58, 60, 55, //
        14, 13, 16, 24, 40, 57, 69, 56, //
        14, 17, 22, 29, 51, 87, 80, 62, //
        18, 22, 37, 56, 68, 109, 103, 77, //
        24, 35, 55, 64, 81, 104, 113, 92, //
        49, 64, 78, 87, 103, 121, 120, 101, //
        72, 92, 95, 98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, //
        18, 21, 26, 66, 99, 99, 99, 99, //
        24, 26, 56, 99, 99, 99, 99, 99, //
        47, 66, 99, 99, 99, 99, 99, 99, //
        99, 99, 99, 99, 99, 99, 99, 99, //
        99, 99, 99, 99, 99, 99, 99, 99, //
        99, 99, 99, 99, 99, 99, 99, 99, //
        99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// The divisors of coefficients, row by row, scaled by the quality from 1 to 100 as in other
/// encoders.
pub(super) fn quantisation(quality: u8, is_colour: bool) -> [u8; 64] {
    let quality = u32::from(quality);
    let percent = if quality < 50 { 5000 / quality } else { 200 - 2 * quality };
    QUANTISATION[usize::from(is_colour)]
        .map(|step| ((u32::from(step) * percent + 50) / 100).clamp(1, 255) as u8)
}

/// The number of code words of each length, and the symbols they encode.
pub(super) type CodeList = ([u8; 16], Vec<u8>);

/// Tables K.3 to K.6: for luminance and colours, each for the first coefficient and for the others.
pub(super) fn code_lists() -> [[CodeList; 2]; 2] {
    let dc = |lengths| (lengths, (0..12).collect());
    let luminance = [
        0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61,
        0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52,
        0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82,
    ];
    let colours = [
        0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61,
        0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33,
        0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1,
    ];
    [
        [
            dc([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]),
            ([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125], with_rest(&luminance)),
        ],
        [
            dc([0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]),
            ([0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119], with_rest(&colours)),
        ],
    ]
}

/// The longest code words encode the rare symbols, in order: a number of zeros and the number of
/// bits of the next coefficient, 1 to 10.
fn with_rest(frequent: &[u8]) -> Vec<u8> {
    let all = (0..16_u8).flat_map(|zeros| (1..=10).map(move |size| zeros << 4 | size));
    let rest = all.filter(|value| !frequent.contains(value));
    frequent.iter().copied().chain(rest).collect()
}

/// The code words for luminance and colours (annex C).
pub(super) fn codes() -> [Codes; 2] {
    code_lists().map(|[dc, ac]| Codes { dc: words(&dc), ac: words(&ac) })
}

fn words((lengths, values): &CodeList) -> [Code; 256] {
    let mut words = [Code::default(); 256];
    let mut values = values.iter();
    let mut word = 0;
    for (length, count) in (1..).zip(lengths) {
        for value in values.by_ref().take(usize::from(*count)) {
            words[usize::from(*value)] = Code { word, length };
            word += 1;
        }
        word <<= 1;
    }
    words
}

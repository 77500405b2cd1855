//! A secret that only the processes of a job know.

use std::fmt;
use std::hint::black_box;

use crate::error::Error;

/// 32 random bytes, with which the processes of a job prove that they belong to it. `Debug` does
/// not show them, and comparison takes constant time.
///
/// A secret is as safe as the channel that publishes it. Hydra and Slurm send it between hosts in
/// clear text. A rendezvous keeps it in a file that only this user can read.
#[derive(Clone)]
pub struct Secret([u8; Secret::BYTES]);

impl Secret {
    /// The number of bytes.
    pub const BYTES: usize = 32;

    /// A new secret, from the kernel's random numbers (getrandom(2)).
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn random() -> Result<Self, Error> {
        let mut bytes = [0; Self::BYTES];
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(
                &mut bytes[filled..],
                rustix::rand::GetRandomFlags::empty(),
            ) {
                Ok(more) => filled += more,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::system("get random numbers")(errno)),
            }
        }
        Ok(Self(bytes))
    }

    /// 64 hexadecimal digits, for [`crate::Job::publish`].
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses these digits; `None` if the text is anything else.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::BYTES {
            return None;
        }
        let mut bytes = [0; Self::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(Self(bytes))
    }

    /// The bytes, for a function that computes with them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        // Hidden from the compiler, which could otherwise stop at the first difference.
        pairs.fold(0, |different, (ours, theirs)| black_box(different | (ours ^ theirs))) == 0
    }
}

impl Eq for Secret {}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_its_text_and_no_other_text_makes_one() {
        let secret = Secret::random().unwrap();
        let text = secret.to_hex();
        assert_eq!(Secret::from_hex(&text), Some(secret.clone()));
        assert_ne!(Secret::random().unwrap(), secret);
        for other in ["", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "g")] {
            assert_eq!(Secret::from_hex(other), None, "{other}");
        }
        assert_eq!(Secret::from_hex(&"\u{e4}".repeat(32)), None, "64 bytes that are no digits");
    }

    #[test]
    fn one_bit_makes_a_difference_and_nothing_is_shown() {
        let secret = Secret::random().unwrap();
        for index in [0, Secret::BYTES - 1] {
            let mut other = secret.clone();
            other.0[index] ^= 0x80;
            assert_ne!(other, secret);
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}

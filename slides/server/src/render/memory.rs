//! Memory for images in progress. A request waits until there is enough for its image. Whatever
//! works on the image holds its share, so that it is released when it is no longer used, not when
//! nobody waits any more.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::failure::{Failure, Result};
use crate::render::colour::ColourMode;
use crate::web_limits::{Host, Shares};

/// Bytes per permit.
const GRAIN: u64 = 64 << 10;

/// A share of the memory or of another limited resource, until it is no longer used.
pub(crate) type MemoryPermit = Arc<dyn Send + Sync>;

/// The memory for all images.
pub(crate) struct Memory {
    free: Arc<Semaphore>,
    most: u64,
    shares: Shares,
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Self {
        let most = grains(bytes);
        let shares = Shares::of(most as usize);
        Self { free: Arc::new(Semaphore::new(most as usize)), most, shares }
    }

    /// Waits for so many bytes, for an image of a slide on that web server.
    pub(crate) async fn take(&self, host: Option<&Host>, bytes: u64) -> Result<MemoryPermit> {
        let grains = grains(bytes);
        let (most, of) = match host {
            None => (self.most, ""),
            Some(_) => (self.shares.most() as u64, " of slides on web servers"),
        };
        if grains > most {
            return Err(Failure::not_implemented(format!(
                "the image would take {} MiB of the {} MiB for images{of}",
                bytes >> 20,
                most * GRAIN / (1 << 20)
            )));
        }
        let share = self.shares.take(host, grains as usize).await?;
        let part = Arc::clone(&self.free).acquire_many_owned(grains as u32).await;
        let part = part.map_err(|_| Failure::unavailable("the server is shutting down"))?;
        Ok(Arc::new((part, share)))
    }
}

fn grains(bytes: u64) -> u64 {
    bytes.div_ceil(GRAIN)
}

/// Bytes for so many pixels of a region, and for the image scaled from it.
pub(crate) fn pixels(read: u64, made: u64) -> u64 {
    // One copy of the pixels read, in the block of the job. Three of the result: scaled (or
    // copied), converted or turned, and encoded. Few images are larger than their pixels.
    made.saturating_mul(3).saturating_add(read).saturating_mul(3)
}

/// Bytes for a colour profile: it follows the pixels, stays with the tables made from it or is
/// passed to an encoder, and is in the image if embedded.
pub(crate) fn profile(icc: Option<&[u8]>, colours: ColourMode) -> u64 {
    let times = if colours == ColourMode::Embedded { 3 } else { 2 };
    icc.map_or(0, |icc| icc.len() as u64 * times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_is_free_when_nobody_has_it() {
        let memory = Memory::new(1 << 20);
        let part = memory.take(None, 1 << 20).await.unwrap();
        let other = Arc::clone(&part);
        drop(part);
        assert_eq!(memory.free.available_permits(), 0);
        drop(other);
        assert_eq!(memory.free.available_permits(), 16);
        for bytes in [(1 << 20) + 1, u64::MAX] {
            let failure = memory.take(None, bytes).await.err().unwrap();
            assert_eq!(failure.status.as_u16(), 501);
        }
        // Images from a slow web server leave memory for others.
        let host = Host::from("slow");
        let large = memory.take(Some(&host), 3 << 18).await.unwrap();
        assert!(memory.take(None, 1 << 18).await.is_ok());
        drop(large);
        let failure = memory.take(Some(&host), (3 << 18) + 1).await.err().unwrap();
        assert!(failure.what.contains("on web servers"), "{failure}");
    }

    #[test]
    fn profiles_are_paid_for() {
        let icc = vec![0; 1 << 20];
        assert_eq!(profile(Some(&icc), ColourMode::Srgb), 2 << 20);
        assert_eq!(profile(Some(&icc), ColourMode::Embedded), 3 << 20);
        assert_eq!(profile(None, ColourMode::Raw), 0);
        assert_eq!((pixels(1 << 20, 0), pixels(u64::MAX, 1)), (3 << 20, u64::MAX));
    }
}

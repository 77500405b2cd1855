//! The pixels of a region. Its tiles are collected first, because pasting takes too long for the
//! threads that serve requests.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use seekwire_slides_image::Rendering;

use crate::failure::{Failure, Result};
use crate::render::memory::MemoryPermit;
use crate::render::pipeline::TOGETHER;
use crate::render::plan::Plan;
use crate::render::tiles::{TileCache, TileKey};
use crate::render::work::TilePixels;
use crate::slide_cache::Open;

/// Maximum bytes of tiles that are not pasted yet; a single tile may be larger.
const COLLECTED: usize = 8 << 20;

/// A region in progress.
pub(crate) struct Region {
    plan: Plan,
    /// Bytes that will follow the pixels.
    more: usize,
    /// Empty before tiles are pasted.
    pixels: Vec<u8>,
    collected: Vec<((u32, u32), TilePixels)>,
    bytes: usize,
}

impl Region {
    /// Leaves room for `more` bytes after the pixels.
    pub(crate) fn new(plan: Plan, more: usize) -> Self {
        Self { plan, more, pixels: Vec::new(), collected: Vec::new(), bytes: 0 }
    }

    /// Bytes of the tiles of a plan that are collected at a time.
    pub(crate) fn collects(plan: &Plan, tiles: usize) -> u64 {
        (plan.tile_bytes().saturating_mul(tiles as u64)).min(COLLECTED as u64)
    }

    /// Adds the tile at a position. Returns true if the collected tiles should be pasted now.
    pub(crate) fn add(&mut self, position: (u32, u32), tile: TilePixels) -> bool {
        self.bytes += tile.bytes.len();
        self.collected.push((position, tile));
        self.bytes >= COLLECTED
    }

    /// Pastes the collected tiles.
    pub(crate) fn paste(&mut self) {
        if self.pixels.is_empty() {
            self.pixels = self.plan.white(self.more);
        }
        for (position, tile) in self.collected.drain(..) {
            self.plan.paste(&mut self.pixels, position, &tile);
        }
        self.bytes = 0;
    }

    /// The pixels with all tiles.
    pub(crate) fn into_pixels(mut self) -> Vec<u8> {
        self.paste();
        self.pixels
    }

    /// Adds all tiles. Its share of the memory is kept while it is in use.
    pub(crate) async fn with_tiles(
        mut self,
        tiles: &Arc<TileCache>,
        open: &Arc<Open>,
        rendering: Option<&Arc<Rendering>>,
        is_complete: bool,
        memory: &MemoryPermit,
    ) -> Result<Region> {
        let (level, halvings) = (self.plan.level, self.plan.halvings);
        let host = open.host.as_ref();
        let positions: Vec<_> = self.plan.tiles().collect();
        let mut window = tiles.farm().window();
        let mut part = positions.len().max(1);
        let has_guarantee = tiles.farm().has_guarantee();
        if has_guarantee {
            // An update begins once the last of its tiles has been read, so all are read at once.
            window *= TOGETHER;
            part = window.min(tiles.updated(host));
        }
        for positions in positions.chunks(part) {
            let room = match has_guarantee {
                true => Some(tiles.room(host, is_complete, positions.len()).await?),
                false => None,
            };
            let update = tiles.farm().update(is_complete, room);
            let fetch = |position: &(u32, u32)| {
                let (tiles, open) = (Arc::clone(tiles), Arc::clone(open));
                let (position, update) = (*position, update.clone());
                let (column, row) = position;
                let (opening, rendering) = (open.number, rendering.cloned());
                let key = TileKey { opening, level, halvings, rendering, column, row };
                async move { (position, tiles.get(&open, key, update).await) }
            };
            let fetches: Vec<_> = positions.iter().map(fetch).collect();
            drop(update);
            let fetched = stream::iter(fetches).buffer_unordered(window);
            let mut fetched = std::pin::pin!(fetched);
            while let Some((position, tile)) = fetched.next().await {
                if self.add(position, tile?) {
                    let held = Arc::clone(memory);
                    let paste = move || {
                        self.paste();
                        (self, held)
                    };
                    let pasted = tokio::task::spawn_blocking(paste).await;
                    (self, _) = pasted.map_err(|_| Failure::internal("pasting panicked"))?;
                }
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::plan::BaseRegion;
    use seekwire_slides_image::Level;

    #[test]
    fn it_is_the_same_however_often_tiles_are_pasted() {
        let level = Level {
            width: 2048,
            height: 3072,
            tile_width: 1024,
            tile_height: 1024,
            downsample: 1.0,
        };
        let part = BaseRegion { x: 500, y: 20, width: 1500, height: 2900 };
        let plan = Plan::new(&[level], part, part.width, part.height).unwrap();
        let positions: Vec<_> = plan.tiles().collect();
        assert_eq!(positions.len(), 6);
        assert_eq!(Region::collects(&plan, 6), COLLECTED as u64);
        assert_eq!(Region::collects(&plan, 1), 1024 * 1024 * 3);
        let tile = |(column, row): (u32, u32)| {
            let of = (column * 7 + row + 1) as u8;
            TilePixels { width: 1024, height: 1024, bytes: vec![of; 1024 * 1024 * 3].into() }
        };
        let mut expected = plan.white(0);
        let mut region = Region::new(plan.clone(), 9);
        let mut pasted = 0;
        for position in positions {
            plan.paste(&mut expected, position, &tile(position));
            if region.add(position, tile(position)) {
                region.paste();
                pasted += 1;
            }
        }
        let pixels = region.into_pixels();
        assert!(pixels == expected);
        assert_eq!(pasted, 2);
        assert!(pixels.capacity() >= pixels.len() + 9);
        // Without tiles, it is white.
        let white = Region::new(plan.clone(), 0).into_pixels();
        assert!(white == plan.white(0));
    }
}

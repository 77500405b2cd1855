//! Decoded stored tiles: each is decoded once for all requests, and cached within a bound.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use seekwire_slides_image::{Level, Rendering, Tile};
use tokio::sync::Semaphore;

use crate::byte_lru::Bounded;
use crate::counters::Counters;
use crate::failure::{Failure, Result};
use crate::render::farm::{Farm, Update};
use crate::render::memory::MemoryPermit;
use crate::render::picture::cost;
use crate::render::work::TilePixels;
use crate::single_flight::{Flight, Flights, Joined};
use crate::slide_cache::Open;
use crate::web_limits::{Host, Shares, Web};
use crate::workers::protocol::Task;

/// Maximum tiles being read or waiting to be decoded. As many threads read.
const READ: usize = 64;
/// With a guarantee, the maximum tiles of unfinished updates, for partial and for complete ones
/// each.
pub(crate) const UPDATED: usize = 256;

/// A tile of one opening of a slide.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TileKey {
    /// The number of the open slide.
    pub(crate) opening: u64,
    pub(crate) level: usize,
    /// How often its sides are halved.
    pub(crate) halvings: u32,
    /// `None` for its own colours, in the default plane.
    pub(crate) rendering: Option<Arc<Rendering>>,
    pub(crate) column: u32,
    pub(crate) row: u32,
}

type Decoded = Result<TilePixels>;

/// Decodes tiles.
pub(crate) struct TileCache {
    farm: Arc<Farm>,
    kept: Bounded<TileKey, TilePixels>,
    flights: Arc<Flights<TileKey, Decoded>>,
    /// The tiles being decoded. Decoding one of them again, or a cached one, is counted: this does
    /// not rely on the guarantees of flights.
    decoding: Mutex<HashSet<TileKey>>,
    reading: Arc<Semaphore>,
    /// Partial updates, and complete ones, for which no partial one waits.
    updates: [(Arc<Semaphore>, Shares); 2],
    web: Arc<Web>,
    counters: Arc<Counters>,
}

impl TileCache {
    /// Caches at most `memory` bytes of pixels.
    pub(crate) fn new(farm: Farm, memory: usize, web: Arc<Web>, counters: Arc<Counters>) -> Self {
        Self {
            farm: Arc::new(farm),
            kept: Bounded::new(memory),
            flights: Arc::new(Flights::new()),
            decoding: Mutex::default(),
            reading: Arc::new(Semaphore::new(READ)),
            updates: [UPDATED; 2].map(|most| (Arc::new(Semaphore::new(most)), Shares::of(most))),
            web,
            counters,
        }
    }

    pub(crate) fn farm(&self) -> &Arc<Farm> {
        &self.farm
    }

    /// Bytes of cached pixels, and the limit.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        self.kept.bytes()
    }

    /// Maximum tiles of one update of a slide that are read together.
    pub(crate) fn updated(&self, host: Option<&Host>) -> usize {
        host.map_or(UPDATED, |_| self.updates[0].1.each())
    }

    /// Waits until so many tiles of an update, at most [`updated`](Self::updated), can be read.
    pub(crate) async fn room(
        &self,
        host: Option<&Host>,
        is_complete: bool,
        tiles: usize,
    ) -> Result<MemoryPermit> {
        let tiles = tiles.min(self.updated(host));
        let (room, shares) = &self.updates[usize::from(is_complete)];
        let share = shares.take(host, tiles).await?;
        let permits = Arc::clone(room).acquire_many_owned(tiles as u32).await;
        let permits = permits.map_err(|_| Failure::unavailable("the server is shutting down"))?;
        Ok(Arc::new((permits, share)))
    }

    /// The pixels of a tile, whose sides may be halved. If this is dropped and nobody else wants
    /// the tile, it is not decoded, unless that has begun. An update begins when all its tiles have
    /// been read or are cached.
    pub(crate) async fn get(
        self: &Arc<Self>,
        open: &Arc<Open>,
        key: TileKey,
        update: Option<Arc<Update>>,
    ) -> Decoded {
        if let Some(pixels) = self.kept.get(&key) {
            return Ok(pixels);
        }
        let ready = || self.kept.get(&key).map(Ok);
        let ticket = match self.flights.join(&key, ready) {
            Joined::Ready(pixels) => return pixels,
            Joined::Later(ticket) => {
                drop(update);
                ticket
            }
            Joined::First(ticket, flight) => {
                tokio::spawn(Arc::clone(self).fetch(Arc::clone(open), key, flight, update));
                ticket
            }
        };
        ticket
            .wait()
            .await
            .unwrap_or_else(|| Err(Failure::unavailable("the server is shutting down")))
    }

    async fn fetch(
        self: Arc<Self>,
        open: Arc<Open>,
        key: TileKey,
        flight: Flight<TileKey, Decoded>,
        update: Option<Arc<Update>>,
    ) {
        let flight = Arc::new(flight);
        if let Some(decoded) = self.decoded(&open, &key, &flight, update).await {
            let kept = decoded.clone();
            flight.land(decoded, || {
                if let Ok(pixels) = kept {
                    let bytes = pixels.bytes.len() + cost(key.rendering.as_ref());
                    self.kept.put(key.clone(), pixels, bytes);
                }
                self.decoding.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            });
        } else {
            Counters::add(&self.counters.unwanted, 1);
        }
    }

    /// `None` if the tile is no longer wanted.
    async fn decoded(
        self: &Arc<Self>,
        open: &Arc<Open>,
        key: &TileKey,
        flight: &Arc<Flight<TileKey, Decoded>>,
        update: Option<Arc<Update>>,
    ) -> Option<Decoded> {
        // Requests that wait for a slow web server do not take a place from others.
        let turn = tokio::select! {
            turn = self.web.threads.take(open.host.as_ref(), 1) => turn,
            () = flight.until_unwanted() => return None,
        };
        let turn = match turn {
            Ok(turn) => turn,
            Err(failure) => return Some(Err(failure)),
        };
        let drawing = match open.slide.draws(key.level) {
            true => tokio::select! {
                drawing = self.web.decoder(open.host.as_ref()) => drawing,
                () = flight.until_unwanted() => return None,
            },
            false => None,
        };
        let reading = match update {
            // The update has waited for room for all its tiles.
            Some(_) => None,
            None => tokio::select! {
                reading = Arc::clone(&self.reading).acquire_owned() => reading.ok(),
                () = flight.until_unwanted() => return None,
            },
        };
        if flight.ends_unwanted() {
            return None;
        }
        let (slide, of) = (Arc::clone(open), key.clone());
        let read = move || {
            let (_turn, _drawing) = (turn, drawing);
            let (level, position) = (of.level, (of.column, of.row));
            let tile = match &of.rendering {
                Some(rendering) => slide.slide.tile_of(level, position, rendering),
                None => slide.slide.tile(level, of.column, of.row).map(Tile::Stored),
            };
            let tile = tile.map_err(|error| slide.wrong(&error))?;
            Ok::<_, Failure>(tile.halved(of.halvings))
        };
        let (tiles, of, its) = (Arc::clone(self), key.clone(), Arc::clone(flight));
        let is_wanted = move || {
            // The block no longer waits.
            drop(reading);
            let is_wanted = !its.ends_unwanted();
            if is_wanted {
                tiles.begins(&of);
            }
            is_wanted
        };
        let answer = self.farm.read_and_run(Task::Decompress, update, read, is_wanted).await;
        match answer {
            Ok(None) => None,
            Ok(Some(Ok(answer))) => {
                Counters::add(&self.counters.decoded, 1);
                let pixels = TilePixels::of(answer).filter(|pixels| {
                    open.levels.get(key.level).is_some_and(|level| covers(level, key, pixels))
                });
                let TileKey { level, column, row, .. } = key;
                let what = format!("level {level}, tile {column}, {row}: it has too few pixels");
                Some(pixels.ok_or_else(|| open.undone(&what)))
            }
            Ok(Some(Err(what))) => Some(Err(open.undone(&what))),
            Err(failure) => Some(Err(failure)),
        }
    }

    fn begins(&self, key: &TileKey) {
        let mut decoding = self.decoding.lock().unwrap_or_else(PoisonError::into_inner);
        if !decoding.insert(key.clone()) || self.kept.get(key).is_some() {
            Counters::add(&self.counters.decoded_twice, 1);
        }
    }
}

/// True if the pixels of a tile cover its part of the level. Beyond the border they may end.
fn covers(level: &Level, key: &TileKey, pixels: &TilePixels) -> bool {
    let needed = |number: u32, side: u32, whole: u32| {
        whole.saturating_sub(number.saturating_mul(side)).min(side) >> key.halvings
    };
    pixels.width >= needed(key.column, level.tile_width, level.width)
        && pixels.height >= needed(key.row, level.tile_height, level.height)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_covers_its_part_of_the_level() {
        let (width, height, tile_width, tile_height) = (300, 101, 256, 64);
        let level = Level { width, height, tile_width, tile_height, downsample: 1.0 };
        for (column, row, halvings, size, is_whole) in [
            (0, 0, 0, (256, 64), true),
            (0, 0, 0, (255, 64), false),
            (0, 0, 0, (256, 63), false),
            // At the border.
            (1, 1, 0, (44, 37), true),
            (1, 1, 0, (256, 36), false),
            (1, 1, 0, (43, 64), false),
            // The last row of pixels has no other below it.
            (1, 1, 1, (22, 18), true),
            (1, 1, 1, (21, 18), false),
            (1, 1, 3, (5, 4), true),
            (0, 1, 3, (32, 3), false),
        ] {
            let key = TileKey { opening: 0, level: 0, halvings, rendering: None, column, row };
            let pixels = TilePixels { width: size.0, height: size.1, bytes: Default::default() };
            assert_eq!(covers(&level, &key, &pixels), is_whole, "{key:?}: {size:?}");
        }
    }
}

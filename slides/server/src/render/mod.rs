//! Makes images from slides: stored tiles unchanged, and all others decoded, scaled and encoded.
//!
//! ```text
//! Images::get ── kept? ── one flight for each picture
//!   stored JPEG that fits        read ───────────────────────────────> answer
//!   else  tiles (one flight each) read ── decompress (farm)
//!                                            └── paste ── finish (farm) ──> answer
//! ```
//!
//! - picture: a requested image
//! - plan: chooses level and tiles, and the positions of their pixels
//! - tiles: stored tiles, each decoded once
//! - region: the pixels of tiles, pasted when there are some
//! - farm: shared work, done by an executor or in a pipeline
//! - executor: threads of this process that do work
//! - frames: DICOM frames and samples of channels, made for each request
//! - memory: bounds the memory of images in progress
//! - pipeline: a filter of `seekwire-flow` with copies here and at workers
//! - guarantee: guarantees for updates
//! - work: the work of the copies; blocks of bytes
//! - colour: conversion to sRGB
//! - rotation: rotation, mirroring, grey

pub(crate) mod colour;
mod executor;
pub(crate) mod farm;
mod frames;
pub(crate) mod guarantee;
pub(crate) mod memory;
mod picture;
pub(crate) mod pipeline;
pub(crate) mod plan;
mod region;
pub(crate) mod rotation;
pub(crate) mod stored;
pub(crate) mod tiles;
pub(crate) mod work;

use std::sync::Arc;

use anyhow::Result as Anyhow;
use bytes::Bytes;
use seekwire_flow::{DealingPolicy, Guarantee};
use seekwire_slides_image::{Format, Raster, Rendering};

use crate::byte_lru::Bounded;
use crate::counters::Counters;
use crate::disk::{Disk, Name};
use crate::failure::{Failure, Result};
use crate::single_flight::{Flight, Flights, Joined};
use crate::slide_cache::Open;
use crate::web_limits::{TOO_MANY, Web};
use crate::workers::protocol::Task;
use crate::workers::remote::WorkerThreads;
use colour::ColourMode;
use farm::Farm;
use guarantee::Promise;
use memory::{Memory, MemoryPermit, profile};
use pipeline::{PipelineOptions, WorkFn};
use plan::{BaseRegion, Plan};
use region::Region;
use tiles::TileCache;
use work::Orders;

pub(crate) use picture::{Appearance, FrameCrop, ImageFormat, Picture, Shown, key};

/// From this JPEG quality on, colours of every image have full resolution.
const FULL_COLOUR: u8 = 90;

/// Limits on images.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Threads that decode, and as many that encode.
    pub(crate) threads: usize,
    /// Bytes of cached encoded images.
    pub(crate) images: usize,
    /// Bytes of cached decoded tiles.
    pub(crate) tiles: usize,
    /// Bytes of all regions in progress.
    pub(crate) work: usize,
    /// Pixels of the largest stored tile.
    pub(crate) tile: u64,
    /// JPEG quality, from 1 to 100.
    pub(crate) quality: u8,
    /// Whether to use libjpeg-turbo if it is installed.
    pub(crate) turbojpeg: bool,
    /// How work is distributed among copies.
    pub(crate) policy: DealingPolicy,
    pub(crate) guarantee: Option<Guarantee>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    opening: u64,
    picture: Picture,
}

type Image = Result<Bytes>;

/// The result of a flight.
#[derive(Clone)]
struct Made {
    image: Bytes,
    /// True for a complete update, false for a partial one; `None` if the image was cached, or is
    /// not an update.
    is_complete: Option<bool>,
}

/// Makes images, and caches them.
pub(crate) struct Images {
    tiles: Arc<TileCache>,
    farm: Arc<Farm>,
    kept: Bounded<Key, Bytes>,
    flights: Arc<Flights<Key, Result<Made>>>,
    memory: Memory,
    web: Arc<Web>,
    /// The second, persistent cache.
    disk: Option<Disk>,
    bounds: Bounds,
    counters: Arc<Counters>,
    promise: Option<Arc<Promise>>,
}

impl Images {
    pub(crate) fn new(
        bounds: Bounds,
        disk: Option<Disk>,
        web: Arc<Web>,
        counters: Arc<Counters>,
    ) -> Anyhow<Self> {
        let tools = work::Tools::new(bounds.turbojpeg, bounds.tile);
        let work: WorkFn = Arc::new(move |task, input| tools.work(task, input));
        let farm = |name, guarantee| {
            let (copies, work, policy) = (bounds.threads, Arc::clone(&work), bounds.policy);
            Farm::with(PipelineOptions { name, copies, work, policy, guarantee })
        };
        let decompress = farm("decompress", bounds.guarantee)?;
        let (own, counts) = (Arc::clone(&web), Arc::clone(&counters));
        Ok(Self {
            tiles: Arc::new(TileCache::new(decompress, bounds.tiles, own, counts)),
            farm: Arc::new(farm("finish", bounds.guarantee)?),
            kept: Bounded::new(bounds.images),
            flights: Arc::new(Flights::new()),
            memory: Memory::new(bounds.work as u64),
            web,
            promise: bounds.guarantee.map(|guarantee| Arc::new(Promise::new(guarantee))),
            disk,
            bounds,
            counters,
        })
    }

    pub(crate) fn tiles(&self) -> &TileCache {
        &self.tiles
    }

    pub(crate) fn farm(&self) -> &Arc<Farm> {
        &self.farm
    }

    /// The guarantee, and how it is met.
    pub(crate) fn promise(&self) -> Option<&Promise> {
        self.promise.as_deref()
    }

    /// Distributes work to this process and these workers, unless there are not enough threads for
    /// that.
    pub(crate) fn work_with(&self, workers: &[WorkerThreads]) -> Anyhow<()> {
        Farm::all_work_with(&[self.tiles.farm(), &self.farm], workers)
    }

    /// True while work for a previous set of workers is unfinished.
    pub(crate) fn is_changing(&self) -> bool {
        self.tiles.farm().is_changing() || self.farm.is_changing()
    }

    /// JPEG quality.
    pub(crate) fn quality(&self) -> u8 {
        self.bounds.quality
    }

    /// Bytes of cached images, and the limit.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        self.kept.bytes()
    }

    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// True if an image is cached in memory.
    pub(crate) fn has(&self, open: &Open, picture: &Picture) -> bool {
        self.kept.has(&Key { opening: open.number, picture: picture.clone() })
    }

    /// The encoded image. If this is dropped and nobody else wants the image, work on it stops.
    pub(crate) async fn get(self: &Arc<Self>, open: &Arc<Open>, picture: Picture) -> Image {
        let key = Key { opening: open.number, picture };
        if let Some(image) = self.kept.get(&key) {
            Counters::add(&self.counters.kept, 1);
            return Ok(image);
        }
        // An update takes from its own request on, even if another request has its image made.
        let is_complete = self.is_complete(open, &key.picture);
        let promise = self.promise.as_ref().filter(|_| is_complete.is_some());
        let timed = promise.map(|promise| promise.begin());
        // Requests delayed by a slow web server leave room for others.
        let Some(_waits) = self.web.requests.try_take(open.host.as_ref()) else {
            return Err(Failure::unavailable(TOO_MANY));
        };
        let ready = || self.kept.get(&key).map(|image| Ok(Made { image, is_complete: None }));
        let ticket = match self.flights.join(&key, ready) {
            Joined::Ready(made) => {
                Counters::add(&self.counters.kept, 1);
                return made.map(|made| made.image);
            }
            Joined::Later(ticket) => {
                Counters::add(&self.counters.joined, 1);
                ticket
            }
            Joined::First(ticket, flight) => {
                tokio::spawn(Arc::clone(self).fetch(Arc::clone(open), key, flight));
                ticket
            }
        };
        let made = ticket.wait().await;
        let made =
            made.unwrap_or_else(|| Err(Failure::unavailable("the server is shutting down")))?;
        if let (Some(timed), Some(is_complete)) = (timed, made.is_complete) {
            timed.done(is_complete);
        }
        Ok(made.image)
    }

    /// True if an image made from tiles is a complete update; `None` if it is not an update, or
    /// nothing is guaranteed.
    fn is_complete(&self, open: &Open, picture: &Picture) -> Option<bool> {
        self.promise.as_ref()?;
        let (part, _) = picture.shown.parts()?;
        let plan = Plan::new(&open.levels, part, picture.width, picture.height)?;
        // An image that is too large is refused before its tiles matter.
        let is_made = plan.pixels() <= work::limits().region_pixels;
        is_made.then(|| guarantee::is_complete(plan.tiles().count()))
    }

    async fn fetch(self: Arc<Self>, open: Arc<Open>, key: Key, flight: Flight<Key, Result<Made>>) {
        let made = tokio::select! {
            made = self.image(&open, &key.picture) => made,
            () = flight.until_unwanted() => {
                Counters::add(&self.counters.cancelled, 1);
                return;
            }
        };
        let kept = made.clone();
        flight.land(made, || {
            if let Ok(Made { image, .. }) = kept {
                let rendering = key.picture.shown.parts().and_then(|(_, rendering)| rendering);
                let length = image.len() + picture::cost(rendering);
                self.kept.put(key, image, length);
            }
        });
    }

    async fn image(&self, open: &Arc<Open>, picture: &Picture) -> Result<Made> {
        match &picture.shown {
            Shown::Part(part) => {
                if let Some(image) = self.stored(open, picture, *part).await? {
                    Counters::add(&self.counters.stored, 1);
                    return Ok(Made { image, is_complete: Some(false) });
                }
                self.kept_or(open, picture, self.part(open, picture, *part, None)).await
            }
            Shown::Of(part, rendering) => {
                let make = self.part(open, picture, *part, Some(rendering));
                self.kept_or(open, picture, make).await
            }
            Shown::Associated(name) => {
                self.kept_or(open, picture, self.associated(open, picture, name)).await
            }
        }
    }

    /// The image from the disk cache, or else the result of `make`.
    async fn kept_or(
        &self,
        open: &Open,
        picture: &Picture,
        make: impl Future<Output = Image>,
    ) -> Result<Made> {
        let is_complete = self.is_complete(open, picture);
        let Some(disk) = self.disk.as_ref().filter(|_| open.is_known_by_stamp()) else {
            return self.made(make, is_complete).await;
        };
        let name = Name::new(&[
            env!("CARGO_PKG_VERSION"),
            &open.location,
            &open.stamp,
            &self.bounds.quality.to_string(),
            &key(picture),
        ]);
        if let Some(image) = disk.get(name).await {
            return Ok(Made { image, is_complete: None });
        }
        let made = self.made(make, is_complete).await?;
        disk.put(name, made.image.clone());
        Ok(made)
    }

    /// The result of `make`. A rate counts images that are made, so this becomes a complete update
    /// only now, not during the lookup on disk.
    async fn made(
        &self,
        make: impl Future<Output = Image>,
        is_complete: Option<bool>,
    ) -> Result<Made> {
        let promise = self.promise.as_ref().filter(|_| is_complete == Some(true));
        let making = promise.map(|promise| promise.making());
        let image = make.await?;
        if let Some(making) = making {
            making.made();
        }
        Ok(Made { image, is_complete })
    }

    /// The stored tile that is exactly this picture, if there is one.
    async fn stored(
        &self,
        open: &Arc<Open>,
        picture: &Picture,
        part: BaseRegion,
    ) -> Result<Option<Bytes>> {
        let Some((level, region)) = stored::stored_tile(&open.levels, picture, part) else {
            return Ok(None);
        };
        let slide = Arc::clone(open);
        let embeds = picture.colours == ColourMode::Embedded;
        let memory = match open.slide.icc().filter(|_| embeds) {
            Some(icc) => {
                let bytes = profile(Some(icc), picture.colours);
                Some(self.memory.take(open.host.as_ref(), bytes).await?)
            }
            None => None,
        };
        let turn = self.web.threads.take(open.host.as_ref(), 1).await?;
        let read = move || {
            // The client may disconnect meanwhile.
            let (_memory, _turn) = (memory, turn);
            let jpeg = slide.slide.stored_jpeg(level, region)?;
            Ok(jpeg.map(|jpeg| match slide.slide.icc().filter(|_| embeds) {
                Some(icc) => stored::with_profile(&jpeg, icc),
                None => jpeg,
            }))
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(jpeg)) => Ok(jpeg.map(Bytes::from)),
            Ok(Err(error)) => Err(open.wrong(&error)),
            Err(_) => Err(Failure::internal("reading the tile panicked")),
        }
    }

    async fn part(
        &self,
        open: &Arc<Open>,
        picture: &Picture,
        part: BaseRegion,
        rendering: Option<&Arc<Rendering>>,
    ) -> Image {
        let plan = Plan::new(&open.levels, part, picture.width, picture.height)
            .ok_or_else(|| Failure::internal("the slide has no level"))?;
        let limit = work::limits().region_pixels;
        if plan.pixels() > limit {
            return Err(Failure::not_implemented(format!(
                "{} x {} pixels would be read, of {limit} at most: the slide has no smaller level",
                plan.width, plan.height
            )));
        }
        let tiles = plan.tiles().count();
        let is_complete = guarantee::is_complete(tiles);
        let made = u64::from(picture.width) * u64::from(picture.height);
        let icc = open.slide.icc().filter(|_| picture.colours != ColourMode::Raw);
        let bytes = memory::pixels(plan.pixels(), made)
            + Region::collects(&plan, tiles)
            + profile(icc, picture.colours);
        let host = open.host.as_ref();
        let memory = self.memory.take(host, bytes).await?;
        let more = icc.map_or(0, <[u8]>::len) + Orders::LENGTH;
        let region = Region::new(plan.clone(), more);
        let region = region.with_tiles(&self.tiles, open, rendering, is_complete, &memory).await?;
        let orders = Orders {
            width: plan.width,
            height: plan.height,
            part: plan.crop,
            to: (picture.width, picture.height),
            turn: picture.turn,
            quality: picture.quality,
            converts: picture.colours == ColourMode::Srgb,
            format: self.format(picture.kind, rendering.is_some()),
        };
        let (slide, has_profile) = (Arc::clone(open), icc.is_some());
        let block = move || {
            let mut block = region.into_pixels();
            orders.append(&mut block, slide.slide.icc().filter(|_| has_profile));
            block
        };
        self.finish(open, memory, is_complete, block).await
    }

    async fn associated(&self, open: &Arc<Open>, picture: &Picture, name: &str) -> Image {
        let (slide, name) = (Arc::clone(open), name.to_owned());
        let none = || Failure::not_found(format!("{}: no image {name}", open.id));
        let (width, height) = open.slide.associated_size(&name).ok_or_else(none)?;
        let (wide, high) = (f64::from(width), f64::from(height));
        let scale = (f64::from(picture.width) / wide).min(f64::from(picture.height) / high);
        let side = |side: f64| ((side * scale.min(1.0)).round() as u32).max(1);
        let to = (side(wide), side(high));
        let area = |(width, height): (u32, u32)| u64::from(width) * u64::from(height);
        // One of its tiles may be as large as the whole.
        let bytes = memory::pixels(2 * area((width, height)), area(to))
            .saturating_add(open.slide.associated_decoding(&name));
        let host = open.host.as_ref();
        let memory = self.memory.take(host, bytes).await?;
        let turn = (self.web.threads.take(host, 1).await?, self.web.decoder(host).await);
        let read = move || {
            let _turn = turn;
            let raster = slide.slide.associated(&name).map_err(|error| slide.wrong(&error))?;
            // The client may have disconnected meanwhile.
            Ok::<_, Failure>((raster, memory))
        };
        let read = tokio::task::spawn_blocking(read).await;
        let (raster, memory) = read.map_err(|_| Failure::internal("reading it panicked"))??;
        let is_whole = |raster: &Raster| (raster.width(), raster.height()) == (width, height);
        let wrong = || Failure::internal("the image has the wrong size");
        let raster = raster.filter(is_whole).ok_or_else(wrong)?;
        let orders = Orders {
            width,
            height,
            part: (0.0, 0.0, wide, high),
            to,
            turn: picture.turn,
            quality: picture.quality,
            converts: picture.colours == ColourMode::Srgb,
            format: self.format(picture.kind, false),
        };
        let block = move || {
            let mut block = raster.into_pixels();
            orders.append(&mut block, None);
            block
        };
        self.finish(open, memory, false, block).await
    }

    /// Channels differ in colour alone where they are blended, so there it has full resolution.
    fn format(&self, kind: ImageFormat, is_blend: bool) -> Format {
        let quality = self.bounds.quality;
        match kind {
            ImageFormat::Jpeg => {
                Format::Jpeg { quality, full_colour: is_blend || quality >= FULL_COLOUR }
            }
            ImageFormat::Png => Format::Png,
            ImageFormat::WebP => Format::WebP,
        }
    }

    /// Encodes the image of a block that `block` returns, which may take some time.
    async fn finish(
        &self,
        open: &Open,
        memory: MemoryPermit,
        is_complete: bool,
        block: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Image {
        let update = self.farm.update(is_complete, Some(Arc::clone(&memory)));
        let make = || Some(Bytes::from(block()));
        match self.farm.run(Task::Finish, update, Some(memory), make).await? {
            Some(Ok(image)) => {
                Counters::add(&self.counters.encoded, 1);
                Ok(image)
            }
            Some(Err(what)) => Err(open.undone(&what)),
            None => Err(Failure::internal("the work was not done")),
        }
    }
}

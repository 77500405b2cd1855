//! Makes images from slides: stored tiles unchanged, and all others decoded, scaled and encoded.
//!
//! ```text
//! Images::get ── kept? ── one flight for each picture
//!   stored JPEG that fits        read ───────────────────────────────> answer
//!   else  tiles (one flight each) read ── decompress (farm) ── paste
//!                                                       └── finish (farm) ──> answer
//! ```
//!
//! - picture: a requested image
//! - plan: chooses level and tiles, and the places of their pixels
//! - tiles: stored tiles, each decoded once
//! - farm: shared work, done in a pipeline
//! - frames: DICOM frames and samples of channels, made for each request
//! - memory: bounds the memory of images in progress
//! - pipeline: a filter of `seekwire-flow` with copies here and at workers
//! - promise: guarantees for updates
//! - work: the work of the copies; blocks of bytes
//! - colour: conversion to sRGB
//! - turn: rotation, mirroring, grey

pub(crate) mod colour;
pub(crate) mod farm;
mod frames;
pub(crate) mod memory;
mod picture;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod promise;
pub(crate) mod stored;
pub(crate) mod tiles;
pub(crate) mod turn;
pub(crate) mod work;

use std::sync::Arc;

use anyhow::Result as Anyhow;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use seekwire_flow::{Guarantee, Policy};
use seekwire_slides_image::{Format, Raster, Region, Rendering};

use crate::bounded::Bounded;
use crate::counters::Counters;
use crate::disk::{Disk, Name};
use crate::failure::{Failure, Result};
use crate::flights::{Flight, Flights, Joined};
use crate::opened::Open;
use crate::shares::Web;
use crate::workers::remote::Given;
use crate::workers::wire::Task;
use colour::Colours;
use farm::Farm;
use memory::{Memory, Taken, profile};
use pipeline::{Options, TOGETHER, Work};
use plan::{Part, Plan};
use promise::Promise;
use tiles::Tiles;
use work::Orders;

pub(crate) use picture::{Kind, Look, Picture, Shown, View};

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
    pub(crate) policy: Policy,
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

/// For requests beyond the limit of those that wait for one web server.
pub(crate) const TOO_MANY: &str = "too many requests are waiting for the slide's web server";

/// Makes images, and caches them.
pub(crate) struct Images {
    tiles: Arc<Tiles>,
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
        let work: Work = Arc::new(move |task, block| tools.work(task, block));
        let farm = |name, guarantee| {
            let (copies, work, policy) = (bounds.threads, Arc::clone(&work), bounds.policy);
            Farm::with(Options { name, copies, work, policy, guarantee })
        };
        let decompress = farm("decompress", bounds.guarantee)?;
        let (own, counts) = (Arc::clone(&web), Arc::clone(&counters));
        Ok(Self {
            tiles: Arc::new(Tiles::new(decompress, bounds.tiles, own, counts)),
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

    pub(crate) fn tiles(&self) -> &Tiles {
        &self.tiles
    }

    pub(crate) fn farm(&self) -> &Farm {
        &self.farm
    }

    /// The guarantee, and how it is met.
    pub(crate) fn promise(&self) -> Option<&Promise> {
        self.promise.as_deref()
    }

    /// Distributes work to this process and these workers, unless there are not enough threads for
    /// that.
    pub(crate) fn work_with(&self, given: &[Given]) -> Anyhow<()> {
        Farm::all_work_with(&[self.tiles.farm(), &self.farm], given)
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
        is_made.then(|| promise::is_complete(plan.tiles().count()))
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
            &format!("{picture:?}"),
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
        part: Part,
    ) -> Result<Option<Bytes>> {
        let Some((level, region)) = stored::place(&open.levels, picture, part) else {
            return Ok(None);
        };
        let slide = Arc::clone(open);
        let embeds = picture.colours == Colours::Embedded;
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
        part: Part,
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
        let is_complete = promise::is_complete(plan.tiles().count());
        let made = u64::from(picture.width) * u64::from(picture.height);
        let icc = open.slide.icc().filter(|_| picture.colours != Colours::Raw);
        let bytes = memory::pixels(plan.pixels(), made) + profile(icc, picture.colours);
        let host = open.host.as_ref();
        let memory = self.memory.take(host, bytes).await?;
        let mut pixels = plan.white(icc.map_or(0, <[u8]>::len) + Orders::LENGTH + 8);
        let (level, halvings) = (plan.level, plan.halvings);
        let places: Vec<_> = plan.tiles().collect();
        let mut window = self.tiles.farm().window();
        let mut part = places.len().max(1);
        if self.promise.is_some() {
            // An update begins once the last of its tiles has been read, so all are read at once.
            window *= TOGETHER;
            part = window.min(self.tiles.updated(host));
        }
        for places in places.chunks(part) {
            let taken = match self.promise {
                Some(_) => Some(self.tiles.room(host, is_complete, places.len()).await?),
                None => None,
            };
            let update = self.tiles.farm().update(is_complete, taken);
            let fetch = |place: &(u32, u32)| {
                let (tiles, open) = (Arc::clone(&self.tiles), Arc::clone(open));
                let (place, update) = (*place, update.clone());
                let of = (level, halvings, rendering.cloned());
                async move { (place, tiles.get(&open, of, place, update).await) }
            };
            let fetches: Vec<_> = places.iter().map(fetch).collect();
            drop(update);
            let fetched = stream::iter(fetches).buffer_unordered(window);
            let mut fetched = std::pin::pin!(fetched);
            while let Some((place, tile)) = fetched.next().await {
                plan.paste(&mut pixels, place, &tile?);
            }
        }
        let orders = Orders {
            width: plan.width,
            height: plan.height,
            part: plan.crop,
            to: (picture.width, picture.height),
            turn: picture.turn,
            quality: picture.quality,
            converts: picture.colours == Colours::Srgb,
            format: self.format(picture.kind),
        };
        orders.append(&mut pixels, icc);
        self.finish(open, pixels, memory, is_complete).await
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
        let bytes = memory::pixels(2 * area((width, height)), area(to));
        let host = open.host.as_ref();
        let memory = self.memory.take(host, bytes).await?;
        let turn = self.web.threads.take(host, 1).await?;
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
            converts: picture.colours == Colours::Srgb,
            format: self.format(picture.kind),
        };
        let mut pixels = raster.into_pixels();
        orders.append(&mut pixels, None);
        self.finish(open, pixels, memory, false).await
    }

    fn format(&self, kind: Kind) -> Format {
        match kind {
            Kind::Jpeg => Format::Jpeg(self.bounds.quality),
            Kind::Png => Format::Png,
            Kind::WebP => Format::WebP,
        }
    }

    async fn finish(&self, open: &Open, block: Vec<u8>, memory: Taken, is_complete: bool) -> Image {
        let block = Bytes::from(block);
        let answer = match self.farm.update(is_complete, Some(Arc::clone(&memory))) {
            Some(update) => update.run(Task::Finish, block).await.map(Some),
            None => self.farm.run_with(Task::Finish, block, Some(memory), || true).await,
        };
        match answer {
            Ok(image) => {
                Counters::add(&self.counters.encoded, 1);
                image.ok_or_else(|| Failure::internal("the work was not done"))
            }
            Err(failure) => {
                tracing::warn!(slide = open.id, "{failure}");
                Err(open.outside(failure))
            }
        }
    }
}

/// A region of a level, in the form that slides take.
fn region(x: u32, y: u32, width: u32, height: u32) -> Region {
    Region { x: x.into(), y: y.into(), width, height }
}

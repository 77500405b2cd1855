//! DICOM frames and samples of single channels: made for each request, and not cached.

use std::sync::Arc;

use seekwire_slides_image::{Plane, StoredTile, Tile};

use crate::counters::Counters;
use crate::failure::Failure;
use crate::render::colour::ColourMode;
use crate::render::memory::{self, profile};
use crate::render::rotation::{Quality, Turn};
use crate::render::work::{Orders, TilePixels};
use crate::render::{FrameCrop, Image, ImageFormat, Images};
use crate::slide_cache::Open;
use crate::workers::protocol::Task;

impl Images {
    /// The samples of one channel in a tile of a level.
    pub(crate) async fn raw(
        &self,
        open: &Arc<Open>,
        level: usize,
        position: (u32, u32),
        channel: u32,
        plane: Plane,
    ) -> Image {
        let of = open.levels.get(level).ok_or_else(|| Failure::not_found("no such level"))?;
        let pixels = u64::from(of.tile_width) * u64::from(of.tile_height);
        let (_, bits) = open.slide.sample();
        let host = open.host.as_ref();
        // The stored tile may have all channels and planes.
        let bytes =
            (pixels * u64::from(bits.max(8) / 8)).saturating_add(open.slide.decoding(level));
        let memory = self.memory.take(host, bytes).await?;
        let turn = (self.web.threads.take(host, 1).await?, self.web.decoder(host).await);
        let slide = Arc::clone(open);
        let read = move || {
            // The client may disconnect meanwhile.
            let (_memory, _turn) = (memory, turn);
            let raw = slide.slide.raw(level, position, channel, plane);
            raw.map_err(|error| slide.wrong(&error))
        };
        let raw = tokio::task::spawn_blocking(read).await;
        let raw = raw.map_err(|_| Failure::internal("reading the tile panicked"))??;
        Counters::add(&self.counters.decoded, 1);
        Ok(raw.bytes.into())
    }

    /// A frame of a DICOM instance. Stored JPEG is sent unchanged if its colours are not converted:
    /// those of a level may be, by the profile of the slide.
    pub(crate) async fn frame(
        &self,
        open: &Arc<Open>,
        tile: StoredTile,
        is_level: bool,
        kind: ImageFormat,
        view: Option<FrameCrop>,
    ) -> Image {
        let icc = open.slide.icc().filter(|_| open.converts && is_level);
        if kind == ImageFormat::Jpeg
            && icc.is_none()
            && view.is_none()
            && let Some(jpeg) = tile.jpeg().map_err(|error| open.wrong(&error))?
        {
            Counters::add(&self.counters.stored, 1);
            return Ok(jpeg.into());
        }
        let layout = tile.layout();
        let area = u64::from(layout.width) * u64::from(layout.height);
        let wanted = view.map_or(area, |FrameCrop { to, .. }| u64::from(to.0) * u64::from(to.1));
        let bytes = memory::pixels(area, wanted) + profile(icc, ColourMode::Srgb);
        let memory = self.memory.take(open.host.as_ref(), bytes).await?;
        let make = move || Some(Tile::Stored(tile));
        let memory_permit = Some(Arc::clone(&memory));
        let answer = self.tiles.farm().run(Task::Decompress, None, memory_permit, make).await?;
        let wrong = || Failure::internal("the decoded frame has the wrong size");
        let answer = answer.ok_or_else(wrong)?.map_err(|what| open.undone(&what))?;
        Counters::add(&self.counters.decoded, 1);
        let pixels = TilePixels::of(answer).ok_or_else(wrong)?;
        let size = (pixels.width, pixels.height);
        let FrameCrop { part, to } =
            view.unwrap_or(FrameCrop { part: [0, 0, size.0, size.1], to: size });
        let [left, top, width, height] = part.map(f64::from);
        let orders = Orders {
            width: size.0,
            height: size.1,
            part: (left, top, width, height),
            to,
            turn: Turn::default(),
            quality: Quality::Colour,
            converts: icc.is_some(),
            format: self.format(kind, false),
        };
        let slide = Arc::clone(open);
        let block = move || {
            let mut block = pixels.bytes.to_vec();
            orders.append(&mut block, slide.slide.icc().filter(|_| slide.converts && is_level));
            block
        };
        self.finish(open, memory, false, block).await
    }
}

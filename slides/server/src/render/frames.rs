//! DICOM frames and samples of single channels: made for each request, and not cached.

use std::sync::Arc;

use seekwire_slides_image::{Plane, StoredTile};

use crate::counters::Counters;
use crate::failure::Failure;
use crate::opened::Open;
use crate::render::colour::Colours;
use crate::render::memory::{self, profile};
use crate::render::turn::{Quality, Turn};
use crate::render::work::{Orders, Pixels};
use crate::render::{Image, Images, Kind, View};
use crate::workers::wire::Task;

impl Images {
    /// The samples of one channel in a tile of a level.
    pub(crate) async fn raw(
        &self,
        open: &Arc<Open>,
        level: usize,
        place: (u32, u32),
        (channel, plane): (u32, Plane),
    ) -> Image {
        let of = open.levels.get(level).ok_or_else(|| Failure::not_found("no such level"))?;
        let pixels = u64::from(of.tile_width) * u64::from(of.tile_height);
        let (_, bits) = open.slide.sample();
        let memory = self.memory.take(open.host.as_ref(), pixels * u64::from(bits.max(8) / 8));
        let memory = memory.await?;
        let turn = self.web.threads.take(open.host.as_ref(), 1).await?;
        let slide = Arc::clone(open);
        let read = move || {
            // The client may disconnect meanwhile.
            let (_memory, _turn) = (memory, turn);
            let raw = slide.slide.raw(level, place, channel, plane);
            raw.map_err(|error| slide.wrong(&error))
        };
        let raw = tokio::task::spawn_blocking(read).await;
        let raw = raw.map_err(|_| Failure::internal("reading the tile panicked"))??;
        Counters::add(&self.counters.decoded, 1);
        Ok(raw.bytes.into())
    }

    /// A frame of a DICOM instance. Stored JPEG is sent unchanged if its colours are not converted.
    pub(crate) async fn frame(
        &self,
        open: &Open,
        tile: StoredTile,
        kind: Kind,
        view: Option<View>,
    ) -> Image {
        let icc = open.slide.icc().filter(|_| open.converts);
        if kind == Kind::Jpeg
            && icc.is_none()
            && view.is_none()
            && let Some(jpeg) = tile.jpeg().map_err(|error| open.wrong(&error))?
        {
            Counters::add(&self.counters.stored, 1);
            return Ok(jpeg.into());
        }
        let layout = tile.layout();
        let area = u64::from(layout.width) * u64::from(layout.height);
        let wanted = view.map_or(area, |View { to, .. }| u64::from(to.0) * u64::from(to.1));
        let bytes = memory::pixels(area, wanted) + profile(icc, Colours::Srgb);
        let memory = self.memory.take(open.host.as_ref(), bytes).await?;
        let (block, taken) = (tile.to_block().into(), Some(Arc::clone(&memory)));
        let answer = self.tiles.farm().run_with(Task::Decompress, block, taken, || true).await;
        let answer = answer.map_err(|failure| open.outside(failure))?;
        Counters::add(&self.counters.decoded, 1);
        let wrong = || Failure::internal("the decoded frame has the wrong size");
        let pixels = answer.and_then(Pixels::of).ok_or_else(wrong)?;
        let size = (pixels.width, pixels.height);
        let View { part, to } = view.unwrap_or(View { part: [0, 0, size.0, size.1], to: size });
        let [left, top, width, height] = part.map(f64::from);
        let orders = Orders {
            width: size.0,
            height: size.1,
            part: (left, top, width, height),
            to,
            turn: Turn::default(),
            quality: Quality::Colour,
            converts: icc.is_some(),
            format: self.format(kind),
        };
        let mut block = pixels.bytes.to_vec();
        orders.append(&mut block, icc);
        self.finish(open, block, memory, false).await
    }
}

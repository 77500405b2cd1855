//! Bounds on what one file may cost.

/// Maximum cost of one file. One that needs more gets [`Error::Limit`](crate::Error::Limit).
#[derive(Debug, Clone)]
pub struct Limits {
    /// Image file directories, in the chain and below it.
    pub directories: usize,
    /// Entries of one directory. Further properties in an Aperio description are left out.
    pub entries: usize,
    /// Bytes of all tables of directories, tile positions and codecs of a file together. In DICOM
    /// this covers all files of a series together, and in each file also the dataset before its
    /// pixels, and its JSON.
    pub tables: u64,
    /// Bytes of one text, or of one table of a codec.
    pub value: u64,
    /// Bytes of a colour profile: it stays in memory, and is part of each encoded image. Profiles
    /// of scanners have a few hundred thousand bytes. A larger one is left out, and a property says
    /// so.
    pub profile: u64,
    /// Compressed bytes of one tile.
    pub stored: u64,
    /// Pixels of one tile after decoding.
    pub tile_pixels: u64,
    /// Pixels of one region, before and after scaling.
    pub region_pixels: u64,
    /// Pixels of a level's width or height.
    pub side: u32,
    /// Files of a directory that are examined to decide whether it is a series, and images of a
    /// group.
    pub files: usize,
    /// Files in the directory of a series: the beginning of each is read.
    pub files_beside: usize,
    /// Whether OpenSlide, if installed, may read files that the readers of this crate refuse,
    /// except TIFF files that are not from a scanner. These limits bound the sizes of its results,
    /// not its memory or time.
    pub openslide: bool,
    /// Whether libjpeg-turbo, if installed, decodes JPEG.
    pub turbojpeg: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A stack has one for each plane, and more for smaller levels.
            directories: 1 << 14,
            entries: 1024,
            tables: 256 << 20,
            value: 16 << 20,
            profile: 4 << 20,
            stored: 64 << 20,
            tile_pixels: 64 << 20,
            region_pixels: 64 << 20,
            side: 16 << 20,
            files: 4096,
            files_beside: 1 << 16,
            openslide: false,
            turbojpeg: false,
        }
    }
}

impl Limits {
    /// Why a colour profile of so many bytes is not applied; `None` if it may be.
    pub(crate) fn refuse_profile(&self, bytes: u64) -> Option<String> {
        let most = self.profile;
        (bytes > most).then(|| format!("not applied: it has {bytes} bytes, of {most} at most"))
    }
}

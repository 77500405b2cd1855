//! Bounds on what one file may cost.

/// What a file may cost at most. One that asks for more gets [`Error::Limit`](crate::Error::Limit).
#[derive(Debug, Clone)]
pub struct Limits {
    /// Image file directories, in the chain and below it.
    pub directories: usize,
    /// Entries of one directory. Of properties in a description of Aperio, others are left out.
    pub entries: usize,
    /// Bytes of all tables of directories, tile positions and codecs of a file together; in DICOM, of all files
    /// of a series together, and of each the dataset before its pixels, and its JSON.
    pub tables: u64,
    /// Bytes of one text, or table of a codec.
    pub value: u64,
    /// Bytes of a colour profile: it stays in memory, and goes with each image that is made. Those of
    /// scanners have a few hundred thousand. A larger one is left out, as the properties say.
    pub profile: u64,
    /// Compressed bytes of one tile.
    pub stored: u64,
    /// Pixels of one tile after decoding.
    pub tile_pixels: u64,
    /// Pixels of one region, before and after scaling.
    pub region_pixels: u64,
    /// Pixels of a level's width or height.
    pub side: u32,
    /// Files of a directory that are looked at to tell whether it is a series, and images of a group.
    pub files: usize,
    /// Files of a directory in which those of a series are: of each the beginning is read.
    pub files_beside: usize,
    /// Whether OpenSlide is asked, where it is installed, to read files that the readers of this
    /// crate refuse, except TIFF files of no scanner. These limits bound the sizes of what it gives out, not what it does meanwhile.
    pub openslide: bool,
    /// Whether libjpeg-turbo decodes JPEG, where it is installed.
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

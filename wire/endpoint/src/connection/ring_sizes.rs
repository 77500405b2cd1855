//! The size of a ring whose memory lies in a region that many connections share.

use seekwire_link::Room;
use seekwire_transport::layout::Geometry;

/// The wanted size, and smaller ones, the largest first.
pub(super) fn ladder(wanted: Geometry) -> Vec<Geometry> {
    const LEAST_CELLS: u32 = 256;
    const LEAST_SEGMENTS: u32 = 8;
    const LEAST_SIZE: u32 = 4096;
    let (cells, size) = (wanted.cells() as u32, wanted.segment_size() as u32);
    let count = wanted.segments() as u32;
    let smaller = |by: u32| {
        let segments = (count / by).max(LEAST_SEGMENTS);
        // If the minimum number of segments limits the saving, the segments themselves are smaller.
        let size =
            (size / (by * segments / count).max(1)).max(LEAST_SIZE) / LEAST_SIZE * LEAST_SIZE;
        Geometry::new((cells / by).max(LEAST_CELLS.min(cells)), size, segments).ok()
    };
    let mut sizes: Vec<Geometry> = [1, 4, 16, 64, 256].into_iter().filter_map(smaller).collect();
    sizes.dedup();
    sizes
}

/// The sizes to be tried, the largest first: the wanted one, and smaller ones if many connections
/// share the region. Each leaves as much room as it takes to every present connection, and to `FEW`
/// more; but the smallest one is always tried. A larger `FEW` would hardly make room for more
/// connections, and would make the first ones small in a region of usual size.
pub(super) fn sizes(wanted: Geometry, room: Room) -> Vec<Geometry> {
    const FEW: usize = 4;
    let mut sizes = ladder(wanted);
    let share = room.free / (FEW + room.places);
    let smallest = sizes.len().saturating_sub(1);
    let first = sizes.iter().position(|size| size.shown_bytes() <= share).unwrap_or(smallest);
    sizes.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn sizes_with(places: usize, free: usize) -> Vec<Geometry> {
        sizes(Config::of(|_| None).geometry, Room { places, free })
    }

    #[test]
    fn the_more_connections_share_a_region_the_smaller_are_their_rings() {
        let wanted = Config::of(|_| None).geometry;
        let all = sizes_with(0, 1 << 30);
        assert_eq!(all[0], wanted);
        assert!(all.windows(2).all(|pair| pair[0].shown_bytes() > 2 * pair[1].shown_bytes()));
        let smallest = *all.last().unwrap();
        assert!(smallest.shown_bytes() <= 128 << 10, "{smallest:?}");
        assert_eq!(sizes_with(1000, 64 << 20), [smallest]);
        assert_eq!(sizes_with(0, 0), [smallest]);
    }

    #[test]
    fn a_few_connections_have_what_they_want_where_there_is_room() {
        let wanted = Config::of(|_| None).geometry;
        for (half, least) in [(16 << 20, 1), (32 << 20, 4)] {
            let (mut free, mut places) = (half, 0);
            while sizes_with(places, free)[0] == wanted {
                free -= wanted.shown_bytes();
                places += 1;
            }
            assert!(places >= least, "{places} in {half} bytes");
        }
    }

    #[test]
    fn hundreds_of_connections_fit_into_a_half_of_usual_size_and_a_thousand_into_half_a_gibibyte() {
        for (half, least) in [(128 << 20, 300), (512 << 20, 1000)] {
            let (mut free, mut places) = (half, 0);
            while let Some(size) =
                sizes_with(places, free).first().filter(|size| size.shown_bytes() <= free)
            {
                free -= size.shown_bytes();
                places += 1;
            }
            assert!(places > least, "{places} in {half} bytes");
        }
    }
}

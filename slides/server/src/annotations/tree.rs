//! A packed tree of boxes: every node but the last of its level is full, and only the boxes around
//! nodes and the order of their contents are stored. It is built at once, by sorting, cutting into
//! slices and sorting these (sort-tile-recursive: Leutenegger, Lopez and Edgington, ICDE 1997).

/// Left, top, right, bottom.
pub(super) type Bounds = [f32; 4];

/// Maximum entries of a node.
const NODE: usize = 16;

/// Numbered boxes, which the owner of the tree stores.
#[derive(Debug)]
pub(super) struct Tree {
    /// The numbers of the boxes in the order of the leaves.
    order: Vec<u32>,
    /// Boxes around nodes, level by level, from the leaves to the root.
    nodes: Vec<Bounds>,
    /// Where each level begins in `nodes`.
    levels: Vec<usize>,
}

impl Tree {
    /// Maximum bytes per box, and for the tree itself: there is a node for every fifteen boxes, and
    /// at most one more for each level.
    pub(super) const EACH: usize = size_of::<u32>() + size_of::<Bounds>() / 8;
    pub(super) const BESIDES: usize = Self::LEVELS * (size_of::<Bounds>() + size_of::<usize>());
    /// Enough for 32-bit box numbers.
    const LEVELS: usize = 8;

    /// Builds a tree of `count` boxes.
    pub(super) fn new(count: u32, bounds: impl Fn(u32) -> Bounds) -> Self {
        let bounds = &bounds;
        let mut order: Vec<u32> = (0..count).collect();
        let by = |axis: usize| {
            // Twice the middle.
            let middle = move |number: &u32| bounds(*number)[axis] + bounds(*number)[axis + 2];
            move |one: &u32, other: &u32| middle(one).total_cmp(&middle(other)).then(one.cmp(other))
        };
        let leaves = order.len().div_ceil(NODE);
        let slice = NODE * (leaves as f64).sqrt().ceil() as usize;
        order.sort_unstable_by(by(0));
        for slice in order.chunks_mut(slice.max(1)) {
            slice.sort_unstable_by(by(1));
        }
        let mut nodes = Vec::with_capacity(nodes_of(order.len()));
        let leaf = |numbers: &[u32]| around(numbers.iter().map(|number| bounds(*number)));
        nodes.extend(order.chunks(NODE).map(leaf));
        let mut levels = Vec::with_capacity(Self::LEVELS);
        levels.push(0);
        let mut begin = 0;
        while nodes.len() - begin > 1 {
            let end = nodes.len();
            levels.push(end);
            for at in (begin..end).step_by(NODE) {
                let node = around(nodes[at..end.min(at + NODE)].iter().copied());
                nodes.push(node);
            }
            begin = end;
        }
        Self { order, nodes, levels }
    }

    /// Passes the numbers of the boxes that intersect `wanted` to `give`.
    pub(super) fn within(
        &self,
        wanted: Bounds,
        bounds: impl Fn(u32) -> Bounds,
        mut give: impl FnMut(u32),
    ) {
        let mut todo = Vec::new();
        if !self.nodes.is_empty() {
            todo.push((self.levels.len() - 1, 0));
        }
        while let Some((level, at)) = todo.pop() {
            if !intersects(self.nodes[self.levels[level] + at], wanted) {
                continue;
            }
            let (from, to) = (at * NODE, (at + 1) * NODE);
            match level.checked_sub(1) {
                Some(below) => {
                    let count = self.levels[level] - self.levels[below];
                    todo.extend((from..to.min(count)).map(|at| (below, at)));
                }
                None => {
                    let numbers = self.order[from..to.min(self.order.len())].iter().copied();
                    numbers
                        .filter(|number| intersects(bounds(*number), wanted))
                        .for_each(&mut give);
                }
            }
        }
    }

    /// Bytes allocated, without the struct itself.
    pub(super) fn bytes(&self) -> usize {
        self.order.capacity() * size_of::<u32>()
            + self.nodes.capacity() * size_of::<Bounds>()
            + self.levels.capacity() * size_of::<usize>()
    }
}

/// Nodes of all levels for so many boxes.
fn nodes_of(boxes: usize) -> usize {
    let (mut all, mut level) = (0, boxes);
    while level > 1 || (all == 0 && level > 0) {
        level = level.div_ceil(NODE);
        all += level;
    }
    all
}

fn around(all: impl Iterator<Item = Bounds>) -> Bounds {
    let none = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    all.fold(none, |one, other| {
        let [left, top, right, bottom] = one;
        [left.min(other[0]), top.min(other[1]), right.max(other[2]), bottom.max(other[3])]
    })
}

fn intersects(one: Bounds, other: Bounds) -> bool {
    one[0] <= other[2] && other[0] <= one[2] && one[1] <= other[3] && other[1] <= one[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes in a pseudorandom order.
    fn boxes(count: u32) -> Vec<Bounds> {
        let mut seed = 1_u32;
        let mut next = |most: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((seed >> 8) % most) as f32
        };
        let mut one = || {
            let (left, top) = (next(1000), next(1000));
            [left, top, left + next(30), top + next(30)]
        };
        (0..count).map(|_| one()).collect()
    }

    #[test]
    fn a_view_has_the_boxes_that_meet_it_and_no_others() {
        let views = [
            [0.0, 0.0, 2000.0, 2000.0],
            [100.0, 300.0, 180.0, 420.0],
            [500.0, 500.0, 500.0, 500.0],
            [-9.0, -9.0, -1.0, -1.0],
            [f32::MIN, f32::MIN, f32::MAX, f32::MAX],
        ];
        for count in [0, 1, 2, 15, 16, 17, 256, 257, 5000] {
            let boxes = boxes(count);
            let of = |number: u32| boxes[number as usize];
            let tree = Tree::new(count, of);
            assert_eq!(tree.nodes.len(), nodes_of(boxes.len()), "{count}");
            for view in views {
                let mut numbers = Vec::new();
                tree.within(view, of, |number| numbers.push(number));
                numbers.sort_unstable();
                let all: Vec<u32> =
                    (0..count).filter(|number| intersects(of(*number), view)).collect();
                assert_eq!(numbers, all, "{count} {view:?}");
            }
            let most = boxes.len() * Tree::EACH + Tree::BESIDES;
            assert!(tree.bytes() <= most, "{count}: {} of {most}", tree.bytes());
        }
    }
}

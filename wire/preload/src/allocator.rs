//! The library's own memory, independent of the program's malloc.
//!
//! The program may call socket functions in a signal handler that has interrupted its malloc, or
//! this one. So nothing here calls the C library's malloc, and nothing waits: a thread that finds
//! an arena in use, perhaps by itself below the handler, takes the next one, and fresh pages if all
//! are in use. Freed blocks are pushed onto a list that any thread may take as a whole.
//!
//! In Rust, a failed allocation ends the program, which could perhaps have gone on. So there is a
//! reserve for connections that are already tracked; while the kernel provides no memory, no others
//! are tracked ([`is_scarce`]).

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

#[global_allocator]
static MEMORY: Memory =
    Memory { arenas: [const { Arena::new() }; ARENAS], reserve: Reserve::new() };

const ARENAS: usize = 8;
/// Blocks of 16 bytes, 32, 64 and so on.
const CLASSES: usize = 14;
const SMALLEST: usize = 16;
const LARGEST: usize = SMALLEST << (CLASSES - 1);
/// Larger blocks are mapped and unmapped individually; up to [`LARGEST`] the reserve also has some.
const SMALL: usize = 32 << 10;
const PAGE: usize = 4096;
/// Number of bytes that an arena maps at a time.
const CHUNK: usize = 256 << 10;

/// Size of the reserve for when the kernel provides no more. It takes no memory before.
const RESERVE: usize = 2 << 20;

/// A free block.
struct Block {
    next: *mut Block,
}

struct Arena {
    busy: AtomicBool,
    blocks: UnsafeCell<Blocks>,
    freed: [AtomicPtr<Block>; CLASSES],
}

/// The part of an arena that belongs to the thread that has made it busy.
struct Blocks {
    free: [*mut Block; CLASSES],
    /// The rest of the last chunk.
    next: usize,
    end: usize,
}

// SAFETY: only the thread that has set `busy` uses `blocks`; the rest is atomic.
unsafe impl Sync for Arena {}

impl Arena {
    const fn new() -> Arena {
        Arena {
            busy: AtomicBool::new(false),
            blocks: UnsafeCell::new(Blocks { free: [ptr::null_mut(); CLASSES], next: 0, end: 0 }),
            freed: [const { AtomicPtr::new(ptr::null_mut()) }; CLASSES],
        }
    }
}

struct Memory {
    arenas: [Arena; ARENAS],
    reserve: Reserve,
}

#[repr(align(4096))]
struct Reserve {
    space: UnsafeCell<[u8; RESERVE]>,
    used: AtomicUsize,
    is_needed: AtomicBool,
}

// SAFETY: each part of `space` is given to one owner; the rest is atomic.
unsafe impl Sync for Reserve {}

impl Reserve {
    const fn new() -> Reserve {
        Reserve {
            space: UnsafeCell::new([0; RESERVE]),
            used: AtomicUsize::new(0),
            is_needed: AtomicBool::new(false),
        }
    }

    fn holds(&self, block: *mut u8) -> bool {
        block.addr().wrapping_sub(self.space.get().addr()) < RESERVE
    }

    /// A block of this size, which is a power of two.
    fn take(&self, size: usize) -> *mut u8 {
        self.is_needed.store(true, Ordering::Relaxed);
        let base = self.space.get().expose_provenance();
        let align = if size > SMALL { PAGE } else { size };
        let end = |used: usize| {
            let end = (base + used).next_multiple_of(align) - base + size;
            (end <= RESERVE).then_some(end)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
            Ok(before) => ptr::with_exposed_provenance_mut((base + before).next_multiple_of(align)),
            Err(_) => ptr::null_mut(),
        }
    }
}

/// True if the kernel has refused memory, and still does.
pub(crate) fn is_scarce() -> bool {
    let reserve = &MEMORY.reserve;
    if !reserve.is_needed.load(Ordering::Relaxed) {
        return false;
    }
    let trial = map(CHUNK);
    if trial.is_null() {
        return true;
    }
    // SAFETY: just mapped, and unknown to others.
    let _ = unsafe { munmap(trial.cast(), CHUNK) };
    reserve.is_needed.store(false, Ordering::Relaxed);
    false
}

/// The class of blocks for this layout.
fn class(layout: &Layout) -> Option<usize> {
    let size = layout.size().max(layout.align()).max(SMALLEST);
    (size <= LARGEST).then(|| (size.next_power_of_two() / SMALLEST).trailing_zeros() as usize)
}

fn map(len: usize) -> *mut u8 {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory at an address of the kernel's choice.
    let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) };
    base.map_or(ptr::null_mut(), |base| base.cast())
}

/// The arena with which this thread begins.
fn first() -> usize {
    thread_local! {
        static FIRST: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    // It has no destructor, so it exists as long as the thread.
    let place = FIRST.get();
    if place < ARENAS {
        return place;
    }
    let place = THREADS.fetch_add(1, Ordering::Relaxed) % ARENAS;
    FIRST.set(place);
    place
}

impl Memory {
    fn in_order(&self) -> impl Iterator<Item = &Arena> {
        let first = first();
        (0..ARENAS).map(move |place| &self.arenas[(first + place) % ARENAS])
    }

    fn block(&self, class: usize) -> *mut u8 {
        self.of_arena(class).unwrap_or_else(|| {
            let size = SMALLEST << class;
            let pages = map(PAGE.max(size));
            if pages.is_null() { self.reserve.take(size) } else { pages }
        })
    }

    /// `None` if all arenas are busy.
    fn of_arena(&self, class: usize) -> Option<*mut u8> {
        for arena in self.in_order() {
            if arena.busy.swap(true, Ordering::Acquire) {
                continue;
            }
            // SAFETY: this thread has set `busy`.
            let block = unsafe { self.take(&mut *arena.blocks.get(), class) };
            arena.busy.store(false, Ordering::Release);
            return Some(block);
        }
        None
    }

    /// A mapping of its own. If that fails, freed memory of the reserve, or more of the reserve.
    fn large(&self, class: usize, len: usize) -> *mut u8 {
        let pages = map(len);
        if !pages.is_null() {
            return pages;
        }
        self.of_arena(class).unwrap_or_else(|| self.reserve.take(SMALLEST << class))
    }

    fn take(&self, blocks: &mut Blocks, class: usize) -> *mut u8 {
        if blocks.free[class].is_null() {
            let freed = self
                .in_order()
                .map(|arena| &arena.freed[class])
                .find(|freed| !freed.load(Ordering::Relaxed).is_null());
            if let Some(freed) = freed {
                blocks.free[class] = freed.swap(ptr::null_mut(), Ordering::Acquire);
            }
        }
        if let Some(block) = NonNull::new(blocks.free[class]) {
            // SAFETY: a free block, written by `give`.
            blocks.free[class] = unsafe { block.as_ref() }.next;
            return block.as_ptr().cast();
        }
        let size = SMALLEST << class;
        if size > SMALL {
            return self.reserve.take(size);
        }
        let mut at = blocks.next.next_multiple_of(size);
        if at + size > blocks.end {
            let chunk = map(CHUNK);
            if chunk.is_null() {
                return self.reserve.take(size);
            }
            at = chunk.expose_provenance().next_multiple_of(size);
            blocks.end = chunk.addr() + CHUNK;
        }
        blocks.next = at + size;
        ptr::with_exposed_provenance_mut(at)
    }

    fn give(&self, block: *mut u8, class: usize) {
        let block = block.cast::<Block>();
        let freed = &self.arenas[first()].freed[class];
        let mut head = freed.load(Ordering::Relaxed);
        loop {
            // SAFETY: large enough, aligned, and unused until it is on the list.
            unsafe { block.write(Block { next: head }) };
            match freed.compare_exchange_weak(head, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

// SAFETY: blocks are of the size of their class, aligned to it, and belong to one owner at a time;
// so do mappings.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(&layout) {
            Some(class) if SMALLEST << class <= SMALL => self.block(class),
            Some(class) if layout.align() <= PAGE => self.large(class, layout.size()),
            _ if layout.align() > PAGE => ptr::null_mut(),
            _ => map(layout.size()),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(&layout) {
            Some(class) if SMALLEST << class <= SMALL || self.reserve.holds(block) => {
                self.give(block, class)
            }
            // SAFETY: mapped by `alloc` with this size.
            _ => drop(unsafe { munmap(block.cast(), layout.size()) }),
        }
    }
}

//! Hazard pointers: how a call uses the object of an fd while another thread closes that fd.
//!
//! A lookup must cost a few nanoseconds, and two threads that use the two directions of one socket
//! must not contend for a reference count. So a thread announces the object it is about to use in a
//! slot of its own, and checks again that the table still contains it. The thread that removes the
//! object from the table frees it only when no slot names it.
//!
//! The announcement has to be visible before the second check. Instead of a fence in every lookup,
//! the freeing side makes all threads of the process execute one, with membarrier(2) [1]. If the
//! kernel or a sandbox refuses that, lookups fence.
//!
//! [1] M. Michael, "Hazard pointers: safe memory reclamation for lock-free objects", IEEE TPDS
//! 15(6), 2004; the asymmetric fence is that of liburcu and folly.

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Deref;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
use std::sync::{Arc, OnceLock};
use std::{iter, ptr};

use seekwire_transport::sys::call;
use std::time::{Duration, Instant};

/// Slots for objects in use. More than one, because a signal handler can interrupt a call, and
/// because poll looks at several fds.
const USED: usize = 8;
/// Slots that are held only while a reference count is raised.
const BRIEF: usize = 8;

/// The announcements of one thread. Records are never freed; a thread that ends leaves its record
/// to another one.
#[repr(align(128))]
struct Record {
    /// Addresses of objects of any type.
    slots: [AtomicPtr<()>; USED + BRIEF],
    is_used: AtomicBool,
    /// A [`Where`].
    whereabouts: AtomicU8,
    /// The thread that has the record, by its pthread_t.
    thread: AtomicU64,
    /// Whether it is in a cancellation point.
    cancellation: AtomicU8,
    next: AtomicPtr<Record>,
}

/// Where a thread that uses objects is.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Where {
    /// In the library, or asleep for it.
    Inside = 0,
    /// In the application's own kernel call, and in the library again after that.
    Outside = 1,
    /// On its way out: it waits for permission to make the application's own call.
    Waiting = 2,
}

static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());
/// Set once membarrier is registered; until then lookups fence for themselves.
static ASYMMETRIC: AtomicBool = AtomicBool::new(false);

/// Number of retired objects that are worth a pass over all records.
const BATCH: usize = 64;

/// An object that can be retired: it has a place for a list link.
pub(crate) trait Retire: Sized {
    /// The link, which belongs to the [`Domain`] from the retirement on.
    fn next_retired(&self) -> &AtomicPtr<Self>;
}

/// The retired objects of one kind. There is one domain per process: if a fence is refused, it
/// forgets its objects.
pub(crate) struct Domain<T> {
    retired: AtomicPtr<T>,
    waiting: AtomicUsize,
}

thread_local! {
    static RECORD: Cell<*const Record> = const { Cell::new(ptr::null()) };
}

/// Its destructor gives the thread's record to others when the thread ends. A thread-local value
/// would not do, because registering its destructor calls malloc, which a signal handler may have
/// interrupted.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

extern "C" fn leave(record: *mut c_void) {
    RECORD.set(ptr::null());
    // SAFETY: records are never freed, and the key never has another value.
    if let Some(record) = unsafe { record.cast::<Record>().as_ref() } {
        // Left by calls that a handler has left with siglongjmp.
        record.slots.iter().for_each(|slot| slot.store(ptr::null_mut(), Ordering::Relaxed));
        record.is_used.store(false, Ordering::Release);
    }
}

/// Asks the kernel for the asymmetric fence. Call it once, before there are threads if possible.
pub(crate) fn start() {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: writes to a live key; the destructor lives as long as the library, which is never
        // unloaded.
        unsafe { libc::pthread_key_create(&raw mut key, Some(leave)) };
        key
    });
    ASYMMETRIC.store(membarrier(REGISTER_PRIVATE_EXPEDITED), Ordering::SeqCst);
}

const PRIVATE_EXPEDITED: usize = 1 << 3;

fn membarrier(command: usize) -> bool {
    // SAFETY: membarrier takes three integers and touches no memory of ours.
    unsafe { call(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }.is_ok()
}

/// When this returns true, every thread of this process has executed a full fence.
fn heavy_fence() -> bool {
    if ASYMMETRIC.load(Ordering::Relaxed) && !membarrier(PRIVATE_EXPEDITED) {
        // Registered but refused: the process has entered a sandbox since. From now on lookups
        // fence.
        ASYMMETRIC.store(false, Ordering::SeqCst);
        return false;
    }
    fence(Ordering::SeqCst);
    true
}

#[inline]
fn light_fence() {
    if ASYMMETRIC.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst)
    } else {
        fence(Ordering::SeqCst)
    }
}

#[inline]
fn record() -> &'static Record {
    let record = RECORD.get();
    // SAFETY: records are never freed.
    unsafe { record.as_ref() }.unwrap_or_else(|| enter())
}

#[cold]
fn enter() -> &'static Record {
    if let Some(record) = records().find(|record| !record.is_used.swap(true, Ordering::Acquire)) {
        return adopt(record);
    }
    let record: &'static Record = Box::leak(Box::new(Record {
        slots: [const { AtomicPtr::new(ptr::null_mut()) }; USED + BRIEF],
        is_used: AtomicBool::new(true),
        whereabouts: AtomicU8::new(Where::Inside as u8),
        thread: AtomicU64::new(0),
        cancellation: AtomicU8::new(0),
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let mut head = RECORDS.load(Ordering::Relaxed);
    loop {
        record.next.store(head, Ordering::Relaxed);
        match RECORDS.compare_exchange_weak(
            head,
            ptr::from_ref(record).cast_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => return adopt(record),
            Err(now) => head = now,
        }
    }
}

fn adopt(record: &'static Record) -> &'static Record {
    record.whereabouts.store(Where::Inside as u8, Ordering::Relaxed);
    record.cancellation.store(0, Ordering::Relaxed);
    // SAFETY: takes nothing and always succeeds.
    record.thread.store(unsafe { libc::pthread_self() }, Ordering::Release);
    RECORD.set(record);
    if let Some(key) = KEY.get() {
        // SAFETY: a key of this library's. Should it fail, the record stays taken, which wastes it
        // and nothing else.
        unsafe { libc::pthread_setspecific(*key, ptr::from_ref(record).cast()) };
    }
    record
}

/// An object that stays valid while this exists.
pub(crate) enum Hazard<T> {
    /// Announced in a slot of this thread, so this cannot be sent to another thread.
    Announced(&'static AtomicPtr<()>, *const T),
    /// All slots were in use.
    Counted(Arc<T>),
}

impl<T> Hazard<T> {
    /// A counted reference to the same object.
    pub(crate) fn share(&self) -> Arc<T> {
        match self {
            Hazard::Announced(_, object) => {
                // SAFETY: the pointer came from Arc::into_raw, and the reference that the table
                // held is not dropped while it is announced.
                unsafe {
                    Arc::increment_strong_count(*object);
                    Arc::from_raw(*object)
                }
            }
            Hazard::Counted(object) => Arc::clone(object),
        }
    }
}

impl<T> Deref for Hazard<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            // SAFETY: `protect` saw the object in the table after it was announced, so it was not
            // retired before the announcement and is not freed until the slot is cleared in `drop`.
            Hazard::Announced(_, object) => unsafe { &**object },
            Hazard::Counted(object) => object,
        }
    }
}

impl<T> Drop for Hazard<T> {
    #[inline]
    fn drop(&mut self) {
        if let Hazard::Announced(slot, _) = self {
            slot.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// The object that `cell` holds now.
#[inline]
pub(crate) fn protect<T>(cell: &AtomicPtr<T>) -> Option<Hazard<T>> {
    let record = record();
    // Only this thread and its signal handlers write here, and a handler restores the slots.
    let index = record.slots.iter().position(|slot| slot.load(Ordering::Relaxed).is_null())?;
    let slot = &record.slots[index];
    if index == 0 {
        // Another call that was left with siglongjmp may have set something else.
        record.whereabouts.store(Where::Inside as u8, Ordering::Relaxed);
    }
    let mut object = cell.load(Ordering::Acquire);
    loop {
        slot.store(object.cast(), Ordering::Release);
        light_fence();
        let again = cell.load(Ordering::Acquire);
        if again == object {
            break;
        }
        object = again;
    }
    if object.is_null() {
        return None;
    }
    let hazard = Hazard::Announced(slot, object);
    // At the end of this function `hazard` frees the brief slot again.
    if index < USED { Some(hazard) } else { Some(Hazard::Counted(hazard.share())) }
}

impl<T: Retire> Domain<T> {
    pub(crate) const fn new() -> Self {
        Self { retired: AtomicPtr::new(ptr::null_mut()), waiting: AtomicUsize::new(0) }
    }

    /// Takes over the table's last reference to an object, and drops it when no thread can be using
    /// it.
    ///
    /// Does not allocate and takes no lock, because signal handlers call close.
    pub(crate) fn retire(&self, object: Arc<T>) {
        self.push(Arc::into_raw(object).cast_mut());
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    fn push(&self, object: *mut T) {
        let mut head = self.retired.load(Ordering::Relaxed);
        loop {
            // SAFETY: this function owns a reference to the object until the exchange succeeds.
            unsafe { (*object).next_retired().store(head, Ordering::Relaxed) };
            match self.retired.compare_exchange_weak(
                head,
                object,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// True if [`Domain::reclaim`] is worth its system call: many objects wait, or one that holds
    /// much memory.
    #[inline]
    pub(crate) fn is_due(&self, eager: bool) -> bool {
        eager || self.waiting.load(Ordering::Relaxed) >= BATCH
    }

    /// Frees the retired objects that no thread uses.
    #[cold]
    pub(crate) fn reclaim(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        let mut object = self.retired.swap(ptr::null_mut(), Ordering::Acquire);
        if !self.heavy_fence() {
            return;
        }
        while !object.is_null() {
            // SAFETY: the list that was swapped out belongs to this call; each node holds one
            // reference.
            let next = unsafe { (*object).next_retired().load(Ordering::Relaxed) };
            if announced(object) {
                self.push(object);
                self.waiting.fetch_add(1, Ordering::Relaxed);
            } else {
                // SAFETY: the reference that `retire` took over. No slot names the object, and none
                // will, because a lookup that announces it from now on finds that the table has no
                // more of it.
                drop(unsafe { Arc::from_raw(object) });
            }
            object = next;
        }
    }

    /// Waits until the calls of other threads on `object` are only those that sleep there. Limited
    /// in time, because a call may have been interrupted by a signal handler that waits for this
    /// very thread.
    pub(crate) fn wait_for_others(&self, object: *const T, asleep: impl Fn() -> usize) {
        const STRAGGLER_LIMIT: Duration = Duration::from_millis(100);
        if !self.heavy_fence() {
            return;
        }
        let mut until = None;
        while number_of_others(object) > asleep() {
            if *until.get_or_insert_with(|| Instant::now() + STRAGGLER_LIMIT) <= Instant::now() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// The objects that are retired but not freed yet, as shared references.
    pub(crate) fn rest(&self) -> Vec<Arc<T>> {
        let mut rest = Vec::new();
        let mut object = self.retired.swap(ptr::null_mut(), Ordering::Acquire);
        while !object.is_null() {
            // SAFETY: the list that was swapped out belongs to this call; each node holds one
            // reference, which goes back with it.
            unsafe {
                let next = (*object).next_retired().load(Ordering::Relaxed);
                Arc::increment_strong_count(object);
                rest.push(Arc::from_raw(object));
                self.push(object);
                object = next;
            }
        }
        rest
    }

    /// See the function of that name. If it is refused, lookups in progress have not fenced, and it
    /// is unknown when they finish: the objects retired so far are never freed.
    fn heavy_fence(&self) -> bool {
        let is_passed = heavy_fence();
        if !is_passed {
            self.retired.store(ptr::null_mut(), Ordering::SeqCst);
        }
        is_passed
    }
}

/// Makes the application's own kernel call.
#[inline]
pub(crate) fn outside<T>(call: impl FnOnce() -> T) -> T {
    being(Where::Outside, call)
}

/// Runs `work`, in which this thread is at `place` for [`are_all`] and [`is_used_inside`].
#[inline]
pub(crate) fn being<T>(place: Where, work: impl FnOnce() -> T) -> T {
    // SAFETY: records are never freed.
    let Some(record) = (unsafe { RECORD.get().as_ref() }) else { return work() };
    // A handler that interrupts the call finds the thread there, and leaves it there.
    let before = record.whereabouts.load(Ordering::Relaxed);
    record.whereabouts.store(place as u8, Ordering::Release);
    let _back = Back(record, before);
    work()
}

/// Restores where a thread was, even if it is unwound.
struct Back(&'static Record, u8);

impl Drop for Back {
    #[inline]
    fn drop(&mut self) {
        self.0.whereabouts.store(self.1, Ordering::Release);
        // The thread's next step depends on what others have done after finding it there.
        light_fence();
    }
}

/// True if every other thread that uses objects is at one of these places.
pub(crate) fn are_all(places: &[Where]) -> bool {
    fence(Ordering::SeqCst);
    if ASYMMETRIC.load(Ordering::Relaxed) {
        // If this is refused now, a thread that has just come back may still be seen where it was.
        membarrier(PRIVATE_EXPEDITED);
    }
    others().all(|record| {
        places.iter().any(|place| *place as u8 == record.whereabouts.load(Ordering::Acquire))
            || record.slots.iter().all(|slot| slot.load(Ordering::Acquire).is_null())
    })
}

/// True if another thread uses `object` inside the library.
pub(crate) fn is_used_inside<T>(object: *const T) -> bool {
    others().any(|record| {
        record.whereabouts.load(Ordering::Acquire) == Where::Inside as u8
            && record.announces(object)
    })
}

/// True if `thread` uses `object` in a call now.
pub(crate) fn is_used_by<T>(thread: libc::pthread_t, object: *const T) -> bool {
    record_of(thread).is_some_and(|record| record.announces(object))
}

fn record_of(thread: libc::pthread_t) -> Option<&'static Record> {
    records().find(|record| {
        record.is_used.load(Ordering::Acquire) && record.thread.load(Ordering::Acquire) == thread
    })
}

/// The word in which `cancel` keeps whether this thread is in a cancellation point.
pub(crate) fn own_cancellation() -> &'static AtomicU8 {
    &record().cancellation
}

/// The same word of another thread.
pub(crate) fn cancellation_of(thread: libc::pthread_t) -> Option<&'static AtomicU8> {
    record_of(thread).map(|record| &record.cancellation)
}

fn number_of_others<T>(object: *const T) -> usize {
    others().map(|record| record.number(object)).sum()
}

fn announced<T>(object: *const T) -> bool {
    records().any(|record| record.announces(object))
}

impl Record {
    fn announces<T>(&self, object: *const T) -> bool {
        self.number(object) > 0
    }

    /// Number of slots that name the object.
    fn number<T>(&self, object: *const T) -> usize {
        let names_it = |slot: &&AtomicPtr<()>| ptr::addr_eq(slot.load(Ordering::Acquire), object);
        self.slots.iter().filter(names_it).count()
    }
}

/// Every record.
fn records() -> impl Iterator<Item = &'static Record> {
    // SAFETY: records are never freed.
    let first = unsafe { RECORDS.load(Ordering::Acquire).as_ref() };
    iter::successors(first, |record| {
        // SAFETY: as above.
        unsafe { record.next.load(Ordering::Relaxed).as_ref() }
    })
}

/// Every record but this thread's.
fn others() -> impl Iterator<Item = &'static Record> {
    let own = RECORD.get();
    records().filter(move |record| !ptr::eq(*record, own))
}

/// In the child of a fork: the announcements of the other threads do not count.
pub(crate) fn after_fork_child() {
    for record in others() {
        for slot in &record.slots {
            slot.store(ptr::null_mut(), Ordering::Relaxed);
        }
        record.is_used.store(false, Ordering::Relaxed);
    }
    // On some kernels a child does not inherit the registration.
    start();
}

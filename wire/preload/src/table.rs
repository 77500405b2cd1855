//! The table that maps fd numbers to objects.
//!
//! It has two levels, so that a process pays only for the range of numbers that it uses. An entry
//! holds one reference to its object; entries for duplicates of an fd share the object.

use std::any::Any;
use std::ffi::c_int;
use std::ops::Deref;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use seekwire_transport::sys::socket as kernel;

use crate::epoll::set;
use crate::epoll::watch::SocketHandle;
use crate::fd_numbers::Numbers;
use crate::hazard::{self, Domain, Retire};
use crate::lock::Lock;
use crate::registration::PlaceOfSet;
use crate::socket::Socket;
use crate::uring::Uring;

const LEAF: usize = 1024;
const LEAVES: usize = 1024;

type Leaf = [AtomicPtr<Object>; LEAF];

static ROOT: [AtomicPtr<Leaf>; LEAVES] = [const { AtomicPtr::new(ptr::null_mut()) }; LEAVES];

/// The highest number that was ever entered, plus 1.
static END: AtomicUsize = AtomicUsize::new(0);

/// Objects that were removed from the table, and may still be in use.
pub(crate) static RETIRED: Domain<Object> = Domain::new();

/// An epoll set of the table's sockets.
pub(crate) type Set = set::EpollSet<SharedSocket>;

/// A lookup and the object that it found.
pub(crate) type ObjectRef = hazard::Hazard<Object>;

/// The object behind an fd of this process, if the library takes part in it.
pub(crate) struct Object {
    /// Link in the list of objects that wait to be freed.
    next_retired: AtomicPtr<Object>,
    kind: Kind,
}

// The kinds differ in size, but almost all objects are sockets.
#[allow(clippy::large_enum_variant)]
enum Kind {
    Socket(Socket),
    Set(Set),
    Uring(Uring),
}

impl Retire for Object {
    fn next_retired(&self) -> &AtomicPtr<Object> {
        &self.next_retired
    }
}

impl Object {
    pub(crate) fn socket(socket: Socket) -> Arc<Object> {
        Arc::new(Object {
            next_retired: AtomicPtr::new(ptr::null_mut()),
            kind: Kind::Socket(socket),
        })
    }

    pub(crate) fn set(set: Set) -> Arc<Object> {
        Arc::new(Object { next_retired: AtomicPtr::new(ptr::null_mut()), kind: Kind::Set(set) })
    }

    pub(crate) fn uring(uring: Uring) -> Arc<Object> {
        Arc::new(Object { next_retired: AtomicPtr::new(ptr::null_mut()), kind: Kind::Uring(uring) })
    }

    /// The fd numbers of this process for the object.
    pub(crate) fn numbers(&self) -> &Lock<Numbers> {
        match &self.kind {
            Kind::Socket(socket) => socket.numbers(),
            Kind::Set(set) => set.numbers(),
            Kind::Uring(uring) => uring.numbers(),
        }
    }

    /// True if `fd` is the number under which the object is visited; it may have others.
    pub(crate) fn is_known_by(&self, fd: c_int) -> bool {
        self.numbers().lock_in_handler().is_some_and(|numbers| numbers.any() == Some(fd))
    }

    #[inline]
    pub(crate) fn as_socket(&self) -> Option<&Socket> {
        match &self.kind {
            Kind::Socket(socket) => Some(socket),
            Kind::Set(_) | Kind::Uring(_) => None,
        }
    }

    #[inline]
    pub(crate) fn as_set(&self) -> Option<&Set> {
        match &self.kind {
            Kind::Set(set) => Some(set),
            Kind::Socket(_) | Kind::Uring(_) => None,
        }
    }

    fn as_uring(&self) -> Option<&Uring> {
        match &self.kind {
            Kind::Uring(uring) => Some(uring),
            Kind::Socket(_) | Kind::Set(_) => None,
        }
    }
}

macro_rules! typed {
    ($(#[$meta:meta])* $reference:ident, $arc:ident, $target:ty, $as:ident $(, $number:ty)?) => {
        $(#[$meta])*
        pub(crate) struct $reference(ObjectRef $(, $number)?);

        impl $reference {
            /// A counted reference to the same object.
            pub(crate) fn share(&self) -> $arc {
                $arc(self.0.share())
            }
        }

        impl Deref for $reference {
            type Target = $target;

            #[inline]
            fn deref(&self) -> &$target {
                self.0.$as().expect("the kind was tested when this was made, and never changes")
            }
        }

        $(#[$meta])*
        #[derive(Clone)]
        pub(crate) struct $arc(Arc<Object>);

        impl $arc {
            pub(crate) fn into_object(self) -> Arc<Object> {
                self.0
            }

        }

        impl Deref for $arc {
            type Target = $target;

            #[inline]
            fn deref(&self) -> &$target {
                self.0.$as().expect("the kind was tested when this was made, and never changes")
            }
        }
    };
}

typed!(
    /// A tracked socket.
    SocketRef,
    SharedSocket,
    Socket,
    as_socket,
    c_int
);
impl SocketRef {
    /// The number with which it was looked up.
    pub(crate) fn number(&self) -> c_int {
        self.1
    }
}

typed!(
    /// An epoll set.
    SetRef,
    SharedSet,
    Set,
    as_set
);

typed!(
    /// An io_uring.
    UringRef,
    SharedUring,
    Uring,
    as_uring
);

#[inline]
fn entry(fd: c_int) -> Option<&'static AtomicPtr<Object>> {
    // Negative numbers become numbers that are too large.
    let number = fd as usize;
    let leaf = ROOT.get(number / LEAF)?.load(Ordering::Acquire);
    // SAFETY: a leaf is never freed.
    unsafe { leaf.as_ref() }.map(|leaf| &leaf[number % LEAF])
}

/// The object behind `fd`.
#[inline]
pub(crate) fn get(fd: c_int) -> Option<ObjectRef> {
    let entry = entry(fd)?;
    if entry.load(Ordering::Relaxed).is_null() {
        return None;
    }
    hazard::protect(entry)
}

/// True if there is an entry for `fd`.
#[inline]
pub(crate) fn is_entered(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| !entry.load(Ordering::Relaxed).is_null())
}

/// The object behind an fd.
pub(crate) enum TableEntry {
    /// A tracked socket.
    Socket(SocketRef),
    /// An epoll set.
    Set(SetRef),
    /// An io_uring.
    Uring(UringRef),
}

/// The object behind `fd`, if the library takes part in it.
#[inline]
pub(crate) fn lookup(fd: c_int) -> Option<TableEntry> {
    let object = get(fd)?;
    Some(match &object.kind {
        Kind::Socket(_) => TableEntry::Socket(SocketRef(object, fd)),
        Kind::Set(_) => TableEntry::Set(SetRef(object)),
        Kind::Uring(_) => TableEntry::Uring(UringRef(object)),
    })
}

/// The tracked socket behind `fd`.
#[inline]
pub(crate) fn socket(fd: c_int) -> Option<SocketRef> {
    let object = get(fd)?;
    object.as_socket().is_some().then(|| SocketRef(object, fd))
}

/// The tracked socket with the kernel's identity `of`, if it is one of those that are `looked_at`.
pub(crate) fn socket_of(of: (u64, u64), looked_at: impl Fn(&Socket) -> bool) -> Option<SocketRef> {
    let is_it = |socket: &SocketRef| {
        looked_at(socket) && kernel::identity(socket.connection.fd()) == Some(of)
    };
    numbers().filter_map(socket).find(is_it)
}

/// The io_uring behind `fd`.
pub(crate) fn uring(fd: c_int) -> Option<UringRef> {
    let object = get(fd)?;
    object.as_uring().is_some().then(|| UringRef(object))
}

impl SocketHandle for SharedSocket {}

/// The epoll set behind `fd`.
#[inline]
pub(crate) fn set(fd: c_int) -> Option<SetRef> {
    let object = get(fd)?;
    object.as_set().is_some().then(|| SetRef(object))
}

/// Enters `object` for `fd`, and returns the previous object: its fd was closed where the library
/// could not see it. A number beyond the table is ignored.
pub(crate) fn insert(fd: c_int, object: Arc<Object>) -> Option<Arc<Object>> {
    let number = fd as usize;
    let root = ROOT.get(number / LEAF)?;
    let mut leaf = root.load(Ordering::Acquire);
    if leaf.is_null() {
        let fresh: Box<Leaf> = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; LEAF]);
        let fresh = Box::into_raw(fresh);
        match root.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => leaf = fresh,
            Err(theirs) => {
                // SAFETY: it came from Box::into_raw and was not published.
                drop(unsafe { Box::from_raw(fresh) });
                leaf = theirs;
            }
        }
    }
    END.fetch_max(number + 1, Ordering::AcqRel);
    // SAFETY: a leaf is never freed.
    let entry = unsafe { &(&*leaf)[number % LEAF] };
    reference(entry.swap(Arc::into_raw(object).cast_mut(), Ordering::AcqRel))
}

impl SetRef {
    /// A reference that identifies this set.
    pub(crate) fn place(&self) -> PlaceOfSet {
        let object: Arc<dyn Any + Send + Sync> = self.0.share();
        Arc::downgrade(&object)
    }

    /// True if `place` refers to this set.
    pub(crate) fn is(&self, place: &PlaceOfSet) -> bool {
        ptr::addr_eq(place.as_ptr(), &raw const *self.0)
    }
}

impl SharedSet {
    /// True if `place` refers to this set.
    pub(crate) fn is(&self, place: &PlaceOfSet) -> bool {
        ptr::addr_eq(place.as_ptr(), Arc::as_ptr(&self.0))
    }

    /// The set to which `place` refers, if it still exists.
    pub(crate) fn find(place: &PlaceOfSet) -> Option<SharedSet> {
        let object = place.upgrade()?.downcast::<Object>().ok()?;
        object.as_set().is_some().then(|| SharedSet(object))
    }
}

/// Removes the entry of `fd`. The caller must hand the object to [`RETIRED`].
pub(crate) fn remove(fd: c_int) -> Option<Arc<Object>> {
    reference(entry(fd)?.swap(ptr::null_mut(), Ordering::AcqRel))
}

fn reference(object: *mut Object) -> Option<Arc<Object>> {
    // SAFETY: entries hold pointers from Arc::into_raw, each with one reference, and the swap gave
    // this one to us.
    (!object.is_null()).then(|| unsafe { Arc::from_raw(object) })
}

/// Empties the table for good, as if nothing had ever been entered.
pub(crate) fn close_up() {
    END.store(0, Ordering::Release);
}

/// True if no object was ever entered.
#[inline]
pub(crate) fn is_unused() -> bool {
    END.load(Ordering::Relaxed) == 0
}

/// All numbers that may have an entry.
pub(crate) fn numbers() -> std::ops::Range<c_int> {
    0..END.load(Ordering::Acquire) as c_int
}

/// Every entry, with its number.
pub(crate) fn entries() -> impl Iterator<Item = (c_int, ObjectRef)> {
    numbers().filter_map(|fd| get(fd).map(|object| (fd, object)))
}

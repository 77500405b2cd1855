use seekwire_protocol::Carrier;
use seekwire_transport::sys::poll::Deadline;

use crate::connection::seek::pair::{LONG, Pair, send};
use crate::connection::types::Interest;

#[test]
fn who_waits_while_the_connection_attaches_is_woken_by_the_ring() {
    let pair = Pair::plain();
    let (from, to) = (&pair.from, &pair.to);
    // The next call of the other end attaches it.
    loop {
        from.hurry();
        if from.data_path.get().is_some() {
            break;
        }
        to.hurry();
    }
    assert!(!to.is_attached());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !to.is_attached() || from.next_carrier() != Ok(Carrier::Ring) {
                std::thread::yield_now();
            }
            send(from, b"x");
        });
        let read = Interest { read: true, ..Interest::default() };
        assert_eq!(to.wait(read, Deadline::after(Some(LONG))), Ok(()));
    });
}

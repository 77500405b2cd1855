//! Performs work once for all concurrent requests for the same thing.
//!
//! The first request begins a [`Flight`]; requests during the flight get a [`Ticket`] for its
//! result. When the last ticket is dropped because the clients have disconnected, the flight is no
//! longer wanted; this is decided under the same lock under which others join. The lock is held
//! only for that, so work for one key does not delay requests for another.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

/// The flights under way, by key.
pub(crate) struct Flights<K, V> {
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    under_way: HashMap<K, Entry<V>>,
    next: u64,
}

struct Entry<V> {
    number: u64,
    tickets: usize,
    result: watch::Sender<Option<V>>,
    unwanted: Arc<Notify>,
}

/// How a request gets its answer.
pub(crate) enum Joined<K: Hash + Eq + Clone, V> {
    /// It is available already.
    Ready(V),
    /// A flight is under way.
    Later(Ticket<K, V>),
    /// The caller must fetch it.
    First(Ticket<K, V>, Flight<K, V>),
}

impl<K: Hash + Eq + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { under_way: HashMap::new(), next: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the flight for `key` if there is one; otherwise begins it, unless `ready` finds a
    /// result that an earlier flight stored in [`Flight::land`].
    pub(crate) fn join(
        self: &Arc<Self>,
        key: &K,
        ready: impl FnOnce() -> Option<V>,
    ) -> Joined<K, V> {
        let mut state = self.state();
        if let Some(entry) = state.under_way.get_mut(key) {
            entry.tickets += 1;
            let result = entry.result.subscribe();
            return Joined::Later(self.ticket(key, entry.number, result));
        }
        if let Some(value) = ready() {
            return Joined::Ready(value);
        }
        let number = state.next;
        state.next += 1;
        let (sender, result) = watch::channel(None);
        let unwanted = Arc::new(Notify::new());
        let entry = Entry { number, tickets: 1, result: sender, unwanted: Arc::clone(&unwanted) };
        state.under_way.insert(key.clone(), entry);
        drop(state);
        let flight = Flight { flights: Arc::clone(self), key: key.clone(), number, unwanted };
        Joined::First(self.ticket(key, number, result), flight)
    }

    fn ticket(
        self: &Arc<Self>,
        key: &K,
        number: u64,
        result: watch::Receiver<Option<V>>,
    ) -> Ticket<K, V> {
        Ticket { flights: Arc::clone(self), key: key.clone(), number, result }
    }
}

impl<K: Hash + Eq, V> State<K, V> {
    /// Ends that flight if it is still under way and `condition` holds.
    fn end(&mut self, key: &K, number: u64, condition: fn(&Entry<V>) -> bool) -> Option<Entry<V>> {
        let entry = self.under_way.get(key)?;
        if entry.number != number || !condition(entry) {
            return None;
        }
        self.under_way.remove(key)
    }
}

/// A claim to the result of a flight, released on drop.
pub(crate) struct Ticket<K: Hash + Eq + Clone, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
    number: u64,
    result: watch::Receiver<Option<V>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Ticket<K, V> {
    /// Waits for the result; `None` if the flight ended without one.
    pub(crate) async fn wait(mut self) -> Option<V> {
        let result = self.result.wait_for(Option::is_some).await.ok()?;
        result.clone()
    }
}

impl<K: Hash + Eq + Clone, V> Drop for Ticket<K, V> {
    fn drop(&mut self) {
        let mut state = self.flights.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = state.under_way.get_mut(&self.key);
        if let Some(entry) = entry.filter(|entry| entry.number == self.number) {
            entry.tickets -= 1;
            if entry.tickets == 0 {
                entry.unwanted.notify_one();
            }
        }
    }
}

/// The duty to fetch a result. If it is dropped, the ticket holders learn that there is none.
pub(crate) struct Flight<K: Hash + Eq + Clone, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
    number: u64,
    unwanted: Arc<Notify>,
}

impl<K: Hash + Eq + Clone, V: Clone> Flight<K, V> {
    /// Ends the flight and returns true if there are no tickets: the next request begins another
    /// one. If this returns false, the flight continues whatever happens to the tickets, unless
    /// this is called again.
    pub(crate) fn ends_unwanted(&self) -> bool {
        let mut state = self.flights.state();
        state.end(&self.key, self.number, |entry| entry.tickets == 0).is_some()
    }

    /// Waits until it [has ended](Self::ends_unwanted) because there were no tickets.
    pub(crate) async fn until_unwanted(&self) {
        loop {
            self.unwanted.notified().await;
            if self.ends_unwanted() {
                return;
            }
        }
    }

    /// Delivers the result to all ticket holders. `keep` is called before any other request can
    /// begin a flight, so later requests find the result.
    pub(crate) fn land(&self, value: V, keep: impl FnOnce()) {
        let mut state = self.flights.state();
        keep();
        let entry = state.end(&self.key, self.number, |_| true);
        drop(state);
        if let Some(entry) = entry {
            entry.result.send_replace(Some(value));
        }
    }
}

impl<K: Hash + Eq + Clone, V> Drop for Flight<K, V> {
    fn drop(&mut self) {
        let mut state = self.flights.state.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = state.end(&self.key, self.number, |_| true);
        // The sender notifies others, without the lock.
        drop(state);
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flights() -> Arc<Flights<u8, u32>> {
        Arc::new(Flights::new())
    }

    fn none() -> Option<u32> {
        None
    }

    #[tokio::test]
    async fn all_get_the_result_of_the_first() {
        let flights = flights();
        let Joined::First(first, flight) = flights.join(&1, none) else { panic!("not the first") };
        let Joined::Later(second) = flights.join(&1, none) else { panic!("not the second") };
        let Joined::First(..) = flights.join(&2, none) else { panic!("another key waits") };
        let mut kept = None;
        flight.land(7, || kept = Some(7));
        assert_eq!((first.wait().await, second.wait().await), (Some(7), Some(7)));
        let Joined::Ready(7) = flights.join(&1, || kept) else { panic!("not kept") };
        assert!(flights.state().under_way.is_empty());
    }

    #[tokio::test]
    async fn a_flight_that_nobody_wants_ends_and_another_can_begin() {
        let flights = flights();
        let Joined::First(first, flight) = flights.join(&1, none) else { panic!("not the first") };
        let Joined::Later(second) = flights.join(&1, none) else { panic!("not the second") };
        drop(first);
        assert!(!flight.ends_unwanted());
        drop(second);
        // A request joins in time.
        let Joined::Later(third) = flights.join(&1, none) else { panic!("it has ended") };
        assert!(!flight.ends_unwanted());
        drop(third);
        flight.until_unwanted().await;
        let Joined::First(other, next) = flights.join(&1, none) else { panic!("it is there") };
        // The old flight does not disturb the new one.
        drop(flight);
        next.land(3, || {});
        assert_eq!(other.wait().await, Some(3));
    }

    #[tokio::test]
    async fn the_end_without_a_result_is_reported() {
        let flights = flights();
        let Joined::First(ticket, flight) = flights.join(&1, none) else { panic!("not the first") };
        drop(flight);
        assert_eq!(ticket.wait().await, None);
    }
}

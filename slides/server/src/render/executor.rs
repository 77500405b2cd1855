//! Work in this process: a bounded number of jobs at a time, on tokio's blocking threads.
//!
//! A thread that has done a job takes the next one that waits. So a job is handed to a thread and
//! back if there is one to spare, and otherwise wakes nobody.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Something to do in a thread.
pub(crate) type LocalJob = Box<dyn FnOnce() + Send>;

/// Does at most so many jobs at a time, in the order in which they came.
pub(crate) struct Executor {
    state: Mutex<State>,
}

struct State {
    /// Number of threads that may begin to work.
    free: usize,
    /// Empty if a thread may begin.
    waiting: VecDeque<LocalJob>,
}

impl Executor {
    /// Allows `threads` jobs at a time.
    pub(crate) fn new(threads: usize) -> Self {
        Self { state: Mutex::new(State { free: threads, waiting: VecDeque::new() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a job in a blocking thread of the current tokio runtime.
    pub(crate) fn spawn(self: &Arc<Self>, job: LocalJob) {
        if let Some(job) = self.begin(job) {
            let executor = Arc::clone(self);
            drop(tokio::task::spawn_blocking(move || executor.work(job)));
        }
    }

    /// Does a job in this thread, which can block, or leaves it to one that is working.
    pub(crate) fn run(&self, job: LocalJob) {
        if let Some(job) = self.begin(job) {
            self.work(job);
        }
    }

    /// Returns the job if the caller may begin with it.
    fn begin(&self, job: LocalJob) -> Option<LocalJob> {
        let mut state = self.state();
        if state.free == 0 {
            state.waiting.push_back(job);
            return None;
        }
        state.free -= 1;
        Some(job)
    }

    /// Does a job, and those that wait by then.
    fn work(&self, job: LocalJob) {
        let mut next = Some(job);
        while let Some(job) = next {
            // Whoever waits for a job that panics learns that it is gone.
            let _ = catch_unwind(AssertUnwindSafe(job));
            let mut state = self.state();
            next = state.waiting.pop_front();
            state.free += usize::from(next.is_none());
        }
    }
}

/// Bounds and times one kind of work in this process. Each copy of a pipeline may run in a thread
/// of its own, because copies at workers do the work here that cannot be done there; and while a
/// pipeline comes or goes, both it and an [`Executor`] have work.
pub(crate) struct Here {
    /// Number of threads that may begin to work.
    free: Mutex<usize>,
    is_free: Condvar,
    /// Nanoseconds spent on work.
    pub(crate) busy: AtomicU64,
}

impl Here {
    /// Allows `most` threads to work at a time.
    pub(crate) fn new(most: usize) -> Self {
        Self { free: Mutex::new(most), is_free: Condvar::new(), busy: AtomicU64::new(0) }
    }

    /// Works when the turn comes. A panic is caught: it would end all other work as well.
    pub(crate) fn work<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = self.is_free.wait_while(free(), |free| *free == 0);
        *wait.unwrap_or_else(PoisonError::into_inner) -= 1;
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.busy.fetch_add(took, Ordering::Relaxed);
        *free() += 1;
        self.is_free.notify_one();
        outcome.unwrap_or_else(|_| Err("the decoder panicked".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    #[test]
    fn no_more_than_that_work_here_at_a_time() {
        let here = Here::new(2);
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 0..8_u8 {
                let (here, now, most) = (&here, &now, &most);
                scope.spawn(move || {
                    let outcome = here.work(|| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        now.fetch_sub(1, Ordering::SeqCst);
                        assert_ne!(number, 3, "of a decoder");
                        Ok(vec![number])
                    });
                    assert_eq!(outcome.is_ok(), number != 3);
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(*here.free.lock().unwrap(), 2);
    }

    /// Waits until all jobs of an executor of that many threads are done.
    fn until_free(executor: &Executor, threads: usize) {
        while executor.state().free < threads {
            thread::yield_now();
        }
    }

    #[tokio::test]
    async fn jobs_are_done_in_order_and_no_more_than_that_at_a_time() {
        let executor = Arc::new(Executor::new(2));
        let (begin, begun) = channel();
        let (open, gate) = channel();
        let gate = Arc::new(Mutex::new(gate));
        for number in 0..6 {
            let (begin, gate) = (begin.clone(), Arc::clone(&gate));
            executor.spawn(Box::new(move || {
                begin.send(number).unwrap();
                gate.lock().unwrap().recv().unwrap();
                assert_ne!(number, 2, "of a job");
            }));
        }
        let next = |begun: &Receiver<i32>| begun.recv().unwrap();
        let mut first = [next(&begun), next(&begun)];
        first.sort_unstable();
        assert_eq!(first, [0, 1]);
        for number in 2..6 {
            assert!(begun.try_recv().is_err(), "job {number} has begun early");
            open.send(()).unwrap();
            assert_eq!(next(&begun), number);
        }
        (0..2).for_each(|_| open.send(()).unwrap());
        until_free(&executor, 2);
    }

    #[test]
    fn a_thread_leaves_its_job_to_one_that_is_working() {
        let executor = Executor::new(1);
        let (begin, begun) = channel();
        let (open, gate) = channel::<()>();
        thread::scope(|scope| {
            let work = scope.spawn(|| {
                executor.run(Box::new(move || {
                    begin.send(()).unwrap();
                    gate.recv().unwrap();
                }));
            });
            begun.recv().unwrap();
            let (tell, told) = channel();
            // Returns before the job begins.
            executor.run(Box::new(move || tell.send(thread::current().id()).unwrap()));
            assert!(told.try_recv().is_err());
            open.send(()).unwrap();
            assert_eq!(told.recv().unwrap(), work.thread().id());
        });
        until_free(&executor, 1);
    }
}

use super::*;
use crate::workers::remote::Remote;
use crate::workers::worker_limits::{self, WorkerMemory};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use tokio::sync::{Semaphore, mpsc as async_mpsc};

/// The kind of task does not matter here.
const TASK: Task = Task::Decompress;

fn farm(
    copies: usize,
    work: impl Fn(&[u8]) -> std::result::Result<Vec<u8>, String> + Send + Sync + 'static,
) -> Arc<Farm> {
    Arc::new(
        Farm::start("work", copies, Arc::new(move |_, input| work(&input.into_block()))).unwrap(),
    )
}

/// Each job reports that it has begun, and ends when it is allowed to.
struct Gate {
    farm: Arc<Farm>,
    begun: async_mpsc::UnboundedReceiver<()>,
    open: mpsc::Sender<()>,
    done: Arc<AtomicUsize>,
}

fn gate() -> Gate {
    let (begin, begun) = async_mpsc::unbounded_channel();
    let (open, gate) = mpsc::channel::<()>();
    let (gate, done) = (Mutex::new(gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&done);
    let farm = farm(1, move |bytes| {
        begin.send(()).unwrap();
        gate.lock().unwrap().recv().unwrap();
        count.fetch_add(1, Ordering::SeqCst);
        Ok(bytes.to_vec())
    });
    Gate { farm, begun, open, done }
}

impl Gate {
    fn open(&self, jobs: usize) {
        (0..jobs).for_each(|_| self.open.send(()).unwrap());
    }
}

/// Has a worker that does nothing come, so that jobs are dealt, or all of them leave.
fn deal(farm: &Arc<Farm>, deals: bool) {
    let memory = WorkerMemory::of(&worker_limits::memory());
    let remote = Arc::new(Remote::new(1, memory));
    let workers = [WorkerThreads { remote, threads: 1 }];
    Farm::all_work_with(&[farm], &workers[..usize::from(deals)]).unwrap();
    assert_eq!(farm.dealt().is_dealt, deals);
}

fn run(farm: &Arc<Farm>, block: &[u8]) -> tokio::task::JoinHandle<Answer> {
    let (farm, block) = (Arc::clone(farm), Bytes::copy_from_slice(block));
    tokio::spawn(async move { farm.run(TASK, None, None, move || Some(block)).await })
}

/// The result of a task that is wanted.
fn outcome(answer: Answer) -> std::result::Result<Bytes, String> {
    answer.unwrap().expect("it is wanted")
}

#[tokio::test]
async fn each_answer_is_that_to_its_own_block() {
    for deals in [false, true] {
        let farm = farm(3, |bytes| match bytes {
            [] => Err("nothing".into()),
            [0, ..] => panic!("of a decoder"),
            _ => Ok(bytes.iter().rev().copied().collect()),
        });
        deal(&farm, deals);
        let runs: Vec<_> = (1..=200_u8).map(|number| run(&farm, &[number, 1, 2])).collect();
        for (number, run) in (1..).zip(runs) {
            assert_eq!(outcome(run.await.unwrap()).unwrap(), [2, 1, number].as_slice());
        }
        assert_eq!(outcome(run(&farm, &[]).await.unwrap()).unwrap_err(), "nothing");
        let failure = outcome(run(&farm, &[0]).await.unwrap()).unwrap_err();
        assert!(failure.contains("panicked"), "{failure}");
        // The farm continues.
        assert_eq!(outcome(run(&farm, &[9]).await.unwrap()).unwrap(), [9].as_slice());
        assert_eq!(farm.window(), if deals { 10 } else { 6 });
    }
}

#[tokio::test]
async fn what_nobody_wants_when_its_turn_comes_is_not_done() {
    for deals in [false, true] {
        let gate = gate();
        deal(&gate.farm, deals);
        let turns = if deals { gate.farm.window() } else { 1 };
        let first: Vec<_> = (0..turns).map(|_| run(&gate.farm, &[1])).collect();
        let farm = Arc::clone(&gate.farm);
        let unwanted =
            tokio::spawn(async move { farm.run(TASK, None, None, || None::<Bytes>).await });
        let last = run(&gate.farm, &[2]);
        // A job whose client disconnects before its turn.
        let (farm, came) = (Arc::clone(&gate.farm), Arc::new(AtomicBool::new(false)));
        let comes = Arc::clone(&came);
        let make = move || {
            comes.store(true, Ordering::SeqCst);
            None::<Bytes>
        };
        let gone = tokio::spawn(async move { farm.run(TASK, None, None, make).await });
        // Lets all of them reach the point where they wait.
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        gate.open(turns + 1);
        for run in first {
            assert!(outcome(run.await.unwrap()).is_ok());
        }
        assert_eq!(unwanted.await.unwrap(), Ok(None));
        assert!(outcome(last.await.unwrap()).is_ok());
        // One more has its turn after it.
        gate.open(1);
        assert!(outcome(run(&gate.farm, &[3]).await.unwrap()).is_ok());
        assert_eq!(gate.done.load(Ordering::SeqCst), turns + 2);
        assert!(!came.load(Ordering::SeqCst));
    }
}

#[tokio::test]
async fn what_a_job_takes_is_free_when_it_is_done_and_not_before() {
    for deals in [false, true] {
        let mut gate = gate();
        deal(&gate.farm, deals);
        let memory = Arc::new(Semaphore::new(1));
        let permit = Arc::new(Arc::clone(&memory).acquire_owned().await.unwrap());
        let (farm, make) = (Arc::clone(&gate.farm), || Some(Bytes::new()));
        let run = async move { farm.run(TASK, None, Some(permit), make).await };
        let run = tokio::spawn(run);
        gate.begun.recv().await.unwrap();
        run.abort();
        assert!(run.await.unwrap_err().is_cancelled());
        assert_eq!(memory.available_permits(), 0);
        gate.open(1);
        drop(memory.acquire().await.unwrap());
    }
}

#[tokio::test]
async fn a_thread_that_has_read_a_block_does_the_work() {
    let worked = Arc::new(Mutex::new(None));
    let works = Arc::clone(&worked);
    let farm = farm(1, move |bytes| {
        *works.lock().unwrap() = Some(thread::current().id());
        Ok(bytes.to_vec())
    });
    for deals in [false, true] {
        deal(&farm, deals);
        let (tell, told) = mpsc::channel();
        let read = move || {
            tell.send(thread::current().id()).unwrap();
            Ok(Bytes::from_static(b"read"))
        };
        let answer = farm.read_and_run(TASK, None, read, || true).await;
        assert_eq!(outcome(answer).unwrap(), "read");
        let is_same = worked.lock().unwrap().take() == Some(told.recv().unwrap());
        assert_eq!(is_same, !deals);

        let read = || Ok(Bytes::from_static(b"read"));
        assert_eq!(farm.read_and_run(TASK, None, read, || false).await, Ok(None));
        let read = || Err::<Bytes, _>(Failure::not_found("no tile"));
        let failure = farm.read_and_run(TASK, None, read, || true).await.unwrap_err();
        assert_eq!(&*failure.what, "no tile");
        let read = || -> Result<Bytes> { panic!("of a reader") };
        let failure = farm.read_and_run(TASK, None, read, || true).await.unwrap_err();
        assert!(failure.what.contains("panicked"), "{failure}");
        assert_eq!(*worked.lock().unwrap(), None);
    }
}

#[tokio::test]
async fn what_was_begun_is_done_when_workers_come_and_go() {
    let mut gate = gate();
    let farm = Arc::clone(&gate.farm);
    let mut runs: Vec<_> = (0..3).map(|number| run(&farm, &[number])).collect();
    gate.begun.recv().await.unwrap();
    // Those of the executor are begun, so it need not be waited for.
    deal(&farm, true);
    assert!(!farm.is_changing());
    gate.open(3);
    for run in runs.drain(..) {
        assert!(outcome(run.await.unwrap()).is_ok());
    }
    (0..2).for_each(|_| gate.begun.try_recv().unwrap());
    // Six have their turn, and the others wait for it.
    runs.extend((0..8).map(|number| run(&farm, &[number])));
    gate.begun.recv().await.unwrap();
    for deals in [true, false] {
        deal(&farm, deals);
        assert!(farm.is_changing());
    }
    runs.extend((8..10).map(|number| run(&farm, &[number])));
    tokio::task::yield_now().await;
    // The thread that may work is in the old pipeline.
    assert!(gate.begun.try_recv().is_err());
    gate.open(10);
    for (number, run) in (0..).zip(runs) {
        assert_eq!(outcome(run.await.unwrap()).unwrap(), [number].as_slice());
    }
    while farm.is_changing() {
        thread::yield_now();
    }
}

#[tokio::test]
async fn farms_change_together_or_not_at_all() {
    let [one, mut other] = [(); 2].map(|()| farm(1, |bytes| Ok(bytes.to_vec())));
    let remote = Remote::new(1, WorkerMemory::of(&worker_limits::memory()));
    let workers = [WorkerThreads { remote: Arc::new(remote), threads: 1 }];
    // A pipeline cannot have two filters of the same name.
    Arc::get_mut(&mut other).unwrap().options.name = "ends";
    assert!(Farm::all_work_with(&[&one, &other], &workers).is_err());
    assert!(!one.dealt().is_dealt);
    Arc::get_mut(&mut other).unwrap().options.name = "work";
    Farm::all_work_with(&[&one, &other], &workers).unwrap();
    for farm in [one, other] {
        assert!(farm.dealt().is_dealt);
        assert!(outcome(run(&farm, &[1]).await.unwrap()).is_ok());
    }
}

#[tokio::test]
async fn an_update_is_done_when_all_of_it_is_known() {
    for guarantee in [Guarantee::Latency(Duration::from_millis(50)), Guarantee::Rate(10.0)] {
        let work: WorkFn = Arc::new(|_, input| match &input.into_block()[..] {
            [0] => Err("nothing".into()),
            bytes => Ok(bytes.to_vec()),
        });
        let options = PipelineOptions {
            name: "work",
            copies: 2,
            work,
            policy: DealingPolicy::default(),
            guarantee: Some(guarantee),
        };
        let farm = Arc::new(Farm::with(options).unwrap());
        for count in [1, 40, 3] {
            let update = farm.update(count > 4, None).unwrap();
            let run = |number: u8| {
                let (farm, update) = (Arc::clone(&farm), Some(Arc::clone(&update)));
                let read = move || Ok(Bytes::from(vec![number]));
                let run = async move { farm.read_and_run(TASK, update, read, || true).await };
                tokio::spawn(run)
            };
            let runs: Vec<_> = (0..count).map(run).collect();
            // An owner that adds nothing.
            drop(update);
            for (number, run) in (0..).zip(runs) {
                match outcome(run.await.unwrap()) {
                    Ok(bytes) => assert_eq!(bytes, [number].as_slice()),
                    Err(what) => assert_eq!((number, &*what), (0, "nothing")),
                }
            }
        }
        drop(farm.update(false, None));
        assert_eq!(outcome(run(&farm, &[7]).await.unwrap()).unwrap(), [7].as_slice());
        let dealt = farm.dealt();
        assert!(dealt.is_dealt && (1..=8).contains(&dealt.together), "{dealt:?}");
    }
}

//! `seekwire slides worker`: works for a server, with as many threads as it likes.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use seekwire_flow::{
    Block, ClusterConfig, ConnectError, Failure, Filter, FilterError, Outputs, Peer, Refusal,
    Running, StartError, Step,
};
use seekwire_launch::Secret;
use seekwire_values::Address;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::arguments::Worker as Options;
use crate::logging;
use crate::render::farm::Farm;
use crate::render::pipeline::WorkFn;
use crate::render::work;
use crate::warn_once::WarnOnce;
use crate::workers::launcher;
use crate::workers::protocol::{self, BEAT, MOST, SEED, SILENCE_LIMIT, SUFFIX, Word};
use crate::workers::remote::Elsewhere;
use crate::workers::{OTHER, too_many};

/// Contains the secret, if no file does.
const VARIABLE: &str = "SEEKWIRE_SLIDES_WORKER_SECRET";

/// How long to look for a server before reporting that there is none and looking again.
const LIMIT: Duration = Duration::from_secs(30);

/// Pause before looking for a server again.
const PAUSE: Duration = Duration::from_millis(500);

/// Pause if the server has its maximum number of workers.
const LONG_PAUSE: Duration = Duration::from_secs(10);

/// Maximum blocks waiting or in process per thread: the server sends no more.
const WINDOW: usize = 8;

/// The secret in the first line of a file, or in the environment; `None` if there is none.
pub(crate) fn secret(file: Option<&Path>) -> Result<Option<Secret>> {
    let (text, from) = match file {
        Some(path) => {
            let from = path.display().to_string();
            (fs::read_to_string(path).with_context(|| from.clone())?, from)
        }
        None => match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => (text, VARIABLE.to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => bail!("{VARIABLE}: not UTF-8"),
            _ => return Ok(None),
        },
    };
    let secret = Secret::from_hex(text.lines().next().unwrap_or_default().trim());
    let how = "a secret has 64 hexadecimal digits, such as those of `openssl rand -hex 32`";
    secret.map(Some).with_context(|| format!("{from}: {how}"))
}

/// Where workers connect: on this host, and at this port, unless the user names others.
pub(crate) fn address(named: &Address) -> String {
    named.or("127.0.0.1", 7000)
}

/// `seekwire slides worker`
pub(crate) fn command(options: &Options) -> Result<()> {
    logging::start(&options.log)?;
    let threads =
        options.threads.or(available_parallelism().ok()).map_or(1, |threads| threads.get());
    let threads = threads.min(protocol::MOST_THREADS as usize);
    let file_secret = secret(options.worker_secret.as_deref())?;
    let (server, job_addresses, secret) = match (&options.server, file_secret) {
        (Some(server), Some(secret)) => (address(server), None, secret),
        (Some(_), None) => bail!("the secret of the server is missing: --worker-secret FILE"),
        (None, _) => {
            let (addresses, secret) = launcher::worker()?;
            ("the server of this job".to_owned(), Some(addresses), secret)
        }
    };
    let is_launched = job_addresses.is_some();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(threads)
        .build()?;
    let worker = Worker::new(threads, !options.no_turbojpeg, &runtime)?;
    let count = match threads {
        1 => "one thread".to_owned(),
        count => format!("{count} threads"),
    };
    seekwire_program::tell(format_args!("seekwire: {count} for {server}"));
    let mut began = Instant::now();
    let mut attempts = Arc::new(Attempts::default());
    loop {
        // A name may resolve to another address by now.
        let addresses = match &job_addresses {
            Some(addresses) => Ok(addresses.clone()),
            None => launcher::addresses(&server),
        };
        let outcome = addresses.and_then(|to| worker.run(&server, to, &secret, &attempts));
        match outcome {
            // The other processes of the job continue without this one.
            Ok(End::Full(most)) if is_launched && began.elapsed() >= LIMIT => {
                tracing::warn!("{server}: {}; this worker ends", too_many(most));
                return Ok(());
            }
            Ok(End::Full(most)) => {
                attempts.warnings.warn(format!("{server}: {}", too_many(most)));
                thread::sleep(LONG_PAUSE);
                continue;
            }
            // The job ends with its server.
            Ok(End::Over) if is_launched => return Ok(()),
            Ok(End::Over) => tracing::info!("{server} has ended the work"),
            Ok(End::Lost(failure)) => tracing::warn!("{server}: {failure}"),
            Err(error) if is_launched && began.elapsed() >= LIMIT => {
                return Err(error);
            }
            Err(error) => {
                attempts.warnings.warn(format!("{error:#}"));
                thread::sleep(PAUSE);
                continue;
            }
        }
        began = Instant::now();
        attempts = Arc::default();
        thread::sleep(PAUSE);
    }
}

/// Failed attempts to connect to a server. Repeated failures are logged once.
#[derive(Default)]
struct Attempts {
    warnings: WarnOnce,
    last: Mutex<Option<String>>,
}

impl Attempts {
    fn refused(&self, server: &str, address: SocketAddr, why: &Refusal) {
        let address = address.to_string();
        let address = match address == server {
            true => address,
            false => format!("{server}, {address}"),
        };
        let what = match why {
            Refusal::Link(error) => format!("{address}: {error}"),
            Refusal::NoProof => {
                format!("{address}: the server does not let this worker in: {OTHER}")
            }
            _ => format!("{address}: the program listening there does not accept workers"),
        };
        self.warnings.warn(format!("{what}; trying again"));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// Why no server was found within the limit.
    fn last(&self, error: StartError) -> anyhow::Error {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (last, error) {
            (Some(last), StartError::Connect(ConnectError::Missing { limit, .. })) => {
                anyhow!("no server was reached within {} s: {last}", limit.as_secs())
            }
            (_, StartError::Connect(error)) => error.into(),
            (_, error) => error.into(),
        }
    }
}

/// How a session with a server ends.
#[derive(Debug)]
enum End {
    /// The server has ended it.
    Over,
    /// The server has this maximum number of workers already.
    Full(usize),
    /// The connection is lost.
    Lost(Failure),
}

/// The parts of the worker that do not depend on the server.
struct Worker {
    farm: Arc<Farm>,
    handle: Handle,
    threads: usize,
    host: String,
}

/// An answer, and the permit of its job, which is released when the answer is sent.
type PendingAnswer = (Vec<u8>, OwnedSemaphorePermit);

/// A session with a server.
struct Session {
    farm: Arc<Farm>,
    handle: Handle,
    permits: Arc<Semaphore>,
    /// `None` once the server has no more jobs.
    answers: Mutex<Option<SyncSender<PendingAnswer>>>,
    todo: Mutex<Receiver<PendingAnswer>>,
    hello: Mutex<Option<Vec<u8>>>,
    /// The server's maximum number of workers, if it has turned this one away.
    is_full: OnceLock<usize>,
}

impl Worker {
    fn new(threads: usize, turbojpeg: bool, runtime: &Runtime) -> Result<Self> {
        let tools = work::Tools::new(turbojpeg, work::TILE);
        let work: WorkFn = Arc::new(move |task, input| tools.work(task, input));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.chars().filter(char::is_ascii_graphic).take(64).collect();
        let farm = Arc::new(Farm::start("worker", threads, work)?);
        Ok(Self { farm, handle: runtime.handle().clone(), threads, host })
    }

    /// Works for the server until the link to it ends. Fails if there was no link.
    fn run(
        &self,
        server: &str,
        addresses: Vec<SocketAddr>,
        secret: &Secret,
        attempts: &Arc<Attempts>,
    ) -> Result<End> {
        let window = self.threads * WINDOW;
        // Room for as many answers as there are blocks, so that sending never blocks.
        let (answers, todo) = sync_channel(window);
        let hello = Word::Hello(self.threads as u32).behind(self.host.clone().into_bytes());
        let session = Arc::new(Session {
            farm: Arc::clone(&self.farm),
            handle: self.handle.clone(),
            permits: Arc::new(Semaphore::new(window)),
            answers: Mutex::new(Some(answers)),
            todo: Mutex::new(todo),
            hello: Mutex::new(Some(hello)),
            is_full: OnceLock::new(),
        });
        let running = start(&session, server, addresses, secret, attempts)?;
        tracing::info!("connected to {server}");
        let outcome = running.serve();
        session.close();
        running.finish();
        Ok(match (session.is_full.get(), outcome) {
            (Some(most), _) => End::Full(*most),
            (None, Ok(())) => End::Over,
            (None, Err(failure)) => End::Lost(failure),
        })
    }
}

fn start(
    session: &Arc<Session>,
    server: &str,
    addresses: Vec<SocketAddr>,
    secret: &Secret,
    attempts: &Arc<Attempts>,
) -> Result<Running> {
    let (takes, gives) = (Arc::clone(session), Arc::clone(session));
    let graph = protocol::graph([
        Arc::new(|| Box::new(Elsewhere) as Box<dyn Filter>),
        Arc::new(move || Box::new(JobSink(Arc::clone(&takes)))),
        Arc::new(move || Box::new(AnswerSource(Arc::clone(&gives)))),
        Arc::new(|| Box::new(Elsewhere)),
    ])?;
    // Nothing connects here: no process has a higher rank.
    let listener = TcpListener::bind("127.0.0.1:0").context("no socket")?;
    let own = Peer { host: "this worker".to_owned(), addresses: Vec::new() };
    let job = ClusterConfig {
        rank: 1,
        peers: vec![Peer { host: server.to_owned(), addresses }, own],
        listener,
        secret: *secret.as_bytes(),
        limit: LIMIT,
        patience: SILENCE_LIMIT,
        called_off: None,
    };
    let (of, server) = (Arc::clone(attempts), server.to_owned());
    let refusals = move |address: SocketAddr, why: &Refusal| of.refused(&server, address, why);
    let running = graph.start_and_tell(&job, SEED, Some(Arc::new(refusals)));
    running.map_err(|error| attempts.last(error))
}

impl Session {
    /// There are no more jobs: the answers end with the last job under way.
    fn close(&self) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Receives jobs.
struct JobSink(Arc<Session>);

impl Filter for JobSink {
    fn process(&mut self, block: Block, _: usize, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        let session = &self.0;
        let (task, number, bytes) = match Word::of(block.into()) {
            Some((Word::Job(task, number), bytes)) => (task, number, bytes),
            Some((Word::Full(most), _)) => {
                let _ = session.is_full.set(most as usize);
                session.close();
                return Ok(());
            }
            _ => return Err("the server sent an unexpected message".into()),
        };
        let answers = session.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answers = answers.ok_or("a job after the last one")?;
        // A server that sends more than allowed waits here.
        let permit = session.handle.block_on(Arc::clone(&session.permits).acquire_owned())?;
        let farm = Arc::clone(&session.farm);
        session.handle.spawn(async move {
            let answer = match farm.run(task, None, None, || Some(bytes)).await {
                Ok(Some(Ok(answer))) if answer.len() <= MOST - SUFFIX => {
                    Word::Answer(true, number).behind(answer.into())
                }
                // The server will find the error itself.
                _ => Word::Answer(false, number).behind(Vec::new()),
            };
            // The server may be gone.
            let _ = answers.try_send((answer, permit));
        });
        Ok(())
    }

    fn finalize(&mut self, _: &mut Outputs<'_>) -> Result<(), FilterError> {
        self.0.close();
        Ok(())
    }
}

/// Sends answers, and a heartbeat now and then.
struct AnswerSource(Arc<Session>);

impl Filter for AnswerSource {
    fn generate(&mut self, out: &mut Outputs<'_>) -> Result<Step, FilterError> {
        let hello = self.0.hello.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hello) = hello {
            out.send(0, hello)?;
            return Ok(Step::More);
        }
        // There is only one copy, so this lock is never contended.
        let todo = self.0.todo.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = todo.recv_timeout(BEAT);
        drop(todo);
        match answer {
            Ok((answer, _permit)) => out.send(0, answer)?,
            Err(RecvTimeoutError::Timeout) => out.send(0, Word::Beat.behind(Vec::new()))?,
            Err(RecvTimeoutError::Disconnected) => return Ok(Step::Done),
        }
        Ok(Step::More)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workers::Workers;
    use crate::workers::hostile_tests::images;
    use crate::workers::remote::WorkerState;
    use crate::workers::worker_limits::Allowed;

    /// Waits until `count` workers are present and working.
    fn until(workers: &Workers, count: usize) {
        let works = || {
            let (all, ..) = workers.all();
            all.len() == count && all.iter().all(|remote| remote.state() == WorkerState::Works)
        };
        while !works() {
            thread::yield_now();
        }
    }

    fn run(worker: &Worker, to: SocketAddr, secret: &Secret) -> End {
        worker.run("server", vec![to], secret, &Arc::default()).unwrap()
    }

    #[test]
    fn a_worker_beyond_the_limit_is_informed_until_there_is_capacity() {
        let secret = Secret::random().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let most = Allowed { workers: 1, threads: 8 };
        let workers = Workers::start(listener, secret.clone(), most, images()).unwrap();
        let to = workers.address();
        let runtime = Runtime::new().unwrap();
        let [first, second] = [(); 2].map(|()| Worker::new(1, true, &runtime).unwrap());
        thread::scope(|scope| {
            let works = scope.spawn(|| run(&first, to, &secret));
            until(&workers, 1);
            for _ in 0..2 {
                let end = run(&second, to, &secret);
                assert!(matches!(end, End::Full(1)), "{end:?}");
            }
            assert_eq!((workers.all().1, workers.all().2), (1, 0));
            workers.all().0[0].end();
            assert!(matches!(works.join().unwrap(), End::Over));
            let works = scope.spawn(|| {
                loop {
                    // The slot of the first one may not be free yet.
                    match run(&second, to, &secret) {
                        End::Full(1) => {}
                        end => break end,
                    }
                }
            });
            while workers.all().1 < 2 {
                thread::yield_now();
            }
            until(&workers, 1);
            workers.end();
            assert!(matches!(works.join().unwrap(), End::Over));
        });
    }
}

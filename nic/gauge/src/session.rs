//! Serves one client of a server.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Instant;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::cpu_load::Moment;
use crate::early_stop::Closing;
use crate::error::Error;
use crate::handover::Handover;
use crate::limits::ANSWER_LIMIT;
use crate::lines;
use crate::message::{Account, NAME, Request, Response, VERSION};
use crate::server_state::{Event, OpenConnection, Permit, ServerState};
use crate::socket;
use crate::test::Test;
use crate::transfer::Transfer;

/// Serves tests until the client disconnects.
pub(crate) fn serve(
    shared: &ServerState<'_>,
    control: &TcpStream,
    peer: SocketAddr,
) -> Result<(), Error> {
    lines::send(control, &Response::Welcome { protocol: NAME.to_owned(), version: VERSION })?;
    loop {
        let asked = lines::receive(control, Instant::now() + shared.limits.idle, None);
        let test = match asked {
            Ok(Some(Request::Test(test))) => test,
            Ok(Some(_)) => {
                return Err(give_up(
                    control,
                    Error::Protocol("it sent something other than a test".to_owned()),
                ));
            }
            Ok(None) => return Ok(()),
            Err(error) => return Err(give_up(control, error.into())),
        };
        let refuse = |reason: &str| {
            (shared.tell)(Event::Refused { peer, reason });
            lines::send(control, &Response::Refused { reason: reason.to_owned() })
        };
        if let Err(reason) = test.check() {
            refuse(&reason)?;
            continue;
        }
        let Some(_permit) = Permit::of(&shared.tests, shared.limits.tests) else {
            let reason = "it is running a test of another client; try again later";
            (shared.tell)(Event::Refused { peer, reason });
            lines::send(control, &Response::Busy { reason: reason.to_owned() })?;
            continue;
        };
        let data = expect(shared, control).map_err(|error| give_up(control, error))?;
        if let Err(error) = socket::set_congestion(&data.stream, test.congestion.as_deref()) {
            let reason = error.to_string();
            (shared.tell)(Event::Refused { peer, reason: &reason });
            lines::send(&data.stream, &Response::Refused { reason })?;
            continue;
        }
        (shared.tell)(Event::Begun { peer, test: &test });
        let account = run(control, &data.stream, &test).map_err(|error| give_up(control, error))?;
        (shared.tell)(Event::Tested { peer, test: &test, bytes: account.received + account.sent });
        lines::send(control, &Response::Done(account))?;
    }
}

/// Reports the error to the client, which may have disconnected.
fn give_up(control: &TcpStream, error: Error) -> Error {
    let _ = lines::send(control, &Response::Failed { reason: error.to_string() });
    error
}

/// Waits for the data connection of the next test.
fn expect(shared: &ServerState<'_>, control: &TcpStream) -> Result<OpenConnection, Error> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|errno| Error::host("cannot get random numbers")(errno.into()))?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let handover = Arc::new(Handover::new().map_err(Error::host("cannot wait for a connection"))?);
    shared.expect(&token, Arc::clone(&handover));
    let asked = lines::send(control, &Response::Ready { token: token.clone() });
    let came = asked.map_err(Error::from).and_then(|()| handover.take(control));
    shared.unexpect(&token);
    came
}

/// Runs a test to its end, and counts.
fn run(control: &TcpStream, data: &TcpStream, test: &Test) -> Result<Account, Error> {
    let flow = Transfer::new(data, test, Closing)?;
    let stop = AtomicBool::new(false);
    lines::send(data, &Response::Go)?;
    thread::scope(|scope| {
        let (sender, ended) = sync_channel(1);
        let (flow, stop) = (&flow, &stop);
        let moving = move || {
            let served = flow.serve(test.kind, stop);
            // It fails if the receiver has given up.
            let _ = sender.send((served, Moment::now()));
        };
        let counted = thread::Builder::new()
            .spawn_scoped(scope, moving)
            .map_err(Error::host("cannot start a thread"))
            .and_then(|_| converse(control, test, flow, stop, &ended));
        // The thread must end in any case.
        stop.store(true, Ordering::Relaxed);
        let _ = data.shutdown(Shutdown::Both);
        counted
    })
}

/// Handles the control connection while the bytes move.
fn converse(
    control: &TcpStream,
    test: &Test,
    flow: &Transfer<'_, Closing>,
    stop: &AtomicBool,
    ended: &Receiver<(Result<(), Error>, Moment)>,
) -> Result<Account, Error> {
    let deadline = Instant::now() + test.warm_up + test.time + 3 * ANSWER_LIMIT;
    let mut mark = (Moment::now(), 0);
    loop {
        match lines::receive(control, deadline, None)? {
            Some(Request::Mark) => {
                mark = (Moment::now(), flow.received());
                lines::send(control, &Response::Marked)?;
            }
            Some(Request::Finish) => break,
            Some(_) => {
                return Err(Error::Protocol(
                    "it sent another request in the middle of a test".to_owned(),
                ));
            }
            None => return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()),
        }
    }
    stop.store(true, Ordering::Relaxed);
    let (served, end) = ended.recv_timeout(ANSWER_LIMIT).map_err(|error| match error {
        RecvTimeoutError::Timeout => Error::Silent(ANSWER_LIMIT.as_secs()),
        RecvTimeoutError::Disconnected => Error::Failed("a thread has panicked".to_owned()),
    })?;
    served?;
    let (start, before) = mark;
    Ok(Account {
        received: flow.received(),
        sent: flow.sent(),
        since_mark: flow.received() - before,
        load: start.until(&end),
    })
}

//! How publishing over libzmq ends: no program leaves before it has received all messages for it,
//! since the others would keep them, and wait, forever.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use seekwire_lab::launch::{Mode, Program, Running};
use seekwire_lab::messaging::{Hub, Member, Model, TOPICS};
use zmq::{Context, PULL, SNDMORE, Socket, XPUB};

/// How long a program may take before it hangs.
const HANG: Duration = Duration::from_secs(60);

const SIZE: usize = 256;

fn start(role: &str, order: String) -> Result<Running> {
    let program = Program::new(env!("CARGO_BIN_EXE_seekwire-zeromq"), &Mode::Plain);
    Ok(program.arg(role).arg(order).timeout(HANG).start()?)
}

fn subscriber(address: &str, rank: usize, members: usize) -> Result<Running> {
    let order = Member {
        model: Model::Publish,
        address: address.to_owned(),
        rank,
        clients: 0,
        members,
        size: SIZE,
        milliseconds: 0,
        file: PathBuf::new(),
    };
    start("member", serde_json::to_string(&order)?)
}

fn bound(socket: &Socket) -> Result<String> {
    socket.bind("tcp://127.0.0.1:*")?;
    socket.set_rcvtimeo(HANG.as_millis() as i32)?;
    socket.get_last_endpoint()?.map_err(|_| anyhow!("an address that is no text"))
}

#[test]
fn a_subscriber_tells_of_the_end_as_of_a_message() -> Result<()> {
    let context = Context::new();
    let (out, arrivals) = (context.socket(XPUB)?, context.socket(PULL)?);
    let subscriber = subscriber(&format!("{} {}", bound(&out)?, bound(&arrivals)?), 0, 1)?;
    while !out.recv_bytes(0)?.starts_with(b"\x01ready/") {}
    for (topic, message) in
        [("quickly", String::new()), ("end", serde_json::to_string(&[0; TOPICS])?)]
    {
        out.send(topic, SNDMORE)?;
        out.send(&message, 0)?;
    }
    let reported = [arrivals.recv_bytes(0)?, arrivals.recv_bytes(0)?];
    assert_eq!(reported, [b"0", b"1"], "nobody waits to hear that nothing has arrived");
    subscriber.wait()?;
    Ok(())
}

#[test]
fn all_leave_where_nothing_is_left_to_tell_but_the_end() -> Result<()> {
    let members = 4;
    let hub = Hub {
        model: Model::Publish,
        address: "tcp://127.0.0.1:*".to_owned(),
        members,
        clients: 0,
        size: SIZE,
        milliseconds: 0,
        directory: PathBuf::new(),
    };
    for run in 0..10 {
        let publisher = start("hub", serde_json::to_string(&hub)?)?;
        let ready = publisher.wait_for_line(|line| line.starts_with("ready "))?;
        let address = ready.trim_start_matches("ready ");
        let subscribers: Vec<Running> =
            (0..members).map(|rank| subscriber(address, rank, members)).collect::<Result<_>>()?;
        let of_run = || format!("run {run}");
        publisher.wait().with_context(of_run)?;
        subscribers
            .into_iter()
            .try_for_each(|subscriber| subscriber.wait().map(|_| ()).with_context(of_run))?;
    }
    Ok(())
}

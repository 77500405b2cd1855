//! Random bytes by random calls over many connections at once, both ends by several ways of
//! waiting; each byte checked.

use crate::harness::{Stage, in_every_mode};

in_every_mode!(random_bytes_by_random_calls);

const ROUNDS: usize = 12;
const CONNECTIONS: &str = "16";
/// At most so many bytes go each way on each connection: enough that most of them come to the ring.
const BYTES: &str = "8000000";

fn random_bytes_by_random_calls(stage: &mut Stage) {
    let program = stage.compile("stress.c", "stress", &["-pthread"]);
    let mut checked = 0;
    for round in 0..ROUNDS {
        // The smallest ring is full most of the time.
        let (size, count) = if round % 2 == 0 { ("32768", "64") } else { ("4096", "8") };
        stage.set("SEEKWIRE_SEGMENT_SIZE", size);
        stage.set("SEEKWIRE_SEGMENTS", count);
        let seed = round.to_string();
        let address = stage.address.to_string();
        let mut listen = stage.command(&program);
        listen.args(["listen", &address, CONNECTIONS, &seed, BYTES]);
        let (server, port) = stage.serve_printing_port(&mut listen);
        let mut connect = stage.command(&program);
        connect.args(["connect", &address, &port, CONNECTIONS, &seed, BYTES]);
        let answers = [stage.run(&mut connect).success(), server.finish().success()];
        checked += answers.iter().map(|answer| bytes(answer)).sum::<u64>();
    }
    println!("{checked} bytes in {ROUNDS} rounds of {CONNECTIONS} connections");
}

fn bytes(answer: &str) -> u64 {
    answer.trim().parse().unwrap_or_else(|_| panic!("not a number of bytes: {answer:?}"))
}

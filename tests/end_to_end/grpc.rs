//! gRPC for Python (grpcio): calls and streams of all four kinds, with every message checked.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Stage, in_every_mode, python};

in_every_mode!(calls_and_streams,);

fn calls_and_streams(stage: &mut Stage) {
    let grpc = |words: &[&str]| -> Command {
        let mut command = stage.command(python());
        command.arg(script()).args(words);
        command
    };
    let (server, port) = stage.serve_printing_port(&mut grpc(&["serve", "0"]));
    for [call, count, size] in [
        ["unary", "300", "100"],
        ["unary", "20", "300000"],
        ["download", "500", "10000"],
        ["upload", "500", "10000"],
        ["both", "500", "10000"],
        ["both", "20", "1000000"],
    ] {
        stage.run(&mut grpc(&[call, &port, count, size])).success();
    }
    server.stop(Signal::TERM).success();
}

/// The one with which the experiment `programs` measures.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../laboratory/lab/peer/grpcbench.py")
}

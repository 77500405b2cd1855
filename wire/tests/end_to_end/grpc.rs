//! gRPC: calls and streams of all four kinds, by Python and by the library that it is made of, with
//! every message checked.

use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Stage, in_every_mode};

in_every_mode!(calls_and_streams, calls_and_streams_of_the_library,);

fn calls_and_streams(stage: &mut Stage) {
    let grpc = |words: &[&str]| stage.script("grpc_calls.py", words);
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

fn calls_and_streams_of_the_library(stage: &mut Stage) {
    // The one with which the experiment `programs` measures.
    let source = "../../../lab/harness/peer/grpcbench.c";
    let program = stage.compile(source, "grpcbench", &["-std=gnu11", "-lgrpc", "-lgpr"]);
    let grpc = |words: &[&str]| -> Command {
        let mut command = stage.command(&program);
        command.args(words);
        command
    };
    let (server, port) = stage.serve_printing_port(&mut grpc(&["serve", "0"]));
    for [call, count, size] in [
        ["unary", "3000", "64"],
        ["unary", "20", "3000000"],
        ["download", "5000", "65536"],
        ["download", "20", "3000000"],
    ] {
        stage.run(&mut grpc(&[call, &port, count, size])).success();
    }
    server.stop(Signal::TERM).success();
}

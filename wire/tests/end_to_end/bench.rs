//! `seekwire bench` with real programs.

use std::fs;
use std::process::Command;

use crate::harness::{Finished, Mode, Stage, program, python, seekwire};

/// A server of a file, by Python's http.server, and a client that fetches it, by curl.
struct Site {
    stage: Stage,
    port: u16,
}

impl Site {
    fn new() -> Self {
        program("seekwire-demo");
        let stage = Stage::new(Mode::Plain);
        fs::create_dir(stage.path("site")).expect("a directory");
        // Large enough to come to the ring before it has gone by TCP.
        fs::write(stage.path("site/file"), vec![7; 50_000_000]).expect("a file");
        Self { port: stage.port(), stage }
    }

    fn server(&self) -> String {
        let Self { stage, port } = self;
        let directory = stage.path("site");
        format!(
            "'{}' -m http.server --bind {} --directory '{}' {port}",
            python().display(),
            stage.address,
            directory.display()
        )
    }

    fn url(&self) -> String {
        format!("http://{}:{}/file", self.stage.address, self.port)
    }

    fn bench(&self, options: &[&str], client: &[&str]) -> Finished {
        let mut command: Command = self.stage.plain_command(seekwire());
        command.args(["bench", "--rounds", "2", "--port", &self.port.to_string()]);
        self.stage.run(command.args(options).arg("--").args(client))
    }
}

#[test]
fn a_server_and_a_client_are_compared() {
    let site = Site::new();
    let client = ["curl", "-sS", "-o", "/dev/null", "-w", "speed %{speed_download}\n", &site.url()];
    let finished =
        site.bench(&["--server", &site.server(), "--rate-pattern", "speed ([0-9]+)"], &client);
    let said = finished.success();
    let begins: Vec<&str> =
        said.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
    assert_eq!(begins[1..3], ["time, s", "rate"], "{said}");
    assert!(said.contains("\nMedians of 2 rounds"), "{said}");
    assert!(said.contains("client's bytes went through shared memory."), "{said}");
}

#[test]
fn what_fails_is_explained() {
    let site = Site::new();
    let server = site.server();
    let failed = |options: &[&str], client: &[&str], why: &str| {
        let finished = site.bench(options, client);
        assert_eq!(finished.status.code(), Some(1), "{}", finished.stdout);
        assert!(finished.stderr.contains(why), "{why}: {}", finished.stderr);
    };
    failed(&["--server", "false"], &["true"], "the server false ended before it was ready");
    failed(&["--server", &server], &["false"], "the client false failed (exit status: 1)");
    let options = ["--server", &server, "--rate-pattern", "speed (.*)"];
    failed(
        &options,
        &["echo", "no rate"],
        "--rate-pattern matches nothing in the client's output: no rate",
    );
}

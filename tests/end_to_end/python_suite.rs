//! CPython's own tests of everything that uses sockets, accelerated and taken back to TCP.
//!
//! Both ends of their connections are mostly in one process. What fails is run again plain: a test
//! that fails on this machine without Seekwire too is none of its business.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::harness::{Mode, Stage, python};

/// Tests of these are left out: VSOCK waits for a host side for ever, and nobody here tests
/// Bluetooth.
const LEFT_OUT: [&str; 2] = ["test.test_socket.*VSOCK*", "test.test_socket.*Bluetooth*"];

/// These believe that loopback is a network that one has to ask for.
const NETWORK: [&str; 1] = ["test_socketserver"];

macro_rules! suites {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use crate::harness::Mode;

            #[test]
            fn accelerated() {
                super::suite(stringify!($name), Mode::Accelerated);
            }

            #[test]
            fn taken_back() {
                super::suite(stringify!($name), Mode::TakenBack);
            }
        })+
    };
}

suites!(
    test_asyncio,
    test_docxmlrpc,
    test_eintr,
    test_epoll,
    test_fcntl,
    test_ftplib,
    test_httplib,
    test_httpservers,
    test_poll,
    test_poplib,
    test_select,
    test_selectors,
    test_smtplib,
    test_socket,
    test_socketserver,
    test_ssl,
    test_urllib2_localnet,
    test_wsgiref,
);

fn suite(name: &str, mode: Mode) {
    let stage = Stage::new(mode);
    let failed = failures(&stage, stage.command(python()), name, &[]);
    if failed.is_empty() {
        return;
    }
    let cases: Vec<&str> = failed.iter().map(String::as_str).collect();
    let also_plain = failures(&stage, stage.plain_command(python()), name, &cases);
    let new: Vec<_> = failed.difference(&also_plain).collect();
    assert!(new.is_empty(), "fail under Seekwire only: {new:#?}");
}

/// The cases of the suite `name` that fail; of `cases` alone, if there are any.
fn failures(stage: &Stage, mut command: Command, name: &str, cases: &[&str]) -> BTreeSet<String> {
    let report = stage.path("report.xml");
    // Verbose: a sign of life after each case.
    command.args(["-m", "test", "--verbose", name, "--junit-xml"]).arg(&report);
    if NETWORK.contains(&name) {
        command.arg("--use=network");
    }
    for pattern in LEFT_OUT {
        command.args(["--ignore", pattern]);
    }
    for case in cases {
        command.args(["--match", case]);
    }
    command.current_dir(stage.path(""));
    let finished = stage.run(&mut command);
    let failed = failed_cases(&report);
    assert!(
        finished.status.success() || !failed.is_empty(),
        "{name} did not come to its end:\n{}\n{}",
        finished.stdout,
        finished.stderr
    );
    failed
}

/// Names of the `testcase` elements that hold a `failure` or an `error`.
fn failed_cases(report: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let mut ran = 0;
    let mut failed = BTreeSet::new();
    for element in text.split("<testcase ").skip(1) {
        ran += 1;
        if element.contains("<failure") || element.contains("<error") {
            let name = element.split("name=\"").nth(1).and_then(|rest| rest.split('"').next());
            failed.insert(name.unwrap_or_default().to_owned());
        }
    }
    assert!(ran > 0, "no test ran; is libpython-testsuite installed?\n{text}");
    failed
}

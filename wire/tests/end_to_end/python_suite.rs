//! CPython's own tests of everything that uses sockets, accelerated and taken back to TCP.
//!
//! Both ends of their connections are mostly in one process. What fails is run again plain: a test
//! that fails on this machine without Seekwire too is none of its business.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::harness::{Mode, Stage, python};

/// Tests of these are left out: VSOCK waits for a host side for ever, and nobody here tests
/// Bluetooth.
const LEFT_OUT: [&str; 2] = ["test.test_socket.*VSOCK*", "test.test_socket.*Bluetooth*"];

/// These believe that loopback is a network that one has to ask for.
const NETWORK: [&str; 1] = ["test_socketserver"];

/// A failure that depends on where a read ends, which TCP leaves open: the case, and what it says.
///
/// test_ftplib's server decodes each recv(1024) by itself. Who falls behind after 148, 404, 660 or
/// 916 lines of 12 bytes reads up to the middle of the one character of two bytes, and counts two.
const TORN: [(&str, &str); 1] = [(".test_storlines", "12019 != 12018")];

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
    let mut failed = failures(&stage, stage.command(python()), name, &[]);
    if failed.is_empty() {
        return;
    }
    let cases: Vec<&str> = failed.keys().map(String::as_str).collect();
    let also_plain = failures(&stage, stage.plain_command(python()), name, &cases);
    failed.retain(|case, _| !also_plain.contains_key(case));
    assert!(failed.is_empty(), "fail under Seekwire only: {failed:#?}");
}

/// The cases of the suite `name` that fail, and what they say; of `cases` alone, if there are any.
fn failures(
    stage: &Stage,
    mut command: Command,
    name: &str,
    cases: &[&str],
) -> BTreeMap<String, String> {
    let report = stage.path("report.xml");
    // Left by an earlier run.
    let _ = std::fs::remove_file(&report);
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
    let mut failed = failed_cases(&report);
    assert!(
        finished.status.success() || !failed.is_empty(),
        "{name} did not come to its end:\n{}\n{}",
        finished.stdout,
        finished.stderr
    );
    let all = failed.len();
    failed.retain(|case, said| !is_torn(case, said));
    // Some failures are not cases of their own: parts of a case (subTest), set-up and tear-down
    // of a class.
    assert!(
        failed.len() == all || all == counted(&report),
        "{name} says more than {failed:#?}:\n{}\n{}",
        finished.stdout,
        finished.stderr
    );
    failed
}

/// The failures and errors that the `testsuite` elements count.
fn counted(report: &Path) -> usize {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let heads = text.split("<testsuite ").skip(1).filter_map(|suite| suite.split('>').next());
    let number = |head: &str, name: &str| {
        let value = head.split(&format!("{name}=\"")).nth(1)?.split('"').next()?;
        value.parse::<usize>().ok()
    };
    heads.flat_map(|head| ["errors", "failures"].map(|name| number(head, name).unwrap_or(0))).sum()
}

fn is_torn(case: &str, said: &str) -> bool {
    TORN.iter().any(|(torn, what)| case.ends_with(torn) && said.contains(what))
}

/// The `testcase` elements that hold a `failure` or an `error`: name, and what they hold.
fn failed_cases(report: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(report).unwrap_or_default();
    let mut ran = 0;
    let mut failed = BTreeMap::new();
    for element in text.split("<testcase ").skip(1) {
        ran += 1;
        let said = element.split("</testcase>").next().unwrap_or_default();
        if said.contains("<failure") || said.contains("<error") {
            let name = said.split("name=\"").nth(1).and_then(|rest| rest.split('"').next());
            failed.insert(name.unwrap_or_default().to_owned(), said.to_owned());
        }
    }
    assert!(ran > 0, "no test ran; is libpython-testsuite installed?\n{text}");
    failed
}

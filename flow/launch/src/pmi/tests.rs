//! A launcher at the other end of a socket pair, which sends what real ones do not.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use proptest::prelude::*;

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
const NAME: &str = "cmd=my_kvsname kvsname=kvs_1_0\n";

/// Sends these answers, one for each line received, and then closes. Returns the lines received.
fn server(socket: UnixStream, answers: Vec<Vec<u8>>) -> JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
        let mut come = Vec::new();
        for answer in answers {
            match lines.next() {
                Some(Ok(line)) => come.push(line),
                _ => break,
            }
            // The client may have closed after a line that is too long.
            let _ = (&socket).write_all(&answer);
        }
        come
    })
}

fn conversation(answers: &[&str], run: impl FnOnce(&mut Pmi)) -> Vec<String> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let answers = [INIT, MAXES, NAME].iter().chain(answers);
    let server = server(theirs, answers.map(|answer| answer.as_bytes().to_vec()).collect());
    run(&mut Pmi::inherited(ours.into(), 1, LIMIT).unwrap());
    server.join().unwrap()
}

/// The error that results from wrong answers to the first requests.
fn beginning(answers: &[&[u8]], limit: Duration) -> Error {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = server(theirs, answers.iter().map(|answer| answer.to_vec()).collect());
    let error = Pmi::inherited(ours.into(), 1, limit).unwrap_err();
    server.join().unwrap();
    error
}

#[test]
fn a_job_says_these_lines() {
    let answers = [
        "cmd=put_result rc=0 msg=success\n",
        "cmd=barrier_out\n",
        "cmd=get_result rc=0 msg=success value=1:192.0.2.1:4711\n",
        "cmd=get_result rc=-1 msg=key_sw.0.none.0_not_found value=unknown\n",
        "cmd=finalize_ack\n",
    ];
    let come = conversation(&answers, |pmi| {
        assert_eq!(pmi.launcher(Some("1.0")), Launcher::Hydra);
        assert_eq!(pmi.launcher(Some("kvs_1_0")), Launcher::Slurm);
        pmi.put("address", "192.0.2.2:1 b").unwrap();
        pmi.barrier().unwrap();
        assert_eq!(pmi.get(0, "address").unwrap().as_deref(), Some("192.0.2.1:4711"));
        assert_eq!(pmi.get(0, "none").unwrap(), None);
        pmi.finish().unwrap();
    });
    assert_eq!(
        come[3..],
        [
            "cmd=put kvsname=kvs_1_0 key=sw.1.address.0 value=1:192.0.2.2:1%20b",
            "cmd=barrier_in",
            "cmd=get kvsname=kvs_1_0 key=sw.0.address.0",
            "cmd=get kvsname=kvs_1_0 key=sw.0.none.0",
            "cmd=finalize",
        ]
    );
}

#[test]
fn long_values_go_in_pieces() {
    let value = "x".repeat(PIECE - COUNT) + "y";
    let put = "cmd=put_result rc=0\n";
    let first = format!("cmd=get_result rc=0 value=2:{}\n", "x".repeat(PIECE - COUNT));
    let answers = [put, put, &first, "cmd=get_result rc=0 value=y\n"];
    let come = conversation(&answers, |pmi| {
        pmi.put("long", &value).unwrap();
        assert_eq!(pmi.get(0, "long").unwrap(), Some(value));
    });
    assert!(come[3].starts_with("cmd=put kvsname=kvs_1_0 key=sw.1.long.0 value=2:xx"));
    assert_eq!(come[4], "cmd=put kvsname=kvs_1_0 key=sw.1.long.1 value=y");
    assert!(come.iter().all(|line| line.len() < 1024));
}

#[test]
fn an_empty_value_is_one_too() {
    let answers = ["cmd=put_result rc=0\n", "cmd=get_result rc=0 value=1:\n"];
    let come = conversation(&answers, |pmi| {
        pmi.put("nothing", "").unwrap();
        assert_eq!(pmi.get(0, "nothing").unwrap(), Some(String::new()));
    });
    assert!(come[3].ends_with("value=1:"));
}

#[test]
fn what_a_launcher_cannot_carry_is_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let small = "cmd=maxes kvsname_max=256 keylen_max=20 vallen_max=8\n";
    let answers = [INIT, small, NAME].map(|answer| answer.as_bytes().to_vec());
    let server = server(theirs, answers.to_vec());
    let mut pmi = Pmi::inherited(ours.into(), 1, LIMIT).unwrap();
    server.join().unwrap();
    let error = pmi.put("key", &"v".repeat(4000)).unwrap_err();
    assert!(matches!(error, Error::TooLong { limit: 2997, .. }), "{error}");
    let error = pmi.put("a-long-name", "v").unwrap_err();
    assert!(matches!(error, Error::LongKey { limit: 19, .. }), "{error}");
}

#[test]
fn senseless_answers_are_shown() {
    for said in [
        "cmd=barrier_out\n",
        "\n",
        "response_to_init\n",
        "cmd=response_to_init_2 rc=0\n",
        "cmd=\u{1b}[31m\n",
    ] {
        let error = beginning(&[said.as_bytes()], LIMIT);
        let text = error.to_string();
        assert!(matches!(error, Error::Protocol { .. }), "{said:?}: {text}");
        assert!(text.contains("to begin") && !text.contains('\u{1b}'), "{text}");
    }
    let error = beginning(&[b"cmd=response_to_init \xff\n"], LIMIT);
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    let error = beginning(&[b"cmd=response_to_init rc=-1 msg=version\n"], LIMIT);
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    for maxes in [
        "cmd=maxes\n",
        "cmd=maxes keylen_max=64 vallen_max=4\n",
        "cmd=maxes keylen_max=64 vallen_max=-1\n",
        "cmd=maxes keylen_max=x vallen_max=1024\n",
        "cmd=maxes keylen_max=64 vallen_max=99999999999999999999999\n",
    ] {
        let error = beginning(&[INIT.as_bytes(), maxes.as_bytes()], LIMIT);
        assert!(matches!(error, Error::Protocol { .. }), "{maxes}: {error}");
    }
    let name = format!("cmd=my_kvsname kvsname={}\n", "n".repeat(300));
    for name in ["cmd=my_kvsname\n", "cmd=my_kvsname kvsname=\n", &name] {
        let error = beginning(&[INIT.as_bytes(), MAXES.as_bytes(), name.as_bytes()], LIMIT);
        assert!(matches!(error, Error::Protocol { .. }), "{name}: {error}");
    }
}

#[test]
fn a_line_without_end_is_cut_off() {
    let long = "cmd=".repeat(1 << 18);
    let error = beginning(&[long.as_bytes()], LIMIT);
    let text = error.to_string();
    assert!(matches!(error, Error::Protocol { .. }) && text.len() < 400, "{text}");
}

#[test]
fn a_launcher_that_goes_or_is_silent_is_an_error() {
    let error = beginning(&[b"cmd=response"], LIMIT);
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    let error = beginning(&[], LIMIT);
    assert!(matches!(error, Error::Gone { .. }), "{error}");
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let error = Pmi::inherited(ours.into(), 1, SHORT).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Silent { .. }) && text.contains("to begin"), "{text}");
}

#[test]
fn half_an_answer_does_not_begin_the_limit_anew() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    // Bytes arrive as long as the client listens, but never a newline.
    let server = thread::spawn(move || {
        while stopped.try_recv().is_err() && (&theirs).write_all(b"c").is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let error = Pmi::inherited(ours.into(), 1, SHORT).unwrap_err();
    drop(stop);
    server.join().unwrap();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
}

#[test]
fn after_a_wrong_answer_nothing_is_believed() {
    let answers = ["cmd=get_result rc=0 value=1:late\n", "cmd=barrier_out\n"];
    conversation(&answers, |pmi| {
        let error = pmi.barrier().unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
        let error = pmi.get(0, "address").unwrap_err();
        assert!(matches!(error, Error::Broken), "{error}");
    });
}

#[test]
fn values_that_nobody_has_put_are_errors() {
    for value in ["", "x", "0:x", "1000:x", "-1:x", ":x", "1:%zz", "1:%FF"] {
        let answer = format!("cmd=get_result rc=0 value={value}\n");
        conversation(&[&answer], |pmi| {
            let error = pmi.get(0, "address").unwrap_err();
            assert!(matches!(error, Error::Protocol { .. }), "{value}: {error}");
        });
    }
    let answers = ["cmd=get_result rc=0 value=2:x\n", "cmd=get_result rc=1\n"];
    conversation(&answers, |pmi| {
        let error = pmi.get(0, "address").unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    });
    conversation(&["cmd=get_result rc=0\n"], |pmi| {
        let error = pmi.get(0, "address").unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    });
}

#[test]
fn a_port_says_who_one_is_and_no_rank_is_beyond_the_size() {
    for (size, rank, fits) in [("2", "1", true), ("2", "2", false), ("0", "0", false)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let introduction =
            format!("cmd=initack\ncmd=set size={size}\ncmd=set rank={rank}\ncmd=set debug=0\n");
        let server = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(socket.try_clone().unwrap()).lines();
            for answer in [introduction.as_str(), INIT, MAXES, NAME] {
                if lines.next().is_none() {
                    break;
                }
                (&socket).write_all(answer.as_bytes()).unwrap();
            }
        });
        match Pmi::port(&[address], 5, LIMIT) {
            Ok((pmi, rank, size)) => {
                assert!(fits);
                assert_eq!((rank, size, pmi.rank), (1, 2, 1));
            }
            Err(error) => {
                assert!(!fits && matches!(error, Error::Protocol { .. }), "{error}");
            }
        }
        server.join().unwrap();
    }
}

#[test]
fn a_port_where_nobody_listens_is_named() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Pmi::port(&[address], 0, LIMIT).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("PMI_PORT"), "{error}");
}

proptest! {
    #[test]
    fn no_answer_ends_the_program(answers in proptest::collection::vec(any::<Vec<u8>>(), 0..4)) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let whole = answers.into_iter().map(|answer| [&answer[..], b"\n"].concat());
        let server = server(theirs, whole.collect());
        prop_assert!(Pmi::inherited(ours.into(), 1, LIMIT).is_err());
        server.join().unwrap();
    }

    #[test]
    fn any_words_make_an_answer_or_an_error(line in "(cmd|rc|value|=| |x|get_result|-|1|:){0,12}") {
        let answer = Answer::of(line, "get_result", "for nothing");
        if let Ok(answer) = answer {
            let _ = answer.success("for nothing");
            let _ = answer.number("rc", "for nothing");
        }
    }
}

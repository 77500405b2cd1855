//! Programs that do not speak the protocol, and programs that break its rules.

use super::{HELLO, PYTHON, RAW, run, through};
use crate::harness::text;

#[test]
fn programs_without_the_protocol_are_reported() {
    for (command, options, expected) in [
        (&["cat"][..], "", "cat: does not speak the filter protocol: it begins with \"seekflt>"),
        (&["echo", "Usage: x"], "", "begins with \"Usage: x\\n\""),
        (&["true"], "", "true: ended with exit status 0 instead of an answer"),
        (&["sh", "-c", "exit 3"], "", "sh: ended with exit status 3 instead of an answer"),
        (&["sh", "-c", "kill -9 $$"], "", "sh: was ended by signal 9 instead of an answer"),
        // Another process has its pipes, and keeps them until they are closed at this end.
        (
            &["sh", "-c", "{ cat >/dev/null <&3; } 3<&0 2>/dev/null & exit 3"],
            "",
            "sh: ended with exit status 3 instead of an answer",
        ),
        (&["printf", "seekf"], "", "printf: ended with exit status 0 within a frame"),
        (&["sh", "-c", "exec >&-; exec sleep 1000"], "", "sh: closed its standard output instead"),
        (
            &["sleep", "1000"],
            "start = 1",
            "sleep: did not say hello as the filter protocol requires within 1 s",
        ),
        // It reads, as most programs do, and writes nothing before the end.
        (&["wc"], "start = 1", "wc: did not say hello"),
    ] {
        let output = run(&through(command, options, "", ""), &["data"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains(expected), "{command:?}: {said}");
    }
}

#[test]
fn programs_that_break_the_rules_are_reported() {
    for (python, options, expected) in [
        ("write(b'seekflt<' + struct.pack('<II', 2, 0))", "", "speaks version 2 of the filter"),
        (
            "write(b'seekflt<' + struct.pack('<II', 1, 1))",
            "",
            "says hello with bytes that must be 0",
        ),
        (
            "write(b'seekflt<' + struct.pack('<IIIIQQ', 1, 0, 7, 0, 9, 8) + b'no model'); ask(); ask()",
            "",
            "filter own, copy 0: python3: no model",
        ),
        ("HELLO; serve_first(); sys.exit(4)", "", "ended with exit status 4 instead of an answer"),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x', length=9); sys.exit(0)",
            "",
            "within a frame",
        ),
        ("HELLO; serve_first(); ask(); write(b'\\x02\\0'); sys.exit(0)", "", "0 within a frame"),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x', length=4 << 30); time.sleep(1000)",
            "",
            "sent a block of 4294967296 bytes; `largest` allows 67108864 bytes",
        ),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x' * 11); time.sleep(1000)",
            "largest = 10",
            "sent a block of 11 bytes; `largest` allows 10 bytes",
        ),
        ("HELLO; serve_first(); ask(); tell(9, 0); time.sleep(1000)", "", "sent a frame of kind 9"),
        (
            "HELLO; serve_first(); ask(); tell(5, 0, b'x'); time.sleep(1000)",
            "",
            "kind 5 with 1 byte",
        ),
        (
            "HELLO; serve_first(); ask(); tell(2, 0, b'x', port=1); time.sleep(1000)",
            "",
            "sent a block to output port 1; it has 1, counted from 0",
        ),
        (
            "HELLO; serve_first(); ask(); tell(2, 77, b'x'); time.sleep(1000)",
            "",
            "answered number 77, and was asked number 0",
        ),
        ("HELLO; serve_first(); ask(); tell(6, 0); time.sleep(1000)", "", "not asked to generate"),
        (
            "HELLO; serve_first(); ask(); write(struct.pack('<IIQQ', 5, 0, 0, 0) * 2); ask()",
            "",
            "sent a frame after the end of its answer",
        ),
        (
            "HELLO; serve_first(); ask(); write(struct.pack('<IIQQ', 5, 0, 0, 0) + b'x'); ask()",
            "",
            "sent bytes after the end of its answer",
        ),
        ("HELLO; serve_first(); tell(7, 0, b'I will not'); sys.exit(0)", "", "python3: I will not"),
        (
            "HELLO; serve_first(); asked(); os.close(0); tell(5, 0); time.sleep(1000)",
            "",
            "closed its standard input before it had read all of a request",
        ),
        (
            "HELLO; serve_first(); head(); tell(5, 0); sys.exit(0)",
            "",
            "ended with exit status 0 before it had read all of a request",
        ),
        ("HELLO; serve_first(); os.close(1); time.sleep(1000)", "", "closed its standard output"),
        ("HELLO; serve_first(); time.sleep(1000)", "timeout = 1", "did not answer within 1 s"),
        (
            "HELLO; serve_first()\nwhile (request := ask())[0] != 4:\n    tell(5, request[2])\ntime.sleep(1000)",
            "timeout = 1",
            "filter own, copy 0: python3: did not answer within 1 s",
        ),
        ("HELLO; ask(); tell(7, 0, b'\\xff\\x1b[31m no'); ask()", "", "python3: \u{fffd}"),
        ("HELLO; ask(); tell(7, 0, length=65537); ask()", "", "sent an error of 65537 bytes"),
    ] {
        let python = python.replace("HELLO; ", HELLO);
        let output = run(&through(&PYTHON, options, "", &format!("{RAW}{python}")), &["data"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{python}: {said}");
        assert!(said.contains(expected), "{python}: {said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
}

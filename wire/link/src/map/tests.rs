use proptest::prelude::*;

use super::*;

const GOOD: &str = "
# links
link  db-web  ivshmem 0000:00:04.0  first   # of the database
10.0.0.2   db-web
link\ttests   file /dev/shm/tests   second
state /run/other
::ffff:10.0.0.3 tests
fd00::2    db-web
link cache xen 3/64M second
link pod memory /run/pod/socket second
";

fn error(text: &str) -> (usize, String) {
    let error = Map::parse(text).unwrap_err();
    (error.line, error.what)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn links_and_their_addresses_are_found() {
    let map = Map::parse(GOOD).unwrap();
    let [one, two, three, four] = map.links() else { panic!("{map:?}") };
    assert_eq!((one.name.as_str(), one.side), ("db-web", Side::First));
    assert_eq!(one.provider, Provider::Ivshmem("0000:00:04.0".to_owned()));
    assert_eq!((two.name.as_str(), two.side), ("tests", Side::Second));
    assert_eq!(two.provider, Provider::File("/dev/shm/tests".into()));
    assert_eq!(three.provider, Provider::Xen { domain: 3, length: 64 << 20 });
    assert_eq!(four.provider, Provider::Memory("/run/pod/socket".into()));
    assert_eq!(map.get("tests"), Some(two));
    assert_eq!(map.get("test"), None);
    assert_eq!(map.of_address(ip("10.0.0.2")), Some(one));
    assert_eq!(map.of_address(ip("fd00::2")), Some(one));
    // An IPv6 socket that is connected over IPv4 has such addresses.
    assert_eq!(map.of_address(ip("::ffff:10.0.0.2")), Some(one));
    assert_eq!(map.of_address(ip("10.0.0.3")), Some(two));
    assert_eq!(map.of_address(ip("10.0.0.4")), None);
    assert_eq!(map.addresses("db-web").collect::<Vec<_>>(), [ip("10.0.0.2"), ip("fd00::2")]);
    assert_eq!(map.addresses("none").count(), 0);
    assert_eq!(map.state(), Path::new("/run/other"));
}

#[test]
fn the_environment_says_where_the_map_is_unless_it_says_nothing() {
    assert_eq!(path_by(Some("/a/map".into())), Path::new("/a/map"));
    assert_eq!(path_by(Some("".into())), Path::new(PATH));
    assert_eq!(path_by(None), Path::new(PATH));
}

#[test]
fn an_empty_map_has_a_place_for_state() {
    let map = Map::parse("# nothing\n").unwrap();
    assert_eq!(map, Map::default());
    assert_eq!(map.state(), Path::new(STATE));
}

#[test]
fn each_mistake_is_told_with_its_line_and_what_to_do() {
    let link = "link a file /a first\n";
    for (text, line, what) in [
        ("link a file /a".to_owned(), 1, "expected: link NAME memory SOCKET"),
        ("\nlink a file /a first again".to_owned(), 2, "expected: link NAME"),
        ("link A file /a first".to_owned(), 1, "A is not a name"),
        ("link -a file /a first".to_owned(), 1, "do not begin with -"),
        (format!("link {} file /a first", "a".repeat(33)), 1, "1 to 32"),
        ("link a shm /a first".to_owned(), 1, "use memory, file, ivshmem or xen"),
        ("link a file a first".to_owned(), 1, "must begin with /"),
        ("link a ivshmem 00:04.0 first".to_owned(), 1, "one like 0000:00:04.0"),
        ("link a ivshmem 0000:00:04.8 first".to_owned(), 1, "one like 0000:00:04.0"),
        ("link a ivshmem ../../../../ first".to_owned(), 1, "one like 0000:00:04.0"),
        ("link a xen 3 first".to_owned(), 1, "expected one like 3/64M"),
        ("link a xen /64M first".to_owned(), 1, "expected one like 3/64M"),
        ("link a xen 32752/64M first".to_owned(), 1, "expected one like 3/64M"),
        ("link a xen +3/64M first".to_owned(), 1, "expected one like 3/64M"),
        ("link a xen 3/0M first".to_owned(), 1, "1M to 256M"),
        ("link a xen 3/257M first".to_owned(), 1, "1M to 256M"),
        ("link a xen 3/64 first".to_owned(), 1, "1M to 256M"),
        ("link a file /a third".to_owned(), 1, "third is not a side"),
        (format!("{link}{link}"), 2, "the link a already exists"),
        (format!("{link}link b file /a second"), 2, "/a already belongs to the link a"),
        ("state run".to_owned(), 1, "must begin with /"),
        ("state /a /b".to_owned(), 1, "expected: state PATH"),
        ("state /a\nstate /b".to_owned(), 2, "already set above"),
        ("10.0.0.0/8 a".to_owned(), 1, "10.0.0.0/8 is not an IP address"),
        ("host a".to_owned(), 1, "host is not an IP address"),
        ("fe80::1%eth0 a".to_owned(), 1, "without an interface name"),
        ("127.0.0.1 a".to_owned(), 1, "not an address of another machine"),
        ("::ffff:127.0.0.1 a".to_owned(), 1, "not an address of another machine"),
        ("0.0.0.0 a".to_owned(), 1, "not an address of another machine"),
        (":: a".to_owned(), 1, "not an address of another machine"),
        ("ff02::1 a".to_owned(), 1, "not an address of another machine"),
        ("255.255.255.255 a".to_owned(), 1, "not an address of another machine"),
        ("0.1.2.3 a".to_owned(), 1, "not an address of another machine"),
        (format!("{link}10.0.0.1 a\n::ffff:10.0.0.1 a"), 3, "10.0.0.1 is already in line 2"),
        ("10.0.0.1 /a".to_owned(), 1, "/a is not a name"),
        (format!("{link}10.0.0.9 b\n10.0.0.1 c"), 2, "the link b is not defined"),
        ("10.0.0.1".to_owned(), 1, "or: ADDRESS NAME"),
        ("10.0.0.1 a b".to_owned(), 1, "or: ADDRESS NAME"),
    ] {
        let (at, said) = error(&text);
        assert!(at == line && said.contains(what), "{text:?}: {at}: {said}");
    }
}

#[test]
fn there_are_limits() {
    let links: String = (0..65).map(|at| format!("link a{at} file /{at} first\n")).collect();
    assert_eq!(error(&links).0, 65);
    let addresses = (0..4097).map(|at| format!("10.0.{}.{} a\n", at / 256, at % 256));
    let addresses: String = addresses.collect();
    assert_eq!(error(&addresses), (4097, "a map has at most 4096 addresses".to_owned()));
    assert_eq!(error(&"#\n".repeat(1 << 20)), (0, TOO_LONG.to_owned()));
}

#[test]
fn a_file_is_named_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("links");
    assert_eq!(Map::read(&path), Ok(Map::default()));
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Map::read(&path).unwrap_err().to_string()
    };
    let name = path.display().to_string();
    assert!(said(b"\n\nlink a").starts_with(&format!("{name}:3: expected: link NAME")));
    assert_eq!(said(b"#\n#\xff\n"), format!("{name}:2: this is not text in UTF-8"));
    assert_eq!(said(&vec![b'#'; (1 << 20) + 1]), format!("{name}: {TOO_LONG}"));
    std::fs::write(&path, GOOD).unwrap();
    assert_eq!(Map::read(&path), Map::parse(GOOD));
    let directory = Map::read(dir.path()).unwrap_err().to_string();
    assert!(directory.ends_with("this is not a regular file"), "{directory}");
}

/// Lines that are almost correct.
fn lines() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("link".to_owned()),
        Just("state".to_owned()),
        Just("file".to_owned()),
        Just("ivshmem".to_owned()),
        Just("0000:00:04.0".to_owned()),
        Just("xen".to_owned()),
        Just("3/64M".to_owned()),
        Just("first".to_owned()),
        Just("second".to_owned()),
        "[a-c]",
        "/[a-c]",
        any::<IpAddr>().prop_map(|address| address.to_string()),
        "\\PC{0,6}",
        Just("#".to_owned()),
        Just("\n".to_owned()),
    ];
    proptest::collection::vec(word, 0..60).prop_map(|words| words.join(" "))
}

fn maps() -> impl Strategy<Value = Map> {
    let addresses = proptest::collection::vec((any::<IpAddr>(), any::<usize>()), 0..20);
    (1..9usize, addresses, "/[a-z/]{1,9}").prop_map(|(count, addresses, state)| {
        let links: Vec<_> = (0..count)
            .map(|at| Definition {
                name: format!("link-{at}"),
                provider: match at % 4 {
                    3 => Provider::Memory(format!("/run/{at}").into()),
                    0 => Provider::File(format!("/dev/shm/{at}").into()),
                    1 => Provider::Xen { domain: at as u16, length: (at as u64) << 20 },
                    _ => Provider::Ivshmem(format!("0000:00:{at:02x}.0")),
                },
                side: if at % 3 == 0 { Side::First } else { Side::Second },
            })
            .collect();
        let addresses = addresses.into_iter().map(|(ip, at)| (ip.to_canonical(), at % count));
        let addresses = addresses.filter(|(ip, _)| is_of_another(*ip)).collect();
        Map { links, addresses, state: state.into() }
    })
}

proptest! {
    #[test]
    fn any_text_is_a_map_or_is_refused(text in prop_oneof![lines(), any::<String>()]) {
        if let Ok(map) = Map::parse(&text) {
            prop_assert_eq!(Map::parse(&map.to_string()), Ok(map));
        }
    }

    #[test]
    fn what_is_printed_is_read_as_the_same_map(map in maps()) {
        prop_assert_eq!(Map::parse(&map.to_string()), Ok(map));
    }
}

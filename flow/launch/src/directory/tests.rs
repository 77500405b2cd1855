use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn join(path: &Path, rank: u32, limit: Duration) -> Result<Rendezvous, Error> {
    Rendezvous::join(path, "job", rank, 2, limit)
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory with the mode that mktemp gives it.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o700)).unwrap();
    directory
}

#[test]
fn values_are_exchanged_in_rounds_and_nothing_remains() {
    let directory = directory();
    let path = directory.path();
    thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let mut rendezvous = join(path, rank, LIMIT).unwrap();
                rendezvous.put("address", &format!("of {rank}\n")).unwrap();
                rendezvous.exchange().unwrap();
                let other = 1 - rank;
                let value = rendezvous.get(other, "address").unwrap();
                assert_eq!(value, Some(format!("of {other}\n")));
                assert_eq!(rendezvous.get(other, "later").unwrap(), None);
                rendezvous.put("later", "").unwrap();
                let mode = fs::metadata(path.join(format!("job.{rank}.1"))).unwrap();
                assert_eq!(mode.permissions().mode() & 0o7777, 0o600);
                rendezvous.exchange().unwrap();
                assert_eq!(rendezvous.get(other, "later").unwrap(), Some(String::new()));
                assert_eq!(rendezvous.get(other, "address").unwrap(), value);
                rendezvous.finish().unwrap();
            });
        }
    });
    assert_eq!(names(path), [""; 0]);
}

#[test]
fn a_directory_in_which_others_can_write_is_refused() {
    let directory = directory();
    for mode in [0o720, 0o702, 0o777, 0o1777] {
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        let error = join(directory.path(), 0, LIMIT).unwrap_err();
        assert!(matches!(error, Error::Unsafe { .. }), "{mode:o}: {error}");
    }
    assert_eq!(names(directory.path()), [""; 0]);
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    join(directory.path(), 0, LIMIT).unwrap();
}

#[test]
fn a_directory_of_another_user_is_refused() {
    // Of root if a user runs this, and of nobody if root does.
    let directory = directory();
    let path = if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(directory.path(), Some(65534), None).unwrap();
        directory.path()
    } else {
        Path::new("/usr")
    };
    let error = join(path, 0, LIMIT).unwrap_err();
    assert!(matches!(error, Error::Unsafe { .. }), "{error}");
}

#[test]
fn what_is_no_directory_is_named() {
    let directory = directory();
    let path = directory.path().join("none");
    let error = join(&path, 0, LIMIT).unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
    fs::write(&path, "").unwrap();
    let error = join(&path, 0, LIMIT).unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
}

#[test]
fn a_rank_is_taken_once() {
    let directory = directory();
    let _first = join(directory.path(), 0, LIMIT).unwrap();
    let error = join(directory.path(), 0, LIMIT).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
}

#[test]
fn who_does_not_come_is_named() {
    let directory = directory();
    let mut rendezvous = join(directory.path(), 0, SHORT).unwrap();
    let text = rendezvous.exchange().unwrap_err().to_string();
    assert!(text.contains("rank 1") && text.contains("exchange 1"), "{text}");
    let text = rendezvous.finish().unwrap_err().to_string();
    assert!(text.contains("rank 1 to finish"), "{text}");
    assert_eq!(names(directory.path()), [""; 0]);
    assert_eq!(ranks(&[3]), "rank 3");
    let many: Vec<u32> = (0..10).collect();
    assert_eq!(ranks(&many), "rank 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

#[test]
fn who_ends_the_job_ends_it_for_all() {
    let directory = directory();
    let mut first = join(directory.path(), 0, LIMIT).unwrap();
    let second = join(directory.path(), 1, LIMIT).unwrap();
    second.abort("no memory").unwrap();
    let text = first.exchange().unwrap_err().to_string();
    assert!(text.contains("rank 1: no memory") && text.contains("job.stop"), "{text}");
    first.leave().unwrap();
    assert_eq!(names(directory.path()), ["job.stop"]);
}

#[test]
fn who_cannot_write_leaves_nothing_behind_and_the_others_learn_of_it() {
    let directory = directory();
    let mut first = join(directory.path(), 0, LIMIT).unwrap();
    let mut second = join(directory.path(), 1, LIMIT).unwrap();
    let observer = first.observer().unwrap();
    observer.is_stopped().unwrap();
    // No file takes the name of a directory.
    fs::create_dir(directory.path().join("job.1.1")).unwrap();
    for _ in 0..2 {
        let error = second.exchange().unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error}");
        assert_eq!(names(directory.path()), ["job.0.here", "job.1.1", "job.1.here"]);
    }
    second.leave().unwrap_err();
    assert_eq!(names(directory.path()), ["job.0.here", "job.1.1", "job.stop"]);
    let text = observer.is_stopped().unwrap_err().to_string();
    assert!(text.contains("rank 1: it left without finishing"), "{text}");
    fs::remove_dir(directory.path().join("job.1.1")).unwrap();
    let text = first.exchange().unwrap_err().to_string();
    assert!(text.contains("rank 1: it left without finishing"), "{text}");
}

#[test]
fn the_job_is_over_even_if_nobody_can_say_why() {
    let directory = directory();
    let mut first = join(directory.path(), 0, LIMIT).unwrap();
    let second = join(directory.path(), 1, LIMIT).unwrap();
    // No other file can be created.
    fs::create_dir(directory.path().join("job.1.new")).unwrap();
    second.leave().unwrap_err();
    assert_eq!(names(directory.path()), ["job.0.here", "job.1.new", "job.stop"]);
    let text = first.exchange().unwrap_err().to_string();
    assert!(text.contains("ended by a process that had no room"), "{text}");
}

#[test]
fn rank_0_need_not_wait_for_one_that_cannot_finish() {
    let directory = directory();
    let mut first = join(directory.path(), 0, LIMIT).unwrap();
    let mut second = join(directory.path(), 1, LIMIT).unwrap();
    fs::create_dir(directory.path().join("job.1.done")).unwrap();
    second.finish().unwrap_err();
    fs::remove_dir(directory.path().join("job.1.done")).unwrap();
    assert!(matches!(first.finish(), Err(Error::Aborted { .. })));
    assert_eq!(names(directory.path()), ["job.stop"]);
}

#[test]
fn files_that_nobody_of_us_has_written_are_refused() {
    let directory = directory();
    let mut rendezvous = join(directory.path(), 0, LIMIT).unwrap();
    let file = directory.path().join("job.1.1");
    for content in [&b"key"[..], b"key %zz\n", b"\xff \n"] {
        fs::write(&file, content).unwrap();
        rendezvous.round = 1;
        let error = rendezvous.get(1, "key").unwrap_err();
        assert!(matches!(error, Error::Unsafe { .. }), "{content:?}: {error}");
    }
    fs::File::create(&file).unwrap().set_len(LONGEST as u64 + 1).unwrap();
    let error = rendezvous.get(1, "key").unwrap_err();
    assert!(matches!(error, Error::Unsafe { .. }), "{error}");
    fs::remove_file(&file).unwrap();
    symlink("/etc/passwd", &file).unwrap();
    let error = rendezvous.get(1, "key").unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, Mode::RUSR).unwrap();
    let error = rendezvous.get(1, "key").unwrap_err();
    assert!(matches!(error, Error::Unsafe { .. }), "{error}");
    fs::remove_file(&file).unwrap();
    let error = rendezvous.get(1, "key").unwrap_err();
    assert!(matches!(error, Error::Unsafe { .. }), "{error}");
}

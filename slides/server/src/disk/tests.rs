use super::*;

fn name(number: u32) -> Name {
    Name::new(&["slide", &number.to_string()])
}

fn image(number: u32) -> Bytes {
    Bytes::from(vec![number as u8; 12_000])
}

/// Files with images, and their disk space.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let folders = entries(directory).filter(|path| path.is_dir());
    folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>()).collect()
}

fn held(directory: &Path) -> u64 {
    files(directory).iter().map(|path| size_on_disk(fs::metadata(path).unwrap().len())).sum()
}

#[test]
fn what_is_kept_is_found_by_the_next_server() {
    let directory = tempfile::tempdir().unwrap();
    let directory_path = directory.path().join("not/there/yet");
    let disk = Disk::start(&directory_path, 1 << 20).unwrap();
    assert_eq!(disk.shared.read(name(1)), None);
    disk.put(name(1), image(1));
    disk.put(name(2), image(2));
    drop(disk);
    let disk = Disk::start(&directory_path, 1 << 20).unwrap();
    assert_eq!(disk.shared.read(name(1)), Some(image(1)));
    assert_eq!(disk.shared.read(name(3)), None);
    let counts = disk.counts();
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!((of(&counts.found), of(&counts.missing), of(&counts.broken)), (1, 1, 0));
    assert!(directory_path.join("CACHEDIR.TAG").exists());
    assert_eq!(files(&directory_path).len(), 2);
}

#[test]
fn what_is_not_as_it_was_written_is_not_given_out() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::start(directory.path(), 1 << 20).unwrap();
    (0..6).for_each(|number| disk.put(name(number), image(number)));
    drop(disk);
    let disk = Disk::start(directory.path(), 1 << 20).unwrap();
    let path_of = |number| disk.shared.path_of(name(number));
    let whole = fs::read(path_of(0)).unwrap();
    let mut flipped = whole.clone();
    flipped[5000] ^= 1;
    fs::write(path_of(0), flipped).unwrap();
    fs::write(path_of(1), &fs::read(path_of(1)).unwrap()[..3000]).unwrap();
    fs::write(path_of(2), "").unwrap();
    // A complete image with the name of another one.
    fs::write(path_of(3), &whole).unwrap();
    fs::remove_file(path_of(4)).unwrap();
    fs::create_dir(path_of(4)).unwrap();
    for number in 0..5 {
        assert_eq!(disk.shared.read(name(number)), None, "{number}");
    }
    assert_eq!(disk.shared.read(name(5)), Some(image(5)));
    assert_eq!(disk.counts().broken.load(Ordering::Relaxed), 4);
    assert!(!path_of(0).exists() && !path_of(3).exists());
    // The image is made and stored again.
    disk.put(name(0), image(0));
    drop(disk);
    let disk = Disk::start(directory.path(), 1 << 20).unwrap();
    assert_eq!(disk.shared.read(name(0)), Some(image(0)));
}

#[test]
fn the_bound_holds_for_two_servers_and_what_was_used_stays() {
    let directory = tempfile::tempdir().unwrap();
    let limit = 64 * 12_288;
    let old = SystemTime::now() - Duration::from_secs(100_000);
    let first = Disk::start(directory.path(), limit).unwrap();
    (0..50).for_each(|number| first.put(name(number), image(number)));
    drop(first);
    for path in files(directory.path()) {
        File::open(path).unwrap().set_modified(old).unwrap();
    }
    let [first, second] = [(); 2].map(|()| Disk::start(directory.path(), limit).unwrap());
    // This use is recorded.
    assert_eq!(first.shared.read(name(7)), Some(image(7)));
    for number in 100..120 {
        first.put(name(number), image(number));
        second.put(name(number + 1000), image(number));
        // One at a time, so that both servers scan repeatedly.
        while first.shared.waiting.load(Ordering::Relaxed)
            + second.shared.waiting.load(Ordering::Relaxed)
            > 0
        {
            thread::yield_now();
        }
        let held = held(directory.path());
        assert!(held <= limit, "{held} of {limit}");
    }
    // There is not enough room for all the old ones, but for these.
    for number in [7].into_iter().chain(100..120).chain(1100..1120) {
        assert!(second.shared.read(name(number)).is_some(), "{number}");
    }
    let removed = [&first, &second].map(|disk| disk.counts().removed.load(Ordering::Relaxed));
    assert!(removed.iter().sum::<u64>() >= 26, "{removed:?}");
    // An image that is too large is not stored.
    first.put(name(5000), Bytes::from(vec![0; limit as usize / 8]));
    drop(first);
    assert_eq!(second.shared.read(name(5000)), None);
}

#[test]
fn nothing_else_in_the_directory_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("ab");
    fs::create_dir(&folder).unwrap();
    let old = SystemTime::now() - Duration::from_secs(100_000);
    let others = ["letter.txt", "ab/letter.txt", &format!("ab/{}", "g".repeat(64)), "ab/.new-now"];
    for other in others {
        fs::write(directory.path().join(other), vec![0; 100_000]).unwrap();
    }
    let abandoned = folder.join(".new-1");
    fs::write(&abandoned, "").unwrap();
    File::open(&abandoned).unwrap().set_modified(old).unwrap();
    let image = folder.join("a".repeat(64));
    fs::write(&image, vec![0; 100_000]).unwrap();
    assert_eq!(sweep::sweep(directory.path(), 50_000), Swept { held: 0, removed: 1 });
    assert!(!image.exists() && !abandoned.exists());
    assert!(others.iter().all(|other| directory.path().join(other).exists()));
}

#[test]
fn an_unusable_directory_is_done_without() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Disk::start(&file, 1 << 20).is_none());
    // The directory has become a file.
    let directory_path = directory.path().join("cache");
    let disk = Disk::start(&directory_path, 1 << 20).unwrap();
    disk.put(name(1), image(1));
    while disk.shared.waiting.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
    }
    fs::remove_dir_all(&directory_path).unwrap();
    fs::write(&directory_path, "").unwrap();
    assert_eq!(disk.shared.read(name(1)), None);
    disk.put(name(2), image(2));
    disk.put(name(3), image(3));
    while disk.shared.waiting.load(Ordering::Relaxed) > 0 {
        thread::yield_now();
    }
    assert_eq!(disk.counts().failed.load(Ordering::Relaxed), 2);
}

#[test]
fn a_disk_that_is_full_of_images_is_so_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::start(directory.path(), 1 << 20).unwrap();
    (0..32).for_each(|number| disk.put(name(number), image(number)));
    drop(disk);
    let before = held(directory.path());
    let shared = Arc::clone(&Disk::start(directory.path(), 1 << 20).unwrap().shared);
    let mut writer = Writer { shared, written: 0, paused: None };
    writer.make_room(&ErrorKind::PermissionDenied.into());
    assert_eq!(held(directory.path()), before);
    for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let before = held(directory.path());
        writer.make_room(&full.into());
        let after = held(directory.path());
        assert!(before / 4 * 3 <= after && after <= before / 8 * 7, "{before} {after}");
        assert_eq!(writer.shared.held.load(Ordering::Relaxed), after);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_asks_a_disk_that_hangs_does_not_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk::start(directory.path(), 1 << 20).unwrap();
    let path = disk.shared.path_of(name(1));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
    // A reader blocks until this is dropped.
    let _writer = File::options().read(true).write(true).open(&path).unwrap();
    assert_eq!(disk.get(name(1)).await, None);
    assert!(disk.hung.lock().unwrap().is_some());
    assert_eq!(disk.reading.available_permits(), READING - 1);
    // No other read is attempted for a while.
    assert_eq!(disk.get(name(1)).await, None);
    assert_eq!(disk.reading.available_permits(), READING - 1);
    assert_eq!(disk.counts().missing.load(Ordering::Relaxed), 2);
}

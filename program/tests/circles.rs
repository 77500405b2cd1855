//! The files of a package use one another in no circle, and the folders of flow/runtime only those
//! before them.

#[path = "../shared/imports.rs"]
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use imports::{Imports, imports};

/// The folders of flow/runtime in order: each uses only those before it. All use the files beside
/// lib.rs.
const FOLDERS: [&str; 5] = ["policy", "memory", "stream", "remote", "run"];

/// The first of them.
const POLICY: &str = "flow/runtime/src/policy";

/// The files that a file uses, itself or through others.
fn used<'i>(imports: &'i Imports, user: &'i str) -> (&'i str, BTreeSet<&'i str>) {
    let (mut used, mut left) = (BTreeSet::new(), vec![user]);
    while let Some(file) = left.pop() {
        let next = imports.get(file).into_iter().flat_map(BTreeMap::keys);
        left.extend(next.map(String::as_str).filter(|file| used.insert(*file)));
    }
    (user, used)
}

#[test]
fn files_use_one_another_in_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let members = workspace.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let (mut circles, mut files) = (0, 0);
    for member in members.split('"').skip(1).step_by(2) {
        let (count, imports) = imports(&root.join(member).join("src"));
        files += count;
        let used = imports.keys().map(|file| used(&imports, file));
        let used: BTreeMap<&str, _> = used.filter(|(file, used)| used.contains(file)).collect();
        let mut left: BTreeSet<&str> = used.keys().copied().collect();
        while let Some(file) = left.pop_first() {
            let is_back = |other: &&str| used.get(other).is_some_and(|used| used.contains(file));
            let circle: BTreeSet<&str> = used[file].iter().copied().filter(is_back).collect();
            left.retain(|other| !circle.contains(other));
            println!("{member}: a circle of {} files", circle.len());
            for user in &circle {
                let names = circle.iter().filter_map(|to| Some((to, imports[*user].get(*to)?)));
                names.for_each(|(file, names)| println!("    {user} uses {file}: {names:?}"));
            }
            circles += 1;
        }
    }
    println!("{files} files");
    assert!(files > 500, "only {files} files");
    assert_eq!(circles, 0, "the circles above");
}

#[test]
fn folders_of_the_runtime_use_only_those_before_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("flow/runtime/src");
    let folders = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path());
    let folders: BTreeSet<_> = folders.filter(|path| path.is_dir()).collect();
    assert_eq!(folders, FOLDERS.iter().map(|folder| source.join(folder)).collect());
    let place = |module: &str| {
        let folder = module.split("::").nth(1);
        FOLDERS.iter().position(|other| Some(*other) == folder).map_or(0, |at| at + 1)
    };
    let (_, imports) = imports(&source);
    let users = imports.iter().filter(|(user, _)| *user != "crate" && !user.ends_with("_tests"));
    let (mut across, mut wrong) = (0, Vec::new());
    for (user, used) in users.flat_map(|(user, used)| used.keys().map(move |used| (user, used))) {
        across += usize::from(place(used) < place(user));
        if place(used) > place(user) {
            wrong.push(format!("{user} uses {used}"));
        }
    }
    assert!(across > 100, "only {across} imports from one folder into another");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn policies_of_the_runtime_have_no_clock_no_lock_and_no_thread() {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(POLICY);
    for entry in fs::read_dir(policy).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for word in ["Instant::now", "Mutex", "Condvar", "std::thread"] {
            assert!(!code.contains(word), "{word} in {}", code.lines().next().unwrap());
        }
    }
}

//! The table of crates in ARCHITECTURE.md says in which files of a crate `unsafe` stands.

use std::{collections::BTreeSet, fs, path::Path};

/// The files and directories in `place` that contain `unsafe`.
fn with_unsafe(place: &Path) -> BTreeSet<String> {
    let is_unsafe = |line: &str| {
        let code = line.split("//").next().unwrap();
        code.contains("unsafe ") || code.contains("unsafe(")
    };
    let entries = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.filter(|path| match path.is_dir() {
        true => !with_unsafe(path).is_empty(),
        false => fs::read_to_string(path).unwrap().lines().any(is_unsafe),
    });
    found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn unsafe_stands_where_the_table_of_crates_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (workspace, page) = (read("Cargo.toml"), read("ARCHITECTURE.md"));
    let members = workspace.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let mut named = BTreeSet::new();
    let rows = page.split_once("| crate ").unwrap().1.lines().skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let (name, policy) = (row.split('`').nth(1).unwrap(), row.rsplit('|').nth(1).unwrap());
        let sources = ["lib", "main"].map(|root| read(&format!("{name}/src/{root}.rs")));
        let forbids = sources.concat().contains("#![forbid(unsafe_code)]");
        assert_eq!(policy.trim() == "forbidden", forbids, "{name}: the attribute");
        let found = with_unsafe(&root.join(name).join("src"));
        let files = policy.split('`').skip(1).step_by(2).map(|file| file.trim_end_matches('/'));
        assert!(policy.contains("anywhere") || found.iter().eq(files), "{name}: {found:?}");
        named.insert(name);
    }
    assert_eq!(named, members.split('"').skip(1).step_by(2).collect());
}

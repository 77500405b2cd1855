//! The page of reasons names every reason that the wire can give, and no others.

use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn the_page_names_every_reason_and_no_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (source, page) = (read("wire/protocol/src/names.rs"), read("wire/docs/reasons.md"));
    let reasons = source.split_once("\nreasons! {").unwrap().1.split_once("\n}\n").unwrap().0;
    let text = |line: &str| line.split_once("=> \"")?.1.strip_suffix("\",").map(str::to_owned);
    let given: BTreeSet<String> = reasons.lines().filter_map(text).collect();
    let entry = |line: &str| line.strip_prefix("- **")?.split_once("**").map(|it| it.0.to_owned());
    assert!(given.len() > 20, "only {} reasons", given.len());
    assert_eq!(page.lines().filter_map(entry).collect::<BTreeSet<_>>(), given);
}

//! Products depend on one another in one direction only: each uses its own packages, `program` and
//! those that are listed here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Packages of other products that the packages of a product may use.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("program", &[]),
    ("wire", &[]),
    ("nic", &[]),
    ("flow", &["seekwire"]),
    ("slides", &["seekwire", "seekwire-flow", "seekwire-launch"]),
];
/// It measures all others.
const LABORATORY: &str = "lab";
/// Network namespaces for the tests of any product.
const TESTBED: &str = "seekwire-testbed";

#[test]
fn no_product_uses_another_one_but_where_it_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = |directory: &str| fs::read_to_string(root.join(directory).join("Cargo.toml"));
    let workspace = manifest("").unwrap();
    let product = |directory: &str| directory.split('/').next().unwrap().to_owned();
    let products: BTreeMap<&str, String> = workspace
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" = { path = \"")?;
            Some((name, product(rest.split_once('"')?.0)))
        })
        .collect();
    let members = workspace.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let mut checked = 0;
    for member in members.split('"').skip(1).step_by(2) {
        let own = product(member);
        if own == LABORATORY {
            continue;
        }
        let allowed = ALLOWED.iter().find(|(name, _)| *name == own).unwrap().1;
        let mut is_of_tests = false;
        for line in manifest(member).unwrap().lines() {
            if line.starts_with('[') {
                is_of_tests = line == "[dev-dependencies]";
            }
            // `name.workspace = true` or `name = { workspace = true, ... }`.
            let name = line.split([' ', '.', '=']).next().unwrap_or_default();
            let Some(other) = products.get(name) else { continue };
            let may = own == *other
                || other == "program"
                || is_of_tests && name == TESTBED
                || allowed.contains(&name);
            assert!(may, "{member} uses {name}, which is in {other}");
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} dependencies");
}

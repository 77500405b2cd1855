//! Variables that are named like settings but are none.

use std::cell::RefCell;
use std::ffi::OsString;

use seekwire_endpoint::Config;

/// Variables that other programs of Seekwire read.
const OTHERS: [&str; 17] = [
    "SEEKWIRE_DEMO_SLIDE",
    "SEEKWIRE_DIFFERENTIAL",
    "SEEKWIRE_FLOW_INTERFACE",
    "SEEKWIRE_FLOW_JOB",
    "SEEKWIRE_FLOW_LIMIT",
    "SEEKWIRE_FLOW_RANK",
    "SEEKWIRE_FLOW_RENDEZVOUS",
    "SEEKWIRE_FLOW_ROLE",
    "SEEKWIRE_FLOW_SIZE",
    "SEEKWIRE_LAB_INSTRUCTION_CLOCK",
    "SEEKWIRE_LIBRARY",
    "SEEKWIRE_LINKS",
    "SEEKWIRE_NIC_STATE",
    "SEEKWIRE_SLIDES_TOKEN",
    "SEEKWIRE_SLIDES_WORKER_SECRET",
    "SEEKWIRE_SUITES_CACHE",
    "SEEKWIRE_TOOLS",
];

/// The project's own tests set these.
const OF_TESTS: &str = "SEEKWIRE_TEST_";

/// Complaints about the variables among `names` that nothing reads, each with the nearest setting.
pub(crate) fn unknown(names: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let variables = known_variables();
    let is_unknown = |name: &String| {
        let is_ours = name == "SEEKWIRE" || name.starts_with("SEEKWIRE_");
        is_ours && !name.starts_with(OF_TESTS) && !variables.contains(name)
    };
    let mut unknown: Vec<String> = names
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(is_unknown)
        .collect();
    unknown.sort();
    let complaint = |name: String| {
        let nearest = variables.iter().min_by_key(|variable| distance(variable, &name));
        let nearest = nearest.map_or("SEEKWIRE", String::as_str);
        format!("{name}: there is no such setting; did you mean {nearest}?")
    };
    unknown.into_iter().map(complaint).collect()
}

/// Every variable that the library or a program reads.
fn known_variables() -> Vec<String> {
    let names = RefCell::new(OTHERS.map(str::to_owned).to_vec());
    // The library asks for all of its own.
    let _ = Config::of(|name| {
        names.borrow_mut().push(name.to_owned());
        None
    });
    let mut names = names.into_inner();
    names.retain(|name| name.starts_with("SEEKWIRE"));
    names
}

/// Number of characters to insert, remove or replace to turn one name into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, character) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(*letter != character);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn complaints(names: &[&str]) -> Vec<String> {
        unknown(names.iter().map(OsString::from))
    }

    #[test]
    fn a_mistyped_setting_is_named_with_the_nearest_one() {
        let said = complaints(&["SEEKWIRE_TRESHOLD", "HOME", "SEEKWIRE", "SEEKWIRE_SPINUS"]);
        assert_eq!(
            said,
            [
                "SEEKWIRE_SPINUS: there is no such setting; did you mean SEEKWIRE_SPIN_US?",
                "SEEKWIRE_TRESHOLD: there is no such setting; did you mean SEEKWIRE_THRESHOLD?",
            ]
        );
        let all = known_variables();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert!(all.contains(&"SEEKWIRE_FALLBACK_AFTER") && all.contains(&"SEEKWIRE_DIR"));
        assert_eq!(complaints(&all), Vec::<String>::new());
    }

    #[test]
    fn names_differ_by_their_characters() {
        for (one, other, differ) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "ac", 1), ("ac", "abc", 1), ("abc", "adc", 1)]
        {
            assert_eq!(distance(one, other), differ, "{one} {other}");
        }
    }

    /// The names in the sources are the ones that are known here.
    #[test]
    fn every_variable_that_a_program_reads_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let products = ["wire", "flow", "slides", "nic", "lab", "program"];
        let (mut directories, mut checked) = (products.map(|name| root.join(name)).to_vec(), 0);
        let variables = known_variables();
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let is_source = path.components().any(|part| part.as_os_str() == "src");
                if path.is_dir() {
                    directories.push(path);
                } else if is_source && path.extension().is_some_and(|extension| extension == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    for name in text.split('"').filter(|text| is_name(text)) {
                        let is_known = variables.iter().any(|variable| variable == name);
                        assert!(is_known || IN_TESTS.contains(&name), "{name}: {}", path.display());
                        checked += 1;
                    }
                }
            }
        }
        assert!(checked > 30, "only {checked} names");
    }

    /// Mistyped on purpose.
    const IN_TESTS: [&str; 2] = ["SEEKWIRE_SPINUS", "SEEKWIRE_TRESHOLD"];

    fn is_name(text: &str) -> bool {
        text.strip_prefix("SEEKWIRE_").is_some_and(|rest| {
            !rest.is_empty()
                && !rest.starts_with("TEST_")
                && rest.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'_'))
        })
    }
}

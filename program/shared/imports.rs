//! The modules of a crate, and the names that they take from one another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// By the module that takes them, and the module that defines them.
pub(crate) type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The number of modules below the directory `src`, and their imports, without those of tests.
pub(crate) fn imports(src: &Path) -> (usize, Imports) {
    let mut modules = BTreeMap::new();
    read(src, "crate", &mut modules);
    let (mut taken, mut named) = (Vec::new(), BTreeMap::new());
    for (module, code) in &modules {
        for (path, is_use) in paths(&code.replace(" as ", "@")) {
            let last = || path.rsplit("::").next().unwrap_or_default();
            let (path, name) = path.split_once('@').unwrap_or_else(|| (&path, last()));
            let (path, name) = (absolute(module, path), format!("{module}::{name}"));
            if is_use
                && !name.ends_with('*')
                && !format!("{path}::").starts_with(&format!("{name}::"))
            {
                named.insert(name, path.clone());
            }
            taken.push((module, path));
        }
    }
    let mut imports = Imports::new();
    for (module, path) in taken {
        let Some((from, name)) = definition(path, &named, &modules) else { continue };
        if from != *module && defines(&modules[&from], &name) {
            imports.entry(module.clone()).or_default().entry(from).or_default().insert(name);
        }
    }
    (modules.len(), imports)
}

/// Reads the code of all modules in a directory, without the tests at its end.
fn read(directory: &Path, parent: &str, modules: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let module = match path.file_stem().and_then(|stem| stem.to_str()).unwrap() {
            "lib" | "main" | "mod" => parent.to_owned(),
            name => format!("{parent}::{name}"),
        };
        if path.is_dir() {
            read(&path, &module, modules);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let lines = text.split("mod tests {").next().unwrap().lines();
            let code = lines.flat_map(|line| [line.split("//").next().unwrap(), "\n"]);
            modules.entry(module).or_default().extend(code);
        }
    }
}

/// All paths of several names, and whether each is in a `use` item; a new name follows after @.
fn paths(code: &str) -> Vec<(String, bool)> {
    let is_end = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':' | '*' | '@');
    let (mut paths, mut groups, mut is_use) = (Vec::new(), Vec::<&str>::new(), false);
    for piece in code.split_inclusive(is_end) {
        let word = piece.trim_end_matches(is_end);
        if word.contains("::") || groups.last().is_some_and(|group| !group.is_empty()) {
            let path = groups.concat() + word;
            let path = path.trim_end_matches(':').trim_end_matches("::self");
            paths.push((path.to_owned(), is_use));
        }
        is_use = (is_use || word == "use") && !piece.ends_with(';');
        match piece.chars().last() {
            Some('{') => groups.push(if word.ends_with("::") { word } else { "" }),
            Some('}') => _ = groups.pop(),
            _ => {}
        }
    }
    paths
}

/// False for a name that the module takes from another crate.
fn defines(code: &str, name: &str) -> bool {
    let kinds = ["const", "enum", "fn", "macro_rules!", "static", "struct", "trait", "type"];
    kinds.iter().any(|kind| code.contains(&format!("{kind} {name}")))
}

/// A path from the root of the crate on.
fn absolute(module: &str, path: &str) -> String {
    let parent = || module.rsplit_once("::").map_or("", |(parent, _)| parent);
    match path.split_once("::") {
        Some(("crate", _)) => path.to_owned(),
        Some(("self", rest)) => absolute(module, rest),
        Some(("super", rest)) => absolute(parent(), rest),
        _ => format!("{module}::{path}"),
    }
}

/// The module that defines what a path leads to, over re-exports, and the name there.
fn definition(
    mut path: String,
    named: &BTreeMap<String, String>,
    modules: &BTreeMap<String, String>,
) -> Option<(String, String)> {
    let ends = |path: &str| -> Vec<usize> { path.match_indices("::").map(|(at, _)| at).collect() };
    while let Some((end, to)) = ends(&(path.clone() + "::"))
        .into_iter()
        .find_map(|end| Some((end, named.get(&path[..end])?)))
    {
        path = to.clone() + &path[end..];
    }
    let end = ends(&path).into_iter().rfind(|end| modules.contains_key(&path[..*end]))?;
    let name = path[end + 2..].split("::").next()?;
    (!modules.contains_key(&path)).then(|| (path[..end].to_owned(), name.to_owned()))
}

//! The site of `seekwire lab report`, from results that this project keeps and from experiments
//! that are run here: every link leads to something, and a browser shows every page as it should.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::browser::{Browser, Look};
use crate::harness::{Mode, Stage, library_directory, seekwire};

/// A site of everything in lab/measurements and of two short runs of the real thing.
fn site(stage: &Stage) -> PathBuf {
    library_directory();
    let results = stage.path("results");
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/measurements");
    for entry in fs::read_dir(recorded).expect("the recorded results") {
        let from = entry.expect("an entry").path();
        let to = results.join("recorded").join(from.file_name().expect("a name"));
        fs::create_dir_all(&to).expect("a directory");
        for file in fs::read_dir(from).expect("a recorded result") {
            let file = file.expect("an entry");
            fs::copy(file.path(), to.join(file.file_name())).expect("a recorded result");
        }
    }
    let command = |words: &[&str]| {
        let mut command = stage.plain_command(seekwire());
        command.arg("lab").args(words);
        command
    };
    let out = results.to_str().expect("text");
    let run =
        ["run", "connections", "pairs", "ring-size", "--quick", "--rounds", "2", "--out", out];
    stage.run(&mut command(&run)).success();
    let site = stage.path("site");
    let printed = stage.run(command(&["report", out, "--out"]).arg(&site)).success();
    assert!(printed.contains("index.html"), "{printed}");
    site
}

fn pages(site: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(site).expect("a site").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "html")).collect();
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The values of all attributes `name` of a page.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    page.split(&*start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_link_leads_to_something() {
    let stage = Stage::new(Mode::Plain);
    let site = site(&stage);
    let mut reached = BTreeSet::from([site.join("index.html")]);
    let mut links = 0;
    for page in pages(&site) {
        let text = fs::read_to_string(&page).expect("a page");
        assert_eq!(attributes(&text, "src"), [""; 0], "{}", page.display());
        assert!(!text.contains("url(") && !text.contains("@import"), "{}", page.display());
        for link in attributes(&text, "href") {
            links += 1;
            match link.strip_prefix('#') {
                Some(id) => {
                    assert!(text.contains(&format!(" id=\"{id}\"")), "{link} in {}", page.display())
                }
                None if link == "data:," => {}
                None => {
                    let target = site.join(link);
                    assert!(target.is_file(), "{link} in {}", page.display());
                    reached.insert(target);
                }
            }
        }
    }
    let pages: BTreeSet<PathBuf> = pages(&site).into_iter().collect();
    assert!(pages.is_subset(&reached), "no link leads to {:?}", pages.difference(&reached));
    assert!(links > 50, "{links}");
}

#[test]
fn an_empty_directory_is_an_error_that_says_what_to_run() {
    let stage = Stage::new(Mode::Plain);
    let empty = stage.path("empty");
    fs::create_dir(&empty).expect("a directory");
    let finished = stage.run(stage.plain_command(seekwire()).args(["lab", "report"]).arg(&empty));
    assert_eq!(finished.status.code(), Some(1));
    assert!(finished.stderr.contains("seekwire lab run all --quick"), "{}", finished.stderr);
}

#[test]
fn all_experiments_are_asked_for_alone() {
    let stage = Stage::new(Mode::Plain);
    let out = stage.path("out");
    let mut command = stage.plain_command(seekwire());
    let finished =
        stage.run(command.args(["lab", "run", "all", "sockets", "--quick", "--out"]).arg(&out));
    assert_eq!(finished.status.code(), Some(1));
    assert!(finished.stderr.contains("`all` stands for every experiment"), "{}", finished.stderr);
    assert!(!out.exists(), "nothing may have run");
}

mod in_a_browser {
    use super::*;

    /// On a screen by day and on a telephone by night.
    #[test]
    fn every_page_is_shown_whole() {
        let stage = Stage::new(Mode::Plain);
        let site = site(&stage);
        let browser = Browser::new(&stage);
        let looks = [
            Look { width: 1200, height: 1600, dark: false },
            Look { width: 390, height: 844, dark: true },
        ];
        let mut plots = 0;
        for page in pages(&site) {
            let written = fs::read_to_string(&page).expect("a page").matches("<svg ").count();
            for look in looks {
                let visit = browser.visit(&page, look);
                let shown = format!("{} with {look:?}: {visit:?}", page.display());
                assert_eq!(visit.complaints(), [""; 0], "{shown}");
                assert_eq!(visit.plots.len(), written, "{shown}");
                plots += written;
                assert!(visit.picture.is_drawn(), "blank: {shown}");
                assert_eq!(visit.picture.is_dark(), look.dark, "{shown}");
            }
        }
        assert!(plots >= 60, "{plots}");
    }

    /// The checks themselves: a page with everything that they are to find.
    #[test]
    fn a_bad_page_is_found_out() {
        let stage = Stage::new(Mode::Plain);
        let page = stage.path("bad.html");
        let html = "<!DOCTYPE html><html lang=\"en\"><body><h1>Bad</h1><img src=\"missing.png\" alt=\"\">\
                    <img src=\"http://192.0.2.1/a\" alt=\"\">\
                    <div style=\"width: 3000px\">wide</div>\
                    <figure><svg width=\"0\" height=\"0\"></svg></figure>\
                    <figure><svg width=\"99\" height=\"99\"><rect width=\"9\" height=\"9\"/><text y=\"50\">one</text>\
                    <text y=\"52\">two</text></svg></figure>\
                    <script>throw new Error(\"on purpose\")</script></body></html>";
        fs::write(&page, html).expect("a page");
        let visit =
            Browser::new(&stage).visit(&page, Look { width: 800, height: 600, dark: false });
        let complaints = visit.complaints().join("\n");
        for found in [
            "on purpose",
            "missing.png",
            "it fetches http://192.0.2.1",
            "wider",
            "has no size",
            "overlap",
            "has no name",
        ] {
            assert!(complaints.contains(found), "{found}: {complaints}");
        }
        fs::write(&page, "<!DOCTYPE html><html lang=\"en\"><body></body></html>").expect("a page");
        let visit =
            Browser::new(&stage).visit(&page, Look { width: 800, height: 600, dark: false });
        assert!(!visit.picture.is_drawn() && !visit.picture.is_dark());
    }
}

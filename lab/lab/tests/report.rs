//! The site of a directory of results, from the results that this project keeps and from files that
//! others may put there.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Result, bail};

use seekwire_lab::experiment::{Context, Experiment, Unavailable};
use seekwire_lab::experiment_file::ExperimentFile;
use seekwire_lab::outcome::{Findings, Outcome, Recorded};
use seekwire_lab::record::Samples;
use seekwire_lab::{Options, Pages, Site};
use tempfile::TempDir;

/// Real results of this laboratory.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../measurements")
}

/// The site of all of them.
fn site() -> &'static (TempDir, Site) {
    static SITE: LazyLock<(TempDir, Site)> = LazyLock::new(|| {
        let out = tempfile::tempdir().unwrap();
        let site = seekwire_lab::report(&recorded(), Some(out.path())).unwrap();
        (out, site)
    });
    &SITE
}

/// The same as the laboratory wrote them, before they were packed: a site has them whole.
fn unpacked(name: &str) -> PathBuf {
    site().0.path().join("data").join(name)
}

fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in ["result.json", "raw.csv"] {
        fs::copy(unpacked(name).join(file), to.join(file)).unwrap();
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// The claims of a page: (statement, verdict).
fn verdicts(page: &str) -> Vec<(String, String)> {
    let table = page.split("<h2>Verdict</h2>").nth(1).unwrap().split("</table>").next().unwrap();
    let between = |text: &str, start: &str, end: &str| {
        text.split(start).nth(1).unwrap().split(end).next().unwrap().to_owned()
    };
    table
        .split("<tr>")
        .skip(2)
        .map(|row| {
            (
                between(row, "<th class=\"wide\" scope=\"row\">", "<br>"),
                between(row, "<strong class=\"badge ", "</strong>"),
            )
        })
        .collect()
}

#[test]
fn every_recorded_result_has_a_page_with_its_verdicts() {
    let (out, site) = site();
    assert_eq!(site.problems, []);
    assert_eq!(site.experiments, fs::read_dir(recorded()).unwrap().count());
    let index = read(&site.index);
    for name in [
        "sockets",
        "ring-size",
        "pairs",
        "connections",
        "programs",
        "seek",
        "seek-module",
        "mailbox",
        "demo",
    ] {
        assert!(index.contains(&format!("href=\"{name}.html\"")), "{name} is not linked");
        let page = read(out.path().join(format!("{name}.html")));
        assert!(page.contains(&format!("href=\"data/{name}/raw.csv\"")), "{name}");
        assert!(!verdicts(&page).is_empty(), "{name}");
        let result = read(out.path().join(format!("data/{name}/result.json")));
        assert!(result.contains("\"rows\": ["), "{name}");
    }
    // Its plots were not kept, but are drawn again beside the thesis'.
    let nic = read(out.path().join("nic.html"));
    for title in ["One-way latency beside the thesis", "CPU load of fast hosts beside the thesis"] {
        assert!(nic.contains(&format!("aria-label=\"Plot: {title}")), "{title}");
    }

    // Results contain what is drawn; no files beside them are needed.
    for (name, plots) in [("nic", 10), ("zeromq", 8), ("models", 2)] {
        let page = read(out.path().join(format!("{name}.html")));
        assert!(page.matches("<svg ").count() >= plots && !page.contains("No plot:"), "{name}");
        assert!(!verdicts(&page).is_empty(), "{name}");
    }
    // Every experiment without a result is named with its command, and no other is.
    for experiment in seekwire_lab::experiments() {
        let name = experiment.name();
        let is_named = index.contains(&format!("<code>seekwire lab run {name}</code>"));
        assert_eq!(is_named, !recorded().join(name).exists(), "{name}");
    }

    let all = verdicts(&read(out.path().join("seek.html")));
    let of = |words: &str| &all.iter().find(|(claim, _)| claim.contains(words)).unwrap().1;
    assert_eq!(of("up to 40 %"), "yes\">reproduced");
    assert_eq!(of("ten bytes"), "yes\">improved upon");
    // Four pairs need eight processors, and that machine had two.
    let all = verdicts(&read(out.path().join("pairs.html")));
    assert_eq!(all[0].1, "unknown\">not measured");
    assert_eq!(all[1].1, "yes\">met");
}

#[test]
fn an_experiment_without_a_result_is_named_with_its_command() {
    let directory = tempfile::tempdir().unwrap();
    copy("pairs", &directory.path().join("pairs"));
    let site = seekwire_lab::report(directory.path(), None).unwrap();
    let index = read(&site.index);
    assert!(index.contains("<code>seekwire lab run programs</code>"), "{index}");
    assert!(!index.contains("<code>seekwire lab run pairs</code>"), "{index}");
}

#[test]
fn the_pages_have_what_the_results_have() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = ["README.md", "BENCHMARKING.md", "lab/experiments"].map(|name| root.join(name));
    for experiment in seekwire_lab::experiments() {
        let page = pages[2].join(experiment.name()).with_extension("md");
        assert!(page.exists(), "{} is missing", page.display());
    }
    let differ = seekwire_lab::write_pages(&recorded(), &pages, Pages::Check).unwrap();
    let command =
        "seekwire lab report lab/measurements --markdown README.md BENCHMARKING.md lab/experiments";
    assert!(differ.is_empty(), "{differ:?}; `{command}` writes them");
}

#[test]
fn a_page_is_checked_without_being_written() {
    let directory = tempfile::tempdir().unwrap();
    copy("pairs", &directory.path().join("pairs"));
    let page = directory.path().join("page.md");
    let stale = "<!-- seekwire lab report: {\"setting\": \"pairs\"} -->\nstale\n<!-- seekwire lab report: end -->\n";
    fs::write(&page, stale).unwrap();
    let write =
        |what| seekwire_lab::write_pages(directory.path(), std::slice::from_ref(&page), what);
    let one = std::slice::from_ref(&page);
    assert_eq!(write(Pages::Check).unwrap(), one);
    assert_eq!(read(&page), stale);
    assert_eq!(write(Pages::Write).unwrap(), one);
    assert!(read(&page).contains("`pairs` on commit "), "{}", read(&page));
    assert!(write(Pages::Check).unwrap().is_empty());
}

#[test]
fn verdicts_follow_the_numbers() {
    let verdict = |low: f64, high: f64| {
        let directory = tempfile::tempdir().unwrap();
        let experiment = directory.path().join("connections");
        copy("connections", &experiment);
        let mut result: serde_json::Value =
            serde_json::from_str(&read(experiment.join("result.json"))).unwrap();
        let rows = result["rows"].as_array_mut().unwrap();
        let row = rows.iter_mut().find(|row| row["variant"] == "accelerated").unwrap();
        row["ratio"] = serde_json::json!({ "value": (low + high) / 2.0, "low": low, "high": high });
        fs::write(experiment.join("result.json"), result.to_string()).unwrap();
        seekwire_lab::report(directory.path(), None).unwrap();
        verdicts(&read(directory.path().join("report/connections.html"))).remove(0).1
    };
    assert_eq!(verdict(0.98, 1.02), "yes\">met");
    assert_eq!(verdict(0.90, 0.92), "no\">not met");
    assert_eq!(verdict(0.90, 1.02), "unknown\">inconclusive");
    // Its number lies outside.
    assert_eq!(verdict(1.5, 0.5), "unknown\">not measured");
}

#[test]
fn what_cannot_be_read_is_named_and_the_rest_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    copy("connections", &path("connections"));
    let whole = read(path("connections/result.json"));
    let put = |name: &str, text: &str| {
        fs::create_dir_all(path(name)).unwrap();
        fs::write(path(name).join("result.json"), text).unwrap();
    };
    put("damaged", &whole[..whole.len() / 2]);
    put("foreign", r#"{"name": "something else", "version": 3}"#);
    put(
        "older",
        r#"{"experiment": "sockets", "commit": "abc", "parameters": {}, "rows": [], "summary": {}}"#,
    );
    put("infinite", &whole.replacen("\"median\": ", "\"median\": 1e999", 1));
    fs::create_dir_all(path("lost")).unwrap();
    fs::write(path("lost/raw.csv"), "round\n").unwrap();
    put("unknown", &whole.replacen("connections", "of-tomorrow", 1));
    fs::create_dir_all(path("no-result/deeper")).unwrap();

    let site = seekwire_lab::report(directory.path(), None).unwrap();
    assert_eq!(site.experiments, 2, "{:?}", site.problems);
    let names: Vec<String> = site
        .problems
        .iter()
        .map(|(path, _)| Path::new(path).file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, ["damaged", "foreign", "infinite", "lost", "older"]);
    let index = read(&site.index);
    for words in
        ["damaged", "missing field", "of this version", "No such file", "seekwire lab run older"]
    {
        assert!(index.contains(words), "{words}: {index}");
    }
    let unknown = read(path("report/unknown.html"));
    assert!(unknown.contains("does not know the experiment"), "{unknown}");
}

#[test]
fn untrusted_content_is_text() {
    let directory = tempfile::tempdir().unwrap();
    let name = "a<b>\"'& ü";
    let experiment = directory.path().join(name);
    copy("connections", &experiment);
    let mut result: serde_json::Value =
        serde_json::from_str(&read(experiment.join("result.json"))).unwrap();
    result["commit"] = "<script>alert(1)</script>".into();
    result["rows"][0]["error"] = "</td><script>alert(2)</script>".into();
    let evil = "</text></svg><script>alert(3)</script>\" onload=\"alert(4)";
    let bar =
        |value: f64| serde_json::json!({ "name": evil, "value": value, "low": 1.0, "high": 3.0 });
    let figure = |value| serde_json::json!({ "file": evil, "title": evil, "chart": { "ratios": { "label": evil, "bars": [bar(value)] } } });
    result["figures"] = serde_json::json!([figure(2.0)]);
    fs::write(experiment.join("result.json"), result.to_string()).unwrap();

    let site = seekwire_lab::report(directory.path(), None).unwrap();
    assert_eq!((site.experiments, site.problems.len()), (1, 0));
    let pages: Vec<PathBuf> = fs::read_dir(directory.path().join("report"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert_eq!(pages.len(), 2);
    for page in &pages {
        let text = read(page);
        assert!(!text.contains("<script") && !text.contains("a<b>"), "{}", page.display());
    }
    let page = pages.iter().find(|page| !page.ends_with("index.html")).unwrap();
    assert!(
        page.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    );
    let text = read(page);
    assert_eq!(text.matches("<svg ").count(), 1);
    assert!(!text.contains("onload=\""), "{text}");
}

#[test]
fn links_of_other_users_are_not_followed() {
    let (results, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (directory, victim) = (results.path(), elsewhere.path().join("file"));
    fs::write(&victim, "mine").unwrap();
    copy("pairs", &directory.join("pairs"));
    copy("seek", &directory.join("seek"));
    // Something that is not part of the results would come into the site ..
    fs::remove_file(directory.join("seek/raw.csv")).unwrap();
    symlink(&victim, directory.join("seek/raw.csv")).unwrap();
    // .. and something outside of it would be written over.
    seekwire_lab::report(directory, None).unwrap();
    let data = directory.join("report/data");
    fs::remove_file(data.join("pairs/raw.csv")).unwrap();
    symlink(&victim, data.join("pairs/raw.csv")).unwrap();
    seekwire_lab::report(directory, None).unwrap();
    assert_eq!(read(&victim), "mine");
    assert!(!data.join("seek/raw.csv").exists());
    assert_eq!(read(data.join("pairs/raw.csv")), read(unpacked("pairs").join("raw.csv")));
    // Nor as a whole directory.
    fs::remove_dir_all(&data).unwrap();
    symlink(elsewhere.path(), &data).unwrap();
    let error = seekwire_lab::report(directory, None).unwrap_err().to_string();
    assert!(error.contains("is a link"), "{error}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 1);
}

#[test]
fn numbers_beyond_all_axes_are_refused() {
    let results = tempfile::tempdir().unwrap();
    let directory = results.path().join("pairs");
    copy("pairs", &directory);
    let mut result: serde_json::Value =
        serde_json::from_str(&read(directory.join("result.json"))).unwrap();
    for row in result["rows"].as_array_mut().unwrap() {
        if !row["ratio"].is_null() {
            row["ratio"] = serde_json::json!({"value": 1.7e308, "low": 1.7e308, "high": 1.7e308});
        }
    }
    fs::write(directory.join("result.json"), result.to_string()).unwrap();
    seekwire_lab::report(results.path(), None).unwrap();
    assert!(
        !verdicts(&read(results.path().join("report/pairs.html")))
            .iter()
            .any(|one| one.1.contains("met"))
    );
}

#[test]
fn a_directory_that_is_a_result_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let connections = directory.path().join("connections");
    copy("connections", &connections);
    for _ in 0..2 {
        let site = seekwire_lab::report(&connections, None).unwrap();
        assert_eq!((site.experiments, site.problems), (1, Vec::new()));
        assert!(connections.join("report/connections.html").exists());
    }
}

#[test]
fn without_results_it_says_what_to_run() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("nowhere")] {
        let error = format!("{:#}", seekwire_lab::report(&path, None).unwrap_err());
        assert!(error.contains("seekwire lab run all --quick --out"), "{error}");
        assert!(!path.join("report").exists());
    }
}

#[test]
fn directories_of_others_are_left_alone_and_earlier_sites_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    copy("connections", &directory.path().join("connections"));
    let out = directory.path().join("site");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("index.html"), "<p>Mine.</p>").unwrap();
    let error = seekwire_lab::report(directory.path(), Some(&out)).unwrap_err().to_string();
    assert!(error.contains("--out"), "{error}");
    assert_eq!(read(out.join("index.html")), "<p>Mine.</p>");
    fs::remove_file(out.join("index.html")).unwrap();
    for _ in 0..2 {
        // Its own data are not taken for results.
        assert_eq!(seekwire_lab::report(directory.path(), Some(&out)).unwrap().experiments, 1);
    }
}

/// An experiment whose end is known.
struct FakeExperiment {
    name: &'static str,
    fails: bool,
    unavailable: bool,
    /// Whether it finds this only when it runs.
    lacks: bool,
}

impl Experiment for FakeExperiment {
    fn name(&self) -> &'static str {
        self.name
    }

    fn file(&self) -> &'static ExperimentFile {
        static FILE: LazyLock<ExperimentFile> = LazyLock::new(|| {
            let text = "question = ''\nabout = 'It ends.'\nseconds = { quick = 1, thorough = 1 }";
            ExperimentFile::parse("fake", text)
        });
        &FILE
    }

    fn unavailable(&self, _: &Options) -> Option<String> {
        self.unavailable.then(|| "no such device".to_owned())
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome> {
        if self.fails {
            bail!("it went wrong");
        }
        if self.lacks {
            return Err(Unavailable("no such package".to_owned()).into());
        }
        let _ = context;
        Ok(Outcome {
            parameters: Default::default(),
            samples: Samples::default(),
            baseline: "",
            violation: None,
        })
    }

    fn findings(&self, _: Recorded<'_>) -> Findings {
        Findings::default()
    }
}

#[test]
fn a_run_of_everything_goes_on_after_a_failure() {
    let out = tempfile::tempdir().unwrap();
    let options = Options { quick: true, out: out.path().to_owned(), ..Options::default() };
    let experiment =
        |name, fails, unavailable| FakeExperiment { name, fails, unavailable, lacks: false };
    let (broken, absent, good) = (
        experiment("pairs", true, false),
        experiment("sockets", false, true),
        experiment("connections", false, false),
    );
    let lacking = FakeExperiment { name: "vm", lacks: true, ..experiment("", false, false) };
    let these: [&dyn Experiment; 4] = [&broken, &absent, &lacking, &good];
    let all = seekwire_lab::run_all::run_these(&these, &options).unwrap();
    assert_eq!(all.completed.len(), 1);
    let skipped = [("sockets", "no such device"), ("vm", "no such package")];
    assert_eq!(all.skipped, skipped.map(|(name, why)| (name.to_owned(), why.to_owned())));
    assert_eq!(all.failed.len(), 1);
    assert!(all.failed[0].1.contains("it went wrong"), "{:?}", all.failed);
    let index = read(all.site.unwrap().index);
    for words in [
        "no such device",
        "no such package",
        "failed: experiment pairs: it went wrong",
        "connections.html",
    ] {
        assert!(index.contains(words), "{words}: {index}");
    }

    // An earlier result is still shown, and called that.
    let all =
        seekwire_lab::run_all::run_these(&[&experiment("connections", true, false)], &options)
            .unwrap();
    assert_eq!(all.failed.len(), 1);
    let note = "No new result of the last run (failed: experiment connections: it went wrong)";
    assert!(read(all.site.unwrap().index).contains(note));
    // Until there is a newer one.
    seekwire_lab::run::run_one(&good, &options).unwrap();
    let site = seekwire_lab::report(out.path(), None).unwrap();
    assert!(!read(site.index).contains(note));
}

#[test]
fn a_quick_run_does_not_replace_a_thorough_result() {
    let out = tempfile::tempdir().unwrap();
    copy("connections", &out.path().join("connections"));
    let before = read(out.path().join("connections/result.json"));
    let options = |quick| Options { quick, out: out.path().to_owned(), ..Options::default() };
    let good =
        FakeExperiment { name: "connections", fails: false, unavailable: false, lacks: false };
    let error = seekwire_lab::run::run_one(&good, &options(true)).unwrap_err().to_string();
    assert!(error.contains("thorough") && error.contains("--out"), "{error}");
    let all = seekwire_lab::run_all::run_these(&[&good], &options(true)).unwrap();
    assert_eq!((all.completed.len(), all.skipped.len(), all.failed.len()), (0, 1, 0));
    assert_eq!(read(out.path().join("connections/result.json")), before);
    seekwire_lab::run::run_one(&good, &options(false)).unwrap();
    assert_ne!(read(out.path().join("connections/result.json")), before);
}

#[test]
fn no_claim_is_judged_by_damaged_data_or_by_the_runs_that_survived() {
    let verdict = |change: &dyn Fn(&mut serde_json::Value)| {
        let directory = tempfile::tempdir().unwrap();
        let experiment = directory.path().join("connections");
        copy("connections", &experiment);
        let mut result: serde_json::Value =
            serde_json::from_str(&read(experiment.join("result.json"))).unwrap();
        let rows = result["rows"].as_array_mut().unwrap();
        let row = rows.iter_mut().find(|row| row["variant"] == "accelerated").unwrap();
        row["ratio"] = serde_json::json!({ "value": 1.0, "low": 0.99, "high": 1.01 });
        change(&mut result);
        fs::write(experiment.join("result.json"), result.to_string()).unwrap();
        seekwire_lab::report(directory.path(), None).unwrap();
        let page = read(directory.path().join("report/connections.html"));
        (verdicts(&page).remove(0).1, page)
    };
    assert_eq!(verdict(&|_| ()).0, "yes\">met");
    let (damaged, page) = verdict(&|result| result["violation"] = "a byte was wrong".into());
    assert_eq!(damaged, "unknown\">not measured");
    assert!(page.contains("This run ended with an error: a byte was wrong"), "{page}");
    // The server crashed in two rounds.
    let (survived, page) = verdict(&|result| {
        let rows = result["rows"].as_array_mut().unwrap();
        let row = rows.iter_mut().find(|row| row["variant"] == "accelerated").unwrap();
        let mut failed = row.clone();
        row["spread"]["n"] = 148.into();
        failed["metric"] = "".into();
        failed["spread"] = serde_json::Value::Null;
        failed["ratio"] = serde_json::Value::Null;
        failed["error"] = "the server was killed".into();
        rows.push(failed);
    });
    assert_eq!(survived, "unknown\">inconclusive");
    assert!(page.contains("2 of 150 rounds failed: the server was killed"), "{page}");
}

#[test]
fn plots_are_drawn_from_the_result() {
    let results = tempfile::tempdir().unwrap();
    let directory = results.path().join("connections");
    copy("connections", &directory);
    let whole: serde_json::Value =
        serde_json::from_str(&read(directory.join("result.json"))).unwrap();
    let point = |x: f64, y: f64| serde_json::json!({ "x": x, "y": y, "low": y, "high": 2.0 * y });
    let curve = |name: &str, points: Vec<serde_json::Value>| {
        let axis = |scale: &str| serde_json::json!({ "label": "an axis", "scale": scale });
        let series = serde_json::json!([{ "name": name, "colour": 0, "points": points }]);
        let chart = serde_json::json!({ "curves": { "x": axis("sizes"), "y": axis("log10"), "series": series } });
        serde_json::json!({ "file": "a.svg", "title": "A plot", "chart": chart })
    };
    let plots_of = |figures: Vec<serde_json::Value>| {
        let mut result = whole.clone();
        result["figures"] = figures.into();
        fs::write(directory.join("result.json"), result.to_string()).unwrap();
        seekwire_lab::report(results.path(), None).unwrap();
        let page = read(results.path().join("report/connections.html"));
        (page.matches("<svg ").count(), page.matches("No plot:").count(), page)
    };
    let good = || curve("one", vec![point(1.0, 2.0), point(64.0, 3.0)]);
    assert_eq!(plots_of(vec![good(), good()]).0, 2);
    let wild = [1e99, -1e99, 1e-300, -1.0, 0.0];
    let wild = wild.map(|n| curve("one", vec![point(n, n), point(1.0, n), point(n, 1.0)]));
    assert_eq!(plots_of(wild.to_vec()).0, wild.len(), "as well as it goes");

    // Figures that nobody can see are not drawn, and the others are.
    let many = curve("one", (0..10_001).map(|n| point(f64::from(n), 1.0)).collect());
    let far = curve("one", vec![point(1.0, 1e101)]);
    let long = curve(&"x".repeat(501), vec![point(1.0, 1.0)]);
    let (plots, refused, page) = plots_of(vec![many, good(), far, long]);
    assert_eq!((plots, refused), (1, 3), "{page}");
    let (plots, _, page) = plots_of(vec![good(); 203]);
    assert_eq!(plots, 200);
    assert!(page.contains("3 plots are too many"), "{page}");
}

#[test]
fn nobody_is_waited_for() {
    let results = tempfile::tempdir().unwrap();
    let path = |name: &str| results.path().join(name);
    copy("connections", &path("connections"));
    let pipe = |path: PathBuf| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    pipe(path("run.json"));
    pipe(path("other/result.json"));
    fs::create_dir_all(path("endless")).unwrap();
    symlink("/dev/zero", path("endless/result.json")).unwrap();
    let site = seekwire_lab::report(results.path(), None).unwrap();
    assert_eq!((site.experiments, site.problems.len()), (1, 2), "{:?}", site.problems);
    assert!(site.problems.iter().all(|(_, why)| why.contains("not a file")), "{:?}", site.problems);
    pipe(path("site/index.html"));
    assert!(seekwire_lab::report(results.path(), Some(&path("site"))).is_err());
}

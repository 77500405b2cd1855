//! The first page: what was measured on what, and what came out.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::read::{Contents, Entry, Found};
use super::verdict::{badge, class};
use super::{head, push_navigation};
use crate::claim::Verdict;
use crate::experiments;
use crate::report::{close_table, escape, open_table};
use crate::{demo, text};

pub(super) fn html(found: &Found) -> String {
    let mut page = head("Seekwire: experiments");
    let readable =
        || found.entries.iter().filter_map(|entry| Some((entry, entry.contents.as_ref().ok()?)));
    push_navigation(
        &mut page,
        &readable().map(|(entry, _)| Some((entry.page(), entry.name.clone()))).collect::<Vec<_>>(),
    );
    page.push_str("<main id=\"content\">\n<h1>Seekwire: experiments</h1>\n");
    push_machines(&mut page, &readable().collect::<Vec<_>>());
    page.push_str(
        "<p class=\"soft\">Verdicts follow from the numbers: a claim is reproduced, or a goal met, if the whole 95 % \
         interval fulfils the criterion, not if no part of it does, and cannot be told \
         otherwise. A claim is improved upon if the whole interval is better than what a paper found, as where it \
         found a loss and there is none. The intervals are widened for few rounds (Student’s t).</p>\n",
    );
    if readable().any(|(_, contents)| contents.result.is_quick()) {
        page.push_str(
            "<p class=\"notice\">Some of these are quick runs: to see that it works, not to quote.</p>\n",
        );
    }
    for (entry, contents) in readable() {
        push_card(&mut page, entry, contents);
    }
    push_unreadable(&mut page, found);
    push_missing(&mut page, found);
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// The machines and commits, each with what was measured there.
fn push_machines(page: &mut String, entries: &[(&Entry, &Contents)]) {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut machines: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for (entry, contents) in entries {
        let machine = &contents.result.machine;
        let virtualised = if machine.virtualised { ", virtual" } else { "" };
        let memory = machine.memory.map_or_else(|| "unknown".to_owned(), text::about_bytes);
        let key = vec![
            format!("{} × {}{virtualised}", machine.cores, known(&machine.cpu)),
            memory,
            format!("{}, {}", known(&machine.kernel), known(&machine.system)),
            contents.result.commit.clone(),
        ];
        machines.entry(key).or_default().push(&entry.name);
    }
    open_table(page, &["Processors", "Memory", "Kernel and system", "Commit", "Measured there"]);
    for (cells, names) in machines {
        page.push_str("<tr>");
        for cell in &cells {
            let _ = write!(page, "<td>{}</td>", escape(cell));
        }
        let _ = writeln!(page, "<td class=\"wide\">{}</td></tr>", escape(&names.join(", ")));
    }
    close_table(page);
}

fn push_card(page: &mut String, entry: &Entry, contents: &Contents) {
    let experiment = contents.experiment();
    let is_demo = contents.result.experiment == demo::NAME;
    let question = match experiment {
        _ if is_demo => demo::QUESTION,
        Some(experiment) => experiment.question(),
        None => "Of an experiment that this program does not know.",
    };
    let overall = crate::verdict::judge(
        experiment.map_or(&[], |experiment| experiment.claims()),
        &contents.result,
    );
    let quick = if contents.result.is_quick() {
        " <span class=\"badge unknown\">quick run</span>"
    } else {
        ""
    };
    let _ = writeln!(
        page,
        "<section class=\"card\">\n<h2><a href=\"{}\">{}</a></h2>\n<p>{}</p>\n\
         <p>{}{quick} <span class=\"soft\">{}</span></p>",
        escape(&entry.page()),
        escape(&entry.name),
        escape(question),
        badge(overall.class, &overall.verdict),
        escape(&overall.why),
    );
    if let Some(why) = &contents.outdated {
        let _ = writeln!(
            page,
            "<p class=\"error\">No new result of the last run ({}): these numbers may be of an earlier one.</p>",
            escape(why)
        );
    }
    let measured: Vec<_> = overall
        .judgements
        .iter()
        .filter_map(|(claim, judgement)| Some((claim, judgement, judgement.estimate.as_ref()?)))
        .collect();
    if !measured.is_empty() {
        open_table(page, &["Claim", "Verdict", "Here (95 %)", "Wanted"]);
        for (claim, judgement, estimate) in measured {
            let _ = writeln!(
                page,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\">{estimate}{}</td><td>{}</td></tr>",
                escape(claim.title),
                badge(class(judgement.verdict), judgement.verdict.name(claim.source)),
                escape(&claim.unit_after()),
                escape(&claim.criterion.to_string()),
            );
        }
        close_table(page);
    } else if overall
        .judgements
        .iter()
        .any(|(_, judgement)| judgement.verdict == Verdict::NotMeasured)
    {
        page.push_str("<ul>\n");
        for (claim, judgement) in &overall.judgements {
            let _ = writeln!(page, "<li>{}: {}</li>", escape(claim.title), escape(&judgement.why));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</section>\n");
}

fn push_unreadable(page: &mut String, found: &Found) {
    for entry in &found.entries {
        let Err(why) = &entry.contents else { continue };
        let _ = writeln!(
            page,
            "<section class=\"card\">\n<h2>{}</h2>\n<p>{}</p>\n<p class=\"error\">{}</p>\n\
             <p class=\"soft\">Run it again to replace it: <code>seekwire lab run {}</code></p>\n</section>",
            escape(&entry.name),
            badge("unknown", "cannot be read"),
            escape(why),
            escape(&entry.name),
        );
    }
}

/// Experiments that have no result here.
fn push_missing(page: &mut String, found: &Found) {
    let is_there = |name: &str| {
        found.entries.iter().any(|entry| match &entry.contents {
            Ok(contents) => contents.result.experiment == name,
            Err(_) => entry.name == name,
        })
    };
    let missing: Vec<_> =
        experiments().iter().filter(|experiment| !is_there(experiment.name())).collect();
    if missing.is_empty() {
        return;
    }
    page.push_str("<h2>Not measured</h2>\n");
    open_table(page, &["Experiment", "What is asked", "Why", "Command"]);
    for experiment in missing {
        let why = found.reasons.get(experiment.name()).map_or("not run", String::as_str);
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{0}</th><td class=\"wide\">{1}</td><td class=\"wide\">{2}</td>\
             <td><code>seekwire lab run {0}</code></td></tr>",
            escape(experiment.name()),
            escape(experiment.question()),
            escape(why),
        );
    }
    close_table(page);
}

//! `/status`: the workers, the distribution of work, and the state of the guarantee. JSON for
//! programs, a page for people.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::HeaderValue;
use axum::http::header::{ACCEPT, VARY};
use axum::response::Response;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::render::farm::Farm;
use crate::render::guarantee::{Kept, Measured, text};
use crate::web::app::{App, Shared};
use crate::web::pages::{escaped, page};
use crate::web::response;
use crate::workers::worker_limits;

/// `/status`
pub(super) async fn show(State(app): Shared, headers: HeaderMap) -> Result<Response> {
    let wants = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_page = wants.contains("text/html");
    // Reading the state of farms takes locks that are also used during work.
    let status = tokio::task::spawn_blocking(move || status(&app)).await;
    let status = status.map_err(|_| Failure::internal("the status is unavailable"))?;
    let mut response = match is_page {
        true => page(html(&status)),
        false => response::fleeting("application/json", status.to_string()),
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

fn status(app: &App) -> Value {
    let workers = app.workers.as_ref().map(|workers| {
        let (remotes, come, gone) = workers.all();
        let one = |remote: &std::sync::Arc<crate::workers::remote::Remote>| {
            let hello = remote.hello();
            json!({
                "number": remote.number,
                "host": hello.map(|hello| hello.host.clone()),
                "threads": hello.map(|hello| hello.threads),
                "threadsGiven": remote.assigned.load(Ordering::SeqCst),
                "state": remote.state().name(),
                "done": remote.done.load(Ordering::Relaxed),
                "undone": remote.undone.load(Ordering::Relaxed),
            })
        };
        let all: Vec<Value> = remotes.iter().map(one).collect();
        json!({
            "address": workers.address().to_string(),
            "come": come,
            "gone": gone,
            "most": worker_limits::MOST,
            "mostThreads": workers.threads(),
            "all": all,
        })
    });
    json!({
        "workers": workers,
        "emptyTiles": app.slides.empty_tiles(),
        "sameUids": *app.slides.library().notes(),
        "decompress": dealt(app.images.tiles().farm()),
        "finish": dealt(app.images.farm()),
        "guarantee": app.images.promise().map(|promise| kept(&promise.kept())),
    })
}

fn dealt(farm: &Farm) -> Value {
    let dealt = farm.dealt();
    json!({
        "dealt": dealt.is_dealt,
        "copies": dealt.copies,
        "together": dealt.together,
        "togetherBecause": dealt.reason.map(|reason| format!("{reason:?}").to_lowercase()),
        "busySeconds": farm.busy().as_secs_f64(),
    })
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn measured(of: &Measured) -> Value {
    json!({
        "count": of.updates,
        "kept": of.kept,
        "recentMilliseconds": of.recent().map(milliseconds),
        "worstMilliseconds": milliseconds(of.worst),
    })
}

fn kept(kept: &Kept) -> Value {
    json!({
        "guarantee": text(kept.guarantee),
        "allowedMilliseconds": milliseconds(kept.allowed),
        "holds": kept.holds,
        "partial": measured(&kept.partial),
        "complete": measured(&kept.complete),
        "betweenComplete": measured(&kept.between),
    })
}

/// The status as HTML tables.
fn html(status: &Value) -> String {
    let mut rows = String::new();
    let mut row = |cells: &[String]| {
        let cells: String =
            cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(rows, "<tr>{cells}</tr>");
    };
    let shown = |value: &Value| match value {
        Value::Null => "\u{2013}".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let guarantee = &status["guarantee"];
    if guarantee.is_object() {
        let holds = match guarantee["holds"].as_bool() {
            Some(true) => "held",
            Some(false) => "not held",
            None => "no updates requested yet",
        };
        row(&["guarantee".into(), shown(&guarantee["guarantee"]), holds.into()]);
        for (name, of) in [("partial", "partial updates"), ("complete", "complete updates")] {
            let of_kind = &guarantee[name];
            let (recent, worst) =
                (shown(&of_kind["recentMilliseconds"]), shown(&of_kind["worstMilliseconds"]));
            let times = format!("{recent} ms lately, {worst} ms at worst");
            row(&[of.into(), shown(&of_kind["count"]), times]);
        }
    }
    for name in ["decompress", "finish"] {
        let of = &status[name];
        let copies = shown(&of["copies"]);
        match of["dealt"] == true {
            true => {
                let together = format!("dealt, {} together", shown(&of["together"]));
                row(&[name.into(), format!("{copies} copies"), together]);
            }
            false => row(&[name.into(), format!("{copies} threads"), "done here".into()]),
        }
    }
    row(&[
        "empty tiles".into(),
        shown(&status["emptyTiles"]),
        "of the slides that are open".into(),
    ]);
    for same in status["sameUids"].as_array().into_iter().flatten() {
        row(&["the same UIDs".into(), shown(same), String::new()]);
    }
    if let Some(most) = status["workers"]["mostThreads"].as_u64() {
        let threads = format!("{most} threads at most are given work");
        row(&["workers".into(), format!("{} at most", worker_limits::MOST), threads]);
    }
    for worker in status["workers"]["all"].as_array().into_iter().flatten() {
        let name = format!("worker {} on {}", shown(&worker["number"]), shown(&worker["host"]));
        let (assigned, threads) = (shown(&worker["threadsGiven"]), shown(&worker["threads"]));
        let threads = format!("{assigned} of {threads} threads, {}", shown(&worker["state"]));
        let done =
            format!("{} done, {} left to others", shown(&worker["done"]), shown(&worker["undone"]));
        row(&[name, threads, done]);
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta http-equiv=\"refresh\" content=\"5\">\
         <title>Status</title><link rel=\"stylesheet\" href=\"static/style.css\"></head>\
         <body><main><h1>Status</h1><table>{rows}</table><p><a href=\"./\">Slides</a></p></main>\
         </body></html>\n"
    )
}

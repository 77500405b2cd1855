//! A silent web server delays its own slides, and nothing else.

use std::process::Command;
use std::sync::atomic::Ordering;

use crate::common::silent_server::{Silent, ask, until};
use crate::common::{Service, aperio, odd};
use rustix::process::{Pid, Signal, kill_process};

/// Threads for slides of one web server.
const EACH: usize = seekwire_slides::READERS / 4;

#[test]
fn slides_of_a_silent_web_server_keep_no_others_from_being_opened() {
    let silent = Silent::start(Vec::new());
    silent.is_silent.store(true, Ordering::SeqCst);
    let fast = Silent::start(std::fs::read(aperio()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = odd(directory.path());
    let service = Service::start(&file, |settings| {
        let slow = (0..100).map(|number| format!("http://{}/{number}.svs", silent.address));
        settings.locations.extend(slow);
        settings.locations.push(format!("http://{}/fast.svs", fast.address));
    });
    let clients: Vec<_> = (0..100).map(|at| ask(&service, &format!("/{at}.svs.dzi"))).collect();
    (0..EACH).for_each(|_| silent.asked.recv().unwrap());
    until(|| service.count("requests_in_flight") > 100);
    // In files, and on another web server.
    assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
    assert_eq!(service.get("/fast.svs_files/12/5_6.png").status, 200);
    assert_eq!(service.count("remote_reads"), EACH as u64);
    assert_eq!(service.count("slides_opened_total"), EACH as u64 + 2);

    // Waiting requests end with their clients.
    drop(clients);
    until(|| service.count("requests_in_flight") == 1);
    silent.is_silent.store(false, Ordering::SeqCst);
    silent.end();
    until(|| service.count("remote_reads") == 0);
    assert_eq!(service.count("slides_opened_total"), EACH as u64 + 2);
}

#[test]
fn tiles_of_a_silent_web_server_keep_no_others_from_being_made() {
    let silent = Silent::start(std::fs::read(aperio()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = odd(directory.path());
    let service = Service::start(&file, |settings| {
        settings.locations.push(format!("http://{}/slow.svs", silent.address));
        settings.memory = 64 << 20;
    });
    assert_eq!(service.get("/slow.svs.dzi").status, 200);
    silent.is_silent.store(true, Ordering::SeqCst);
    let tile = |at: usize| format!("/slow.svs_files/12/{}_{}.png", at % 9, at / 9);
    let clients: Vec<_> = (0..100).map(|at| ask(&service, &tile(at))).collect();
    // From then on, none of the others has a thread.
    (0..EACH).for_each(|_| silent.asked.recv().unwrap());
    for _ in 0..2 {
        assert_eq!(service.get("/odd.tif_files/9/0_0.png").status, 200);
        assert_eq!(service.get("/iiif/3/odd.tif/full/max/0/gray.png").status, 200);
        assert_eq!(service.get("/slides/odd.tif/thumbnail.webp").status, 200);
    }
    assert_eq!(service.count("remote_reads"), EACH as u64);

    drop(clients);
    until(|| service.count("requests_in_flight") == 1);
    silent.is_silent.store(false, Ordering::SeqCst);
    silent.end();
    assert_eq!(service.get(&tile(100)).status, 200);
}

#[test]
fn a_server_shuts_down_while_a_bucket_does_not_answer() {
    let silent = Silent::start(Vec::new());
    silent.is_silent.store(true, Ordering::SeqCst);
    let mut server = Command::new(env!("CARGO_BIN_EXE_seekwire-slides"))
        .args(["slides", "s3://bucket/slides/", "--listen", "127.0.0.1:0"])
        .env("AWS_ENDPOINT_URL", format!("http://{}", silent.address))
        .envs(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "any")))
        .spawn()
        .unwrap();
    silent.asked.recv().unwrap();
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}

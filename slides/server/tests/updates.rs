//! Guarantees concern the waiting time of each client.

use std::io::Read;
use std::time::Duration;

use crate::common::silent_server::{Silent, ask, until};
use crate::common::{Service, aperio, odd};

/// The same view for two clients, and a part of it, as for a pan, for two more: work for one of
/// them serves all.
#[test]
fn each_client_that_waits_counts_as_what_it_has_asked_for() {
    let slow = Silent::start(std::fs::read(aperio()).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let service = Service::start(&odd(directory.path()), |settings| {
        settings.locations.push(format!("http://{}/slow.svs", slow.address));
        let long = Duration::from_secs(1000);
        settings.guarantee = Some(seekwire_flow::Guarantee::Latency(long));
    });
    assert_eq!(service.get("/slow.svs.dzi").status, 200);
    slow.wait();
    let view = "/iiif/3/slow.svs/0,0,1200,1200/max/0/default.png";
    let mut clients = vec![ask(&service, view), ask(&service, view)];
    until(|| service.count("images_joined_total") == 1);
    // Its tiles are being read, beginning with the first.
    slow.asked.recv().unwrap();
    let pan = "/slow.svs_files/12/0_0.png";
    clients.extend([ask(&service, pan), ask(&service, pan)]);
    until(|| service.count("images_joined_total") == 2);
    slow.go_on();
    for client in &mut clients {
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
    }
    let status = service.get("/status").json();
    let guarantee = &status["guarantee"];
    let count = |kind: &str| guarantee[kind]["count"].as_u64();
    assert_eq!((count("complete"), count("partial")), (Some(2), Some(2)), "{status}");
    // The image was made once.
    assert_eq!(count("betweenComplete"), Some(1), "{status}");
    assert_eq!(service.count("decoded_twice_total"), 0);
    // A cached image is not an update.
    assert_eq!((service.get(view).status, service.get(pan).status), (200, 200));
    assert_eq!(service.get("/status").json()["guarantee"], *guarantee);
}

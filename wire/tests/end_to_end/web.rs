//! Files over HTTP: Python's http.server and nginx, fetched with curl.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Child, Mode, Stage, example, in_every_mode, installed, python, sha256};

in_every_mode!(
    python_serves_a_large_file,
    nginx_serves_a_large_file,
    nginx_sends_a_file,
    nginx_serves_many_small_files,
    nginx_corks_many_small_files,
    nginx_is_a_proxy
);

const LARGE: usize = 50_000_000;

fn python_serves_a_large_file(stage: &mut Stage) {
    let file = served_file(stage, LARGE);
    let port = stage.port();
    let address = stage.address.to_string();
    let mut command = stage.command(python());
    command.args(["-m", "http.server", "--bind", &address, "--directory"]).arg(stage.path("site"));
    let server = stage.serve(command.arg(port.to_string()), port);

    let back = stage.path("back");
    fetch(stage, &back, &[format!("http://{address}:{port}/file")]);
    assert_eq!(sha256(&back), sha256(&file));
    // An interrupt ends the interpreter the ordinary way.
    server.stop(Signal::INT);
}

fn nginx_serves_a_large_file(stage: &mut Stage) {
    let file = served_file(stage, LARGE);
    let (server, port) = nginx(stage, "sendfile off;", "");
    let back = stage.path("back");
    fetch(stage, &back, &[format!("http://{}:{port}/file", stage.address)]);
    assert_eq!(sha256(&back), sha256(&file));
    stop(server);
}

/// With sendfile(2), the library moves the bytes itself: they go over the ring, as the counters
/// of `in_every_mode` show.
fn nginx_sends_a_file(stage: &mut Stage) {
    let file = served_file(stage, LARGE);
    let (server, port) = nginx(stage, "sendfile on;", "");
    let back = stage.path("back");
    fetch(stage, &back, &[format!("http://{}:{port}/file", stage.address)]);
    assert_eq!(sha256(&back), sha256(&file));
    stop(server);
}

fn nginx_serves_many_small_files(stage: &mut Stage) {
    many_small_files(stage, "sendfile off;");
}

/// nginx corks the connection, sends the head and then the file, and uncorks it.
fn nginx_corks_many_small_files(stage: &mut Stage) {
    many_small_files(stage, "sendfile on; tcp_nopush on;");
}

fn many_small_files(stage: &mut Stage, how: &str) {
    const REQUESTS: usize = 200;
    let file = served_file(stage, 10_000);
    let (server, port) = nginx(stage, &format!("{how} keepalive_requests 1000;"), "");
    let back = stage.path("back");
    // One connection for all of them.
    fetch(stage, &back, &vec![format!("http://{}:{port}/file", stage.address); REQUESTS]);
    let content = fs::read(&file).expect("the file");
    assert!(
        fs::read(&back).expect("what curl wrote") == content.repeat(REQUESTS),
        "the files are not what was served"
    );
    stop(server);
}

fn nginx_is_a_proxy(stage: &mut Stage) {
    let file = served_file(stage, LARGE);
    let (inner, inner_port) = nginx(stage, "sendfile off;", "");
    let pass = format!("proxy_buffering off; proxy_pass http://{}:{inner_port};", stage.address);
    let (outer, port) = nginx(stage, "sendfile off;", &pass);
    let back = stage.path("back");
    fetch(stage, &back, &[format!("http://{}:{port}/file", stage.address)]);
    assert_eq!(sha256(&back), sha256(&file));
    stop(outer);
    stop(inner);
}

#[test]
fn a_plain_client_is_served_by_an_accelerated_server() {
    let stage = Stage::new(Mode::Accelerated);
    let file = served_file(&stage, LARGE);
    let (server, port) = nginx(&stage, "sendfile off;", "");
    let back = stage.path("back");
    let url = format!("http://{}:{port}/file", stage.address);
    curl(&stage, stage.plain_command(installed("curl")), &back, &[url]);
    assert_eq!(sha256(&back), sha256(&file));
    stop(server);
    assert_eq!(stage.stats().ring(), 0);
}

#[test]
fn short_connections_stay_plain() {
    // One request and its answer are below the threshold: nothing is set up for them.
    let stage = Stage::new(Mode::Accelerated);
    served_file(&stage, 100);
    let (server, port) = nginx(&stage, "sendfile off;", "");
    fetch(&stage, &stage.path("back"), &[format!("http://{}:{port}/file", stage.address)]);
    stop(server);
    let stats = stage.stats();
    assert!(stats.connections.tracked > 0 && stats.connections.attached == 0, "{stats:?}");
}

/// One connection, many requests at once, and several threads that take the answers out of the
/// stream as they can.
#[test]
fn threads_that_seek_in_a_pipeline_get_what_a_plain_client_gets() {
    const REQUESTS: usize = 300;
    let stage = Stage::new(Mode::Plain);
    fs::create_dir_all(stage.path("site")).expect("a directory");
    let lengths = [0, 1, 100, 1000, 10_000, 50_000, 300_000];
    for length in lengths {
        stage.file(&format!("site/{length}"), length);
    }
    let (server, port) = nginx(&stage, "keepalive_requests 1000;", "");
    let mut paths: Vec<String> = (0..REQUESTS)
        .map(|number| format!("/{}", lengths[(3 * number + number / 7) % lengths.len()]))
        .collect();
    paths[REQUESTS / 2] = "/no-such-file".to_owned();
    let fetch = |threads: &str| {
        let mut command = stage.plain_command(example("http_pipeline"));
        command.arg(format!("{}:{port}", stage.address)).arg(threads).args(&paths);
        stage.run(&mut command).success()
    };
    let plain = fetch("0");
    assert_eq!(plain.lines().count(), REQUESTS);
    assert!(
        plain.contains("/no-such-file 404 ") && plain.contains("/300000 200 300000 "),
        "{plain}"
    );
    for threads in ["1", "4", "16"] {
        assert_eq!(fetch(threads), plain, "{threads} threads");
    }
    stop(server);
}

fn served_file(stage: &Stage, length: usize) -> std::path::PathBuf {
    fs::create_dir_all(stage.path("site")).expect("a directory");
    stage.file("site/file", length)
}

fn fetch(stage: &Stage, to: &Path, urls: &[String]) {
    curl(stage, stage.command(installed("curl")), to, urls);
}

/// Appends what `urls` answer to the file `to`, by way of one connection.
fn curl(stage: &Stage, mut command: Command, to: &Path, urls: &[String]) {
    command.args(["--silent", "--show-error", "--fail", "--noproxy", "*"]).args(urls);
    let shell = format!("exec \"$@\" >{}", to.display());
    let mut redirected = stage.plain_command("sh");
    redirected.args(["-c", &shell, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => redirected.env(name, value),
            None => redirected.env_remove(name),
        };
    }
    stage.run(&mut redirected).success();
}

fn nginx(stage: &Stage, directives: &str, location: &str) -> (Child, u16) {
    let port = stage.port();
    let home = stage.path(&format!("nginx.{port}"));
    fs::create_dir(&home).expect("a directory");
    let shown = home.display();
    // As root, workers would become another user, whom the registry rightly keeps out.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let configuration = format!(
        "daemon off; {user} worker_processes 2; pid {shown}/pid; error_log stderr;
         events {{ }}
         http {{
             access_log off; {directives}
             client_body_temp_path {shown}/body; proxy_temp_path {shown}/proxy; fastcgi_temp_path {shown}/fastcgi;
             uwsgi_temp_path {shown}/uwsgi; scgi_temp_path {shown}/scgi;
             server {{ listen {}:{port}; root {}; location / {{ {location} }} }}
         }}",
        stage.address,
        stage.path("site").display()
    );
    let file = home.join("nginx.conf");
    fs::write(&file, configuration).expect("a file");
    let mut command = stage.command(installed("nginx"));
    command.arg("-p").arg(&home).arg("-c").arg(&file).args(["-e", "stderr"]);
    (stage.serve(&mut command, port), port)
}

fn stop(server: Child) {
    server.stop(Signal::QUIT).success();
}

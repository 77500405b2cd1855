//! redis-server with its own client and benchmark.

use crate::harness::{Child, Mode, Stage, in_every_mode, installed, sha256};

in_every_mode!(
    benchmark_with_many_clients,
    benchmark_with_pipelines,
    benchmark_with_large_values,
    mass_insertion,
    a_large_value_survives,
    publish_and_subscribe,
);

fn benchmark_with_many_clients(stage: &mut Stage) {
    benchmark(stage, &["-c", "50", "-n", "20000", "-d", "64"]);
}

fn benchmark_with_pipelines(stage: &mut Stage) {
    benchmark(stage, &["-c", "10", "-n", "100000", "-P", "16"]);
}

fn benchmark_with_large_values(stage: &mut Stage) {
    benchmark(stage, &["-c", "10", "-n", "5000", "-d", "16384"]);
}

fn benchmark(stage: &Stage, options: &[&str]) {
    let (server, port) = serve(stage);
    let mut command = client(stage, "redis-benchmark", &port);
    let report = stage.run(command.args(["-t", "set,get", "--csv"]).args(options)).success();
    let tests: Vec<&str> = report.lines().filter(|line| line.starts_with('"')).collect();
    assert!(tests.iter().any(|line| line.starts_with("\"SET\"")), "{report}");
    assert!(tests.iter().any(|line| line.starts_with("\"GET\"")), "{report}");
    stop(stage, server, &port);
}

fn mass_insertion(stage: &mut Stage) {
    const KEYS: usize = 50_000;
    let (server, port) = serve(stage);
    // redis-cli sends input that comes line by line with hundreds of calls for each poll.
    let commands = stage.path("commands");
    let lines: String = (0..KEYS).map(|key| format!("SET key:{key} {key:020}\r\n")).collect();
    std::fs::write(&commands, lines).unwrap();
    let load = format!(
        "{} -h {} -p {port} --pipe <{}",
        installed("redis-cli").display(),
        stage.address,
        commands.display()
    );
    let report = stage.run(stage.command("sh").args(["-c", &load])).success();
    assert!(report.contains(&format!("errors: 0, replies: {KEYS}")), "{report}");
    assert_eq!(ask(stage, &port, &["DBSIZE"]), KEYS.to_string());
    assert_eq!(ask(stage, &port, &["GET", "key:4711"]), format!("{:020}", 4711));
    stop(stage, server, &port);
}

fn a_large_value_survives(stage: &mut Stage) {
    let (server, port) = serve(stage);
    let file = stage.file("value", 40_000_000);
    let set = format!(
        "{} -h {} -p {port} -x SET value <{}",
        installed("redis-cli").display(),
        stage.address,
        file.display()
    );
    assert_eq!(stage.run(stage.command("sh").args(["-c", &set])).success().trim(), "OK");
    let back = stage.path("back");
    // redis-cli ends the value with a newline of its own.
    let get = format!(
        "{} -h {} -p {port} --raw GET value | head -c 40000000 >{}",
        installed("redis-cli").display(),
        stage.address,
        back.display()
    );
    stage.run(stage.command("sh").args(["-c", &get])).success();
    assert_eq!(sha256(&back), sha256(&file));
    stop(stage, server, &port);
}

fn publish_and_subscribe(stage: &mut Stage) {
    const MESSAGES: usize = 2000;
    let (server, port) = serve(stage);
    let mut subscriber =
        stage.start(client(stage, "redis-cli", &port).args(["--csv", "SUBSCRIBE", "news"]));
    while !subscriber.line().contains("\"subscribe\",\"news\"") {}
    let mut publisher = stage.start(&mut client(stage, "redis-cli", &port));
    for number in 0..MESSAGES {
        assert_eq!(publisher.ask(&format!("PUBLISH news n{number}")), "1");
        let message = subscriber.line();
        assert!(message.ends_with(&format!("\"message\",\"news\",\"n{number}\"")), "{message}");
    }
    publisher.finish().success();
    drop(subscriber);
    stop(stage, server, &port);
}

fn serve(stage: &Stage) -> (Child, String) {
    let port = stage.port();
    let mut command = stage.command(installed("redis-server"));
    command.args(["--bind", &stage.address.to_string(), "--port", &port.to_string()]);
    command
        .args(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--dir"])
        .arg(stage.path(""));
    (stage.serve(&mut command, port), port.to_string())
}

fn client(stage: &Stage, program: &str, port: &str) -> std::process::Command {
    let mut command = stage.command(installed(program));
    command.args(["-h", &stage.address.to_string(), "-p", port]);
    command
}

fn ask(stage: &Stage, port: &str, words: &[&str]) -> String {
    stage.run(client(stage, "redis-cli", port).args(words)).success().trim().to_owned()
}

fn stop(stage: &Stage, server: Child, port: &str) {
    if stage.mode() != Mode::Plain {
        let clients = ask(stage, port, &["CLIENT", "LIST"]);
        assert!(clients.contains("addr="), "the server lost its clients: {clients}");
    }
    stage.run(client(stage, "redis-cli", port).args(["SHUTDOWN", "NOSAVE"])).success();
    server.finish().success();
}

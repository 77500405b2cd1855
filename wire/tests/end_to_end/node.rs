//! Node.js: its event loop closes sockets by raw system calls and registers them with epoll by
//! io_uring, and gives their numbers to files, pipes and other processes.

use std::path::{Path, PathBuf};

use crate::harness::{Mode, Stage, installed_apart, source};

macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use crate::harness::Mode;

            #[test]
            fn plain() {
                super::scenario(stringify!($name), Mode::Plain, &[]);
            }

            #[test]
            fn accelerated() {
                super::scenario(stringify!($name), Mode::Accelerated, &[]);
            }

            #[test]
            fn from_the_first_call_on() {
                super::scenario(stringify!($name), Mode::Accelerated, &[("SEEKWIRE_THRESHOLD", "0")]);
            }

            #[test]
            fn taken_back() {
                super::scenario(stringify!($name), Mode::TakenBack, &[]);
            }
        })+
    };
}

scenarios!(net, http, tls, cluster, scheduled_cluster, workers, children);

const VERSIONS: [&str; 3] = ["20", "22", "24"];

fn node(version: &str) -> PathBuf {
    installed_apart(Path::new(&format!("node-{version}/node")))
}

fn scenario(name: &str, mode: Mode, variables: &[(&'static str, &str)]) {
    for version in VERSIONS {
        let mut stage = Stage::new(mode);
        for (variable, value) in variables {
            stage.set(variable, value);
        }
        let directory = stage.path("files");
        std::fs::create_dir(&directory).expect("a directory for files");
        let mut command = stage.command(node(version));
        let said = stage.run(command.arg(source("node.js")).arg(name).arg(directory)).success();
        assert_eq!(said.trim(), "ok", "Node.js {version}");
        let stats = stage.stats();
        // A worker does not know where the sockets come from that are passed to it: they stay on
        // TCP.
        let used = mode != Mode::Plain && name != "scheduled_cluster";
        assert_eq!(stats.ring() > 0, used, "Node.js {version}: {stats:?}");
    }
}

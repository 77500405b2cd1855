//! Slides in a bucket of a real S3 server, which checks signatures. Credentials are in the
//! environment, so separate processes make the requests: this program again.

use crate::common::seeds::{blosc, zarr_2};
use crate::common::{aperio, open};
use seekwire_slides_image::{HttpSource, Limits, Region, Slide, Source, list};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Names the work for a child process.
const WORK: &str = "SEEKWIRE_TEST_S3";
const REGION: Region = Region { x: 100, y: 200, width: 501, height: 301 };

/// A child process that answers line by line.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    fn answer(&mut self) -> String {
        self.output.next().expect("an answer").unwrap()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
        self.answer()
    }

    /// The rest of the line after some mark.
    fn marked(&mut self) -> String {
        loop {
            if let Some((_, said)) = self.answer().split_once("said: ") {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Runs a piece of work with these variables and no other AWS ones.
fn work(what: &str, set: &[(&str, &str)]) -> Program {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "s3::what_a_process_of_its_own_does"]).env(WORK, what);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    let alone =
        [("AWS_REGION", "eu-west-1"), ("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", "/none")];
    Program::start(command.envs(alone).envs(set.iter().copied()))
}

#[test]
fn what_a_process_of_its_own_does() {
    let Ok(what) = std::env::var(WORK) else { return };
    let say = |what: &str| println!("\nsaid: {what}");
    let (what, address) = what.split_once(' ').unwrap();
    if what == "list" {
        return say(&match list(address) {
            Err(error) => error.to_string(),
            Ok(names) => format!("{names:?}"),
        });
    }
    if what == "change" {
        let source = HttpSource::open(address).unwrap();
        say("open");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return say(&source.read_at(100_000, &mut [0; 10]).unwrap_err().to_string());
    }
    match Slide::open(address, Limits::default()) {
        Err(error) => say(&error.to_string()),
        Ok(slide) => {
            let region = if what == "zarr" { Region { x: 30, y: 20, ..REGION } } else { REGION };
            let pixels = slide.read(0, region).unwrap();
            say(&format!("{:x}", sum(pixels.pixels())));
        }
    }
}

/// A checksum to compare pixels.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
}

#[test]
fn slides_in_a_bucket_are_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("files");
    let file = root.join("case 7/slide+ä.svs");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::copy(aperio(), &file).unwrap();
    for (name, bytes) in zarr_2(r#"{"id": "blosc"}"#, &blosc(4096)) {
        let path = root.join("image.zarr").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = crate::common::run(&mut Command::new(crate_root.join("../../scripts/s3-server")));
    let python = String::from_utf8(script.stdout).unwrap();
    let program = crate_root.join("tests/make/serve_s3.py");
    let mut server =
        Program::start(Command::new(python.trim_end()).arg(program).arg(&root).env_remove(WORK));
    let settings: serde_json::Value = serde_json::from_str(&server.answer()).unwrap();
    let text = |name: &str| settings[name].as_str().unwrap().to_owned();
    let (address, id, secret) = (text("address"), text("id"), text("secret"));
    let at = ("AWS_ENDPOINT_URL", address.as_str());
    let keys = [at, ("AWS_ACCESS_KEY_ID", &id), ("AWS_SECRET_ACCESS_KEY", &secret)];
    let slide = "read s3://slides/case 7/slide+ä.svs";
    let near = open(&file).read(0, REGION).unwrap();
    let near = format!("{:x}", sum(near.pixels()));

    // Without keys, from a server that requires none.
    assert_eq!(work(slide, &[at]).marked(), near);
    assert_eq!(server.ask("check"), "done");
    assert_eq!(work(slide, &keys).marked(), near);
    let (guest, guest_secret, token) = (text("guest"), text("guest_secret"), text("token"));
    let mut guest = vec![
        at,
        ("AWS_ACCESS_KEY_ID", guest.as_str()),
        ("AWS_SECRET_ACCESS_KEY", &guest_secret),
        ("AWS_SESSION_TOKEN", &token),
    ];
    assert_eq!(work(slide, &guest).marked(), near);
    guest.pop();
    let error = work(slide, &guest).marked();
    assert!(error.contains("403 Forbidden: "), "{error}");
    // From the same sources as Amazon's own programs.
    let services = text("services");
    let one = format!("{services}/keys");
    let files = ["credentials", "config"].map(|name| directory.path().join(name));
    let [credentials, config] = files.each_ref().map(|file| file.to_str().unwrap());
    let keys_of = |name: &str| {
        format!("[{name}]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n")
    };
    std::fs::write(
        credentials,
        keys_of("default") + "[wrong]\naws_access_key_id = a\naws_secret_access_key = b\n",
    )
    .unwrap();
    std::fs::write(config, keys_of("profile lab")).unwrap();
    let by_file = [at, ("AWS_SHARED_CREDENTIALS_FILE", credentials), ("AWS_CONFIG_FILE", config)];
    let near_by = [
        ("AWS_EC2_METADATA_DISABLED", "false"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", services.as_str()),
    ];
    let none = [("AWS_SHARED_CREDENTIALS_FILE", "/none"), ("AWS_CONFIG_FILE", "/none")];
    for (more, said) in [
        (&[][..], near.as_str()),
        (&[("AWS_PROFILE", "lab")], &near),
        (&[("AWS_PROFILE", "wrong")], "403 Forbidden: InvalidAccessKeyId"),
        (&[("AWS_PROFILE", "none")], "AWS_PROFILE is set, but yields no keys"),
        // Not those of the machine.
        (
            &[("AWS_PROFILE", "none"), near_by[0], near_by[1]],
            "AWS_PROFILE is set, but yields no keys",
        ),
        (&[("AWS_ROLE_ARN", "a"), none[0], none[1], near_by[0], near_by[1]], "AWS_ROLE_ARN is set"),
    ] {
        let answer = work(slide, &[&by_file, more].concat()).marked();
        assert!(answer.contains(said), "{more:?}: {answer}");
    }
    for set in [("AWS_CONTAINER_CREDENTIALS_FULL_URI", one.as_str()), near_by[1]] {
        let set = [at, near_by[0], set];
        assert_eq!(work(slide, &set).marked(), near, "{set:?}");
    }
    let zarr = open(&root.join("image.zarr")).read(0, Region { x: 30, y: 20, ..REGION }).unwrap();
    let far = work("zarr s3://slides/image.zarr/", &keys).marked();
    assert_eq!(far, format!("{:x}", sum(zarr.pixels())));

    let names = work("list s3://slides/", &keys).marked();
    assert_eq!(names, r#"{"case 7": true, "image.zarr": true}"#);
    assert_eq!(work("list s3://slides/case 7/", &keys).marked(), r#"{"slide+ä.svs": false}"#);
    assert_eq!(work("list s3://slides/none/", &keys).marked(), "{}");
    assert_eq!(server.ask("fill\t1100"), "done");
    let many = work("list s3://slides/many/", &keys).marked();
    assert_eq!(many.matches(".svs").count(), 1100, "in parts of a thousand");

    let wrong = [at, ("AWS_ACCESS_KEY_ID", &id), ("AWS_SECRET_ACCESS_KEY", "guess")];
    for (what, set, said) in [
        (slide, &wrong[..], "403 Forbidden: SignatureDoesNotMatch"),
        ("read s3://slides/none.svs", &keys, "404 Not Found"),
        ("read s3://none/slide.svs", &keys, "404 Not Found"),
        ("read s3://slides", &keys, "the key of the object is missing"),
        ("list s3://slides/", &wrong, "403 Forbidden: SignatureDoesNotMatch"),
        ("list s3://none/", &keys, "404 Not Found"),
        (slide, &wrong[..2], "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set"),
    ] {
        let error = work(what, set).marked();
        assert!(error.contains(said) && error.contains(&what[5..]), "{what}: {error}");
        assert!(!error.contains("guess") && !error.contains("Signature="), "{error}");
    }

    // Replaced by another object of the same length.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes.reverse();
    let other = directory.path().join("other");
    std::fs::write(&other, bytes).unwrap();
    let mut reader = work("change s3://slides/case 7/slide+ä.svs", &keys);
    assert_eq!(reader.marked(), "open");
    assert_eq!(server.ask(&format!("put\tcase 7/slide+ä.svs\t{}", other.display())), "done");
    writeln!(reader.input.as_ref().unwrap()).unwrap();
    let error = reader.marked();
    assert!(error.contains("has changed since it was opened"), "{error}");
}

//! Tiles of a real slide, served by `seekwire slides` and fetched by `curl`; each time, a part of
//! it is compared with the decoding of OpenSlide.

use std::fs::File;
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use super::pairs::{Listening, PerMode, REQUESTS, Shared, compare, listen, with_package};
use crate::context::Context;
use crate::launch::{Mode, Program, Running};
use crate::schedule::{Group, Trial};

pub(crate) const CASE: &str = "slide tiles, seekwire slides to curl";

/// The program that serves.
const SERVER: &str = "seekwire-slides";
/// The slide that `scripts/slide` fetches, relative to the directory of a program built by cargo.
const SLIDE: &str = "../slides/aperio.svs";

/// Columns and rows of whole tiles of the largest level, and how often each is fetched in a run.
const COLUMNS: u32 = 9;
const ROWS: u32 = 12;
const PASSES: u32 = 8;

/// The part that is compared: left, top, and a side.
const PART: [u32; 3] = [500, 900, 512];
/// Minimum ratio of signal to noise, in decibels: decoders of JPEG may differ in rounding, but not
/// more.
const ALIKE: f64 = 40.0;

/// The slide, its pixels as OpenSlide decodes them, and a directory for fetched tiles.
struct Reference {
    slide: PathBuf,
    pixels: Vec<u8>,
    directory: TempDir,
}

/// The two variants, where the server and a slide exist.
pub fn group<'a>(context: &Context<'_>) -> Option<Group<'a>> {
    let (program, slide) = (seekwire_program::find(SERVER).ok()?, slide()?);
    let servers = PerMode::new();
    let reference = Shared::new();
    Some(compare(context, CASE, |mode| {
        let (server, reference) = (servers.of(&mode), reference.clone());
        let (program, slide) = (program.clone(), slide.clone());
        move |trial: &mut Trial| {
            let reference = reference.get(|| Reference::make(slide.clone()))?;
            let server = server.get(|| start(&mode, &program, &reference.slide))?;
            run(trial, server, &mode, reference)
        }
    }))
}

/// The slide that `scripts/slide` has fetched, if this program is where cargo puts it.
fn slide() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    own.parent().map(|directory| directory.join(SLIDE)).filter(|path| path.is_file())
}

fn run(trial: &mut Trial, server: &Listening, mode: &Mode, reference: &Reference) -> Result<()> {
    let base = format!("http://127.0.0.1:{}", server.port);
    let curl = |to: &Path, address: &str| {
        let client = Program::new("curl", mode)
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
            .args(["--write-out", "%{time_total}\n", "--output"])
            .arg(to)
            .arg(address)
            .timeout(Duration::from_secs(60));
        server.serve(client, |error| with_package(error, "curl"))
    };
    let directory = reference.directory.path();
    let [left, top, side] = PART;
    let part = directory.join("part.png");
    let region = format!("{left},{top},{side},{side}");
    curl(&part, &format!("{base}/iiif/3/aperio.svs/{region}/max/0/default.png?icc=raw"))?;
    let ratio = signal_to_noise(&pixels(&part)?, &reference.pixels)?;
    if ratio < ALIKE {
        bail!("the slide differs from what OpenSlide decodes: {ratio:.1} dB of signal to noise");
    }

    // The number of a pass changes the address, not the tile.
    let (columns, rows) = (COLUMNS - 1, ROWS - 1);
    let tiles = format!(
        "{base}/aperio.svs_files/12/[0-{columns}]_[0-{rows}].jpg?icc=raw&pass=[1-{PASSES}]"
    );
    let finished = curl(&directory.join("tile-#1-#2.jpg"), &tiles)?;
    trial.count(finished.traffic);
    let times = finished.stdout.lines().map(|line| line.trim().parse::<f64>());
    let times: Vec<f64> =
        times.collect::<Result<_, _>>().context("curl did not report its times")?;
    let wanted = (COLUMNS * ROWS * PASSES) as usize;
    ensure!(times.len() == wanted, "{} tiles of {wanted} arrived", times.len());
    let seconds: f64 = times.iter().sum();
    ensure!(seconds > 0.0, "curl reported times of zero");
    trial.record(CASE, None, REQUESTS, wanted as f64 / seconds);
    Ok(())
}

fn start(mode: &Mode, path: &Path, slide: &Path) -> Result<Listening> {
    let program = |port: u16| {
        Program::new(path, mode).arg("slides").arg(slide).args([
            "--log",
            "error",
            "--prefetch",
            "0",
            "--listen",
            &format!("127.0.0.1:{port}"),
        ])
    };
    let ready = |process: &Running, port| {
        process.wait_for_port(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    Ok(listen(program, ready)?)
}

impl Reference {
    fn make(slide: PathBuf) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("seekwire-").tempdir()?;
        let file = directory.path().join("openslide.png");
        let [left, top, side] = PART.map(|number| number.to_string());
        Program::new("openslide-write-png", &Mode::Plain)
            .arg(&slide)
            .args([&left, &top, "0", &side, &side])
            .arg(&file)
            .run()
            .map_err(|error| with_package(error, "openslide-tools"))?;
        let pixels = pixels(&file)?;
        Ok(Self { slide, pixels, directory })
    }
}

/// Red, green and blue of each pixel of a file in PNG, of 8 bits each.
fn pixels(path: &Path) -> Result<Vec<u8>> {
    let read = || -> Result<Vec<u8>> {
        let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
        let size = reader.output_buffer_size().context("too large")?;
        let mut bytes = vec![0; size];
        let frame = reader.next_frame(&mut bytes)?;
        bytes.truncate(frame.buffer_size());
        let samples = frame.color_type.samples();
        ensure!(samples >= 3 && frame.bit_depth == png::BitDepth::Eight, "no colours of 8 bits");
        Ok(bytes.chunks_exact(samples).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
    };
    read().with_context(|| path.display().to_string())
}

/// In decibels; infinite if there is no difference.
fn signal_to_noise(one: &[u8], other: &[u8]) -> Result<f64> {
    ensure!(one.len() == other.len(), "{} bytes of pixels, not {}", one.len(), other.len());
    let squares = one.iter().zip(other).map(|(one, other)| f64::from(one.abs_diff(*other)).powi(2));
    let mean = squares.sum::<f64>() / one.len() as f64;
    Ok(10.0 * (255.0 * 255.0 / mean).log10())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_measured_in_decibels() {
        assert_eq!(signal_to_noise(&[1, 2, 3], &[1, 2, 3]).unwrap(), f64::INFINITY);
        let ratio = signal_to_noise(&[0; 100], &[255; 100]).unwrap();
        assert!(ratio.abs() < 1e-9, "{ratio}");
        assert!(signal_to_noise(&[1], &[1, 2]).is_err());
    }
}

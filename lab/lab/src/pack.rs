//! Results stored compactly: the readings compressed, and a `result.json` without anything that
//! follows from them: rows, tables, figures and the summary.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::experiment::Experiment;
use crate::experiments::by_name;
use crate::outcome::{Findings, Recorded, ResultFile};
use crate::output::{self, PACKED_RAW, RAW, RESULT};
use crate::programs::DEMO;
use crate::record::{Better, Row, Samples};

/// The contents of a packed `result.json`.
#[derive(Serialize, Deserialize)]
struct Packed {
    #[serde(flatten)]
    result: ResultFile,
    rows_of_raw: RowsOfRaw,
}

/// Facts about the rows that the readings do not contain.
#[derive(Serialize, Deserialize)]
struct RowsOfRaw {
    /// The variant that all others are compared with.
    baseline: String,
    /// By metric.
    better: BTreeMap<String, Better>,
    /// Whether the experiment's findings also follow from the readings.
    #[serde(default)]
    with_findings: bool,
}

impl RowsOfRaw {
    fn samples(&self, raw: &str) -> Result<Samples, String> {
        Samples::of_csv(raw, &self.better)
    }
}

/// The experiment of a result, if this program knows it.
pub(crate) fn experiment_of(result: &ResultFile) -> Option<&'static dyn Experiment> {
    let name = if result.experiment == DEMO { "programs" } else { &result.experiment };
    by_name(name).ok()
}

/// Adds the findings to a result that is kept without them.
fn find(result: &mut ResultFile, samples: &Samples) -> Result<(), String> {
    let experiment = experiment_of(result)
        .ok_or_else(|| format!("there is no experiment '{}'", result.experiment))?;
    let recorded = Recorded { parameters: &result.parameters, samples };
    experiment.findings(recorded).put_into(result);
    Ok(())
}

/// A result as it is read from a directory.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) result: ResultFile,
    /// The readings, if the result is packed.
    pub(crate) raw: Option<String>,
}

/// Reads the result in `directory`, packed or not.
///
/// # Errors
///
/// The reason why it cannot be read, for people.
pub(crate) fn read(directory: &Path) -> Result<Kept, String> {
    let text =
        output::read_file(&directory.join(RESULT)).map_err(|why| format!("{RESULT}: {why}"))?;
    let damaged = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Data => {
            format!(
                "{RESULT} is not of this version of the laboratory, or of something else: {error}"
            )
        }
        _ => format!("{RESULT} is damaged: {error}"),
    };
    let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    if value.get("rows_of_raw").is_none() {
        return Ok(Kept { result: serde_json::from_str(&text).map_err(damaged)?, raw: None });
    }
    let Packed { mut result, rows_of_raw } = serde_json::from_value(value).map_err(damaged)?;
    let raw = unpack(&directory.join(PACKED_RAW)).map_err(|why| format!("{PACKED_RAW}: {why}"))?;
    let samples =
        rows_of_raw.samples(&raw).map_err(|why| format!("{PACKED_RAW} is damaged: {why}"))?;
    result.rows = samples.rows(&rows_of_raw.baseline);
    if rows_of_raw.with_findings {
        find(&mut result, &samples)?;
    }
    Ok(Kept { result, raw: Some(raw) })
}

fn unpack(file: &Path) -> io::Result<String> {
    output::read_text(GzDecoder::new(output::open_file(file)?))
}

/// Packs the result in `directory`: compresses `raw.csv`, and leaves out of `result.json` the rows
/// and, if this version finds the same ones, the findings. A packed result stays as it is. Returns
/// the size of both files in bytes, before and after.
///
/// # Errors
///
/// If the result cannot be read, its rows are not those of its readings (nothing is changed then),
/// or the directory cannot be written to.
pub fn pack(directory: &Path) -> Result<(u64, u64)> {
    let Kept { mut result, raw } = read(directory).map_err(anyhow::Error::msg)?;
    let size =
        |name| fs::metadata(directory.join(name)).map(|metadata| metadata.len()).unwrap_or(0);
    let before = size(RESULT) + size(RAW) + size(PACKED_RAW);
    if raw.is_some() {
        return Ok((before, before));
    }
    let raw =
        output::read_file(&directory.join(RAW)).with_context(|| format!("cannot read {RAW}"))?;
    let better = result.rows.iter().map(|row| (row.metric.clone(), row.better)).collect();
    let baseline = result.rows.iter().find_map(|row| row.baseline.clone()).unwrap_or_default();
    let mut rows_of_raw = RowsOfRaw { baseline, better, with_findings: false };
    let samples = rows_of_raw.samples(&raw).map_err(|why| anyhow!("{RAW}: {why}"))?;
    let rows = samples.rows(&rows_of_raw.baseline);
    // Older results do not contain how many pairs of readings are behind a ratio.
    for (row, stored) in rows.iter().zip(&mut result.rows) {
        if let (Some(ratio), Some(stored)) = (&row.ratio, &mut stored.ratio) {
            stored.pairs = stored.pairs.or(ratio.pairs);
        }
    }
    if rows != result.rows {
        let differs = rows.iter().zip(&result.rows).find(|(ours, theirs)| ours != theirs);
        let name =
            |(row, _): (&Row, _)| format!(" ({}, {}, {})", row.case, row.variant, row.metric);
        let row = differs.map_or_else(String::new, name);
        bail!("the rows of {RESULT} are not those that follow from {RAW}{row}; it stays as it is");
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(raw.as_bytes())?;
    let mut packed: &[u8] = &encoder.finish()?;
    let mut recomputed = result.clone();
    rows_of_raw.with_findings = find(&mut recomputed, &samples).is_ok() && recomputed == result;
    if rows_of_raw.with_findings {
        Findings::default().put_into(&mut result);
    }
    result.rows.clear();
    let text = serde_json::to_string(&Packed { result, rows_of_raw })? + "\n";
    output::copy_file(directory, PACKED_RAW, &mut packed)?;
    output::write_file(directory, RESULT, &text)?;
    fs::remove_file(directory.join(RAW)).with_context(|| format!("cannot remove {RAW}"))?;
    Ok((before, size(RESULT) + size(PACKED_RAW)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(name: &str) -> tempfile::TempDir {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measurements").join(name);
        let to = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
        to
    }

    /// As the laboratory writes it.
    fn unpacked(name: &str) -> (tempfile::TempDir, ResultFile, String) {
        let directory = recorded(name);
        let Kept { result, raw } = read(directory.path()).unwrap();
        let raw = raw.expect("recorded results are packed");
        fs::write(directory.path().join(RESULT), serde_json::to_string_pretty(&result).unwrap())
            .unwrap();
        fs::write(directory.path().join(RAW), &raw).unwrap();
        fs::remove_file(directory.path().join(PACKED_RAW)).unwrap();
        (directory, result, raw)
    }

    #[test]
    fn a_packed_result_is_the_same() {
        let (directory, result, raw) = unpacked("mailbox");
        assert!(!result.rows.is_empty() && !result.tables.is_empty());
        let (before, after) = pack(directory.path()).unwrap();
        assert!(after < before / 5, "{before} to {after}");
        assert!(!directory.path().join(RAW).exists());
        let text = fs::read_to_string(directory.path().join(RESULT)).unwrap();
        for computed in ["tables", "figures", "summary", "meanings"] {
            assert!(!text.contains(&format!("\"{computed}\"")), "{computed}: {text}");
        }
        let kept = read(directory.path()).unwrap();
        assert_eq!((kept.result, kept.raw), (result, Some(raw)));
        assert_eq!(pack(directory.path()).unwrap(), (after, after), "packed already");
    }

    #[test]
    fn what_another_version_has_found_is_kept() {
        let (directory, mut result, _) = unpacked("mailbox");
        result.tables[0].note = "by another version".to_owned();
        fs::write(directory.path().join(RESULT), serde_json::to_string(&result).unwrap()).unwrap();
        pack(directory.path()).unwrap();
        assert_eq!(read(directory.path()).unwrap().result, result);
    }

    #[test]
    fn a_result_that_is_not_of_its_readings_stays() {
        let (directory, result, raw) = unpacked("connections");
        fs::write(directory.path().join(RAW), raw.lines().take(20).collect::<Vec<_>>().join("\n"))
            .unwrap();
        let error = pack(directory.path()).unwrap_err().to_string();
        assert!(error.contains("(64 B, ") && error.contains(", connections)"), "{error}");
        assert_eq!(read(directory.path()).unwrap().result, result);
        assert!(!directory.path().join(PACKED_RAW).exists());
    }

    #[test]
    fn damage_is_reported() {
        let directory = recorded("connections");
        let packed = directory.path().join(PACKED_RAW);
        let whole = fs::read(&packed).unwrap();
        fs::write(&packed, &whole[..whole.len() / 2]).unwrap();
        assert!(read(directory.path()).unwrap_err().contains(PACKED_RAW));
        fs::remove_file(&packed).unwrap();
        assert!(read(directory.path()).unwrap_err().contains("No such file"));
    }
}

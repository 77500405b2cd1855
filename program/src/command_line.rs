//! The form that the command lines of all programs have in common.

use clap::builder::{OsStringValueParser, TypedValueParser};
use seekwire_values::Log;

/// The parser of `--log DEST:LEVEL`.
#[must_use]
pub fn log() -> impl TypedValueParser<Value = Log> {
    OsStringValueParser::new().try_map(|text| Log::parse(&text))
}

//! Pipelines in one line, `read | gunzip | count lines`, as the tables that a pipeline file would have.
//!
//! Filters follow one another with | between them. Words are quoted as for a shell. `NAME=VALUE` before
//! a filter is an option of the stream that leads to it, and after it one of the filter itself. Another
//! word is the value of the option that [`bare_option`] names, or begins the command of a filter that
//! runs a program. Behind the last filter, `write` is added unless it is one.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::builtin;
use crate::options::Fault;

/// A table, with its name.
pub(crate) type Named<'a> = (Spanned<String>, Spanned<DeTable<'a>>);

/// The tables `[filter.NAME]` and `[[stream]]`. Locations are those in the expression.
pub(crate) struct Tables<'a> {
    pub(crate) filters: Vec<Named<'a>>,
    pub(crate) streams: Vec<Spanned<DeTable<'a>>>,
}

/// A word: as written, and without its quotes.
struct Word<'a> {
    raw: &'a str,
    text: String,
    span: Range<usize>,
}

/// The option that a word without a name sets.
fn bare_option(filter: &str) -> Option<&'static str> {
    match filter {
        "read" | "write" => Some("path"),
        "gzip" | "zstd" => Some("level"),
        "count" => Some("what"),
        "encode-image" => Some("format"),
        "burn" => Some("nanoseconds-per-byte"),
        _ => None,
    }
}

fn runs_program(filter: &str) -> bool {
    matches!(filter, "exec" | "framed")
}

pub(crate) fn tables(source: &str) -> Result<Tables<'_>, Fault> {
    let mut tables = Tables { filters: Vec::new(), streams: Vec::new() };
    let mut names = BTreeSet::new();
    let mut last: Option<Word<'_>> = None;
    for words in stages(source)? {
        let mut words = words.into_iter().peekable();
        let mut stream = DeTable::new();
        let mut end = 0;
        while let Some(word) = words.next_if(|word| option(word).is_some()) {
            if last.is_none() {
                let why = "no stream leads to the first filter: write its options after its name";
                return Err((word.span, why.to_owned()));
            }
            add_option(&mut stream, &word)?;
            end = word.span.end;
        }
        let Some(run) = words.next() else {
            return Err((end..end, "the name of a filter is missing".to_owned()));
        };
        check_name(&run)?;
        let options = filter_options(&run, words)?;
        add(&mut tables, &mut names, &run, options, stream)?;
        last = Some(run);
    }
    let Some(last) = last else {
        return Err((0..0, "the pipeline is empty; it can be 'read | count lines'".to_owned()));
    };
    if last.text != "write" {
        let end = source.len()..source.len();
        let write = Word { raw: "write", text: "write".to_owned(), span: end };
        add(&mut tables, &mut names, &write, DeTable::new(), DeTable::new())?;
    }
    Ok(tables)
}

/// Fails unless there is such a filter.
fn check_name(run: &Word<'_>) -> Result<(), Fault> {
    if builtin::names().any(|name| name == run.text) {
        return Ok(());
    }
    let all = builtin::names().collect::<Vec<_>>().join(", ");
    let why = format!(
        "there is no filter {}; there are {all}, and a program is written `exec PROGRAM`",
        run.text
    );
    Err((run.span.clone(), why))
}

/// Adds a filter, and the stream that leads to it from the one before.
fn add<'a>(
    tables: &mut Tables<'a>,
    names: &mut BTreeSet<String>,
    run: &Word<'a>,
    mut filter: DeTable<'a>,
    mut stream: DeTable<'a>,
) -> Result<(), Fault> {
    let span = run.span.clone();
    let numbered = (2..).map(|number| format!("{}-{number}", run.text));
    let mut candidates = std::iter::once(run.text.clone()).chain(numbered);
    let name = candidates.find(|name| !names.contains(name)).unwrap_or_default();
    if let Some((before, _)) = tables.filters.last() {
        let ends = [("from", before.get_ref().clone()), ("to", name.clone())];
        for (key, filter) in ends {
            insert(&mut stream, key, span.clone(), Spanned::new(span.clone(), string(filter)))?;
        }
        tables.streams.push(Spanned::new(span.clone(), stream));
    }
    insert(&mut filter, "run", span.clone(), Spanned::new(span.clone(), string(run.text.clone())))?;
    names.insert(name.clone());
    tables.filters.push((Spanned::new(span.clone(), name), Spanned::new(span, filter)));
    Ok(())
}

/// The words after the name of a filter.
fn filter_options<'a>(
    run: &Word<'a>,
    words: impl Iterator<Item = Word<'a>>,
) -> Result<DeTable<'a>, Fault> {
    let mut table = DeTable::new();
    let mut command = DeArray::new();
    let mut begin = None;
    for word in words {
        if !command.is_empty() {
            command.push(Spanned::new(word.span, string(word.text)));
        } else if option(&word).is_some() {
            add_option(&mut table, &word)?;
        } else if runs_program(&run.text) {
            begin = Some(word.span.clone());
            command.push(Spanned::new(word.span, string(word.text)));
        } else {
            let Some(name) = bare_option(&run.text) else {
                let why = format!("{} has no option without a name: write NAME=VALUE", run.text);
                return Err((word.span, why));
            };
            insert(&mut table, name, word.span.clone(), value(word.raw, word.text, word.span))?;
        }
    }
    if let Some(begin) = begin {
        insert(&mut table, "command", begin.clone(), Spanned::new(begin, DeValue::Array(command)))?;
    }
    Ok(table)
}

/// The name of an option in front of its value.
fn option<'a>(word: &Word<'a>) -> Option<&'a str> {
    let (name, _) = word.raw.split_once('=')?;
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte == b'_')
    };
    (!name.is_empty() && is_name(name)).then_some(name)
}

fn add_option<'a>(table: &mut DeTable<'a>, word: &Word<'a>) -> Result<(), Fault> {
    let name = option(word).unwrap_or_default();
    // A name has no quotes, so it is as long in both.
    let behind = name.len() + 1;
    let span = word.span.start + behind..word.span.end;
    let value = value(&word.raw[behind..], word.text[behind..].to_owned(), span);
    insert(table, name, word.span.clone(), value)
}

fn insert<'a>(
    table: &mut DeTable<'a>,
    name: &'a str,
    span: Range<usize>,
    value: Spanned<DeValue<'a>>,
) -> Result<(), Fault> {
    match table.insert(Spanned::new(span.clone(), Cow::Borrowed(name)), value) {
        Some(_) => Err((span, format!("`{name}` is given twice"))),
        None => Ok(()),
    }
}

/// A number, a truth value or a list as in TOML, and otherwise a string.
fn value<'a>(raw: &'a str, text: String, span: Range<usize>) -> Spanned<DeValue<'a>> {
    let is_quoted = raw.starts_with(['"', '\'']);
    let parsed = DeValue::parse(raw).ok().filter(|_| !is_quoted).map(Spanned::into_inner);
    let parsed = parsed.filter(|value| !value.is_str() && !value.is_datetime());
    Spanned::new(span, parsed.unwrap_or_else(|| string(text)))
}

fn string<'a>(text: String) -> DeValue<'a> {
    DeValue::String(Cow::Owned(text))
}

/// The words between | and |; each has one at least.
fn stages(source: &str) -> Result<Vec<Vec<Word<'_>>>, Fault> {
    let mut stages = vec![Vec::new()];
    let mut at = 0;
    while let Some(next) = source[at..].chars().next() {
        let length = next.len_utf8();
        let stage = stages.last_mut().expect("there is one from the beginning");
        match next {
            '|' if stage.is_empty() => {
                return Err((at..at + length, "a filter is missing before this |".to_owned()));
            }
            '|' => stages.push(Vec::new()),
            space if space.is_whitespace() => {}
            _ => {
                let word = word(source, at)?;
                at = word.span.end;
                stage.push(word);
                continue;
            }
        }
        at += length;
    }
    if stages.len() > 1 && stages.last().is_some_and(Vec::is_empty) {
        return Err((at..at, "a filter is missing after the last |".to_owned()));
    }
    stages.retain(|stage| !stage.is_empty());
    Ok(stages)
}

/// The word at the beginning, with the quoting of POSIX shells.
fn word(source: &str, start: usize) -> Result<Word<'_>, Fault> {
    let mut text = String::new();
    let mut quote: Option<(usize, char)> = None;
    let mut end = source.len();
    let mut letters = source[start..].char_indices().map(|(at, letter)| (start + at, letter));
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some((at, letter)),
            (Some((_, open)), _) if letter == open => quote = None,
            (None | Some((_, '"')), '\\') => {
                let Some((_, escaped)) = letters.next() else {
                    return Err((at..at + 1, "nothing follows this backslash".to_owned()));
                };
                if quote.is_some() && !matches!(escaped, '"' | '\\' | '$' | '`') {
                    text.push('\\');
                }
                text.push(escaped);
            }
            (None, '|') => {
                end = at;
                break;
            }
            (None, space) if space.is_whitespace() => {
                end = at;
                break;
            }
            _ => text.push(letter),
        }
    }
    match quote {
        Some((at, _)) => Err((at..at + 1, "this quotation mark is not closed".to_owned())),
        None => Ok(Word { raw: &source[start..end], text, span: start..end }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(source: &str) -> (usize, String) {
        let (span, why) = tables(source).err().expect("it is refused");
        (span.start, why)
    }

    /// A table as TOML, in the order of its keys.
    fn written(table: &Spanned<DeTable<'_>>) -> String {
        fn shown(value: &DeValue<'_>) -> String {
            match value {
                DeValue::String(text) => format!("{text:?}"),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Boolean(truth) => truth.to_string(),
                DeValue::Array(all) => {
                    let all: Vec<String> = all.iter().map(|one| shown(one.get_ref())).collect();
                    format!("[{}]", all.join(", "))
                }
                other => other.type_str().to_owned(),
            }
        }
        let pairs = table.get_ref().iter();
        let pairs =
            pairs.map(|(key, value)| format!("{}={}", key.get_ref(), shown(value.get_ref())));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn filters_and_streams_become_tables() {
        let source = "read whole=true 'a b' | gunzip|lines=64KiB exec copies=3 success=[0,1] grep -e x=y \"|\" | gunzip";
        let Tables { filters, streams } = tables(source).ok().unwrap();
        let filters: Vec<(&str, String)> =
            filters.iter().map(|(name, table)| (name.get_ref().as_str(), written(table))).collect();
        let expected = [
            ("read", r#"path="a b" run="read" whole=true"#),
            ("gunzip", r#"run="gunzip""#),
            ("exec", r#"command=["grep", "-e", "x=y", "|"] copies=3 run="exec" success=[0, 1]"#),
            ("gunzip-2", r#"run="gunzip""#),
            ("write", r#"run="write""#),
        ];
        assert_eq!(filters, expected.map(|(name, table)| (name, table.to_owned())));
        let streams: Vec<String> = streams.iter().map(written).collect();
        let expected = [
            r#"from="read" to="gunzip""#,
            r#"from="gunzip" lines="64KiB" to="exec""#,
            r#"from="exec" to="gunzip-2""#,
            r#"from="gunzip-2" to="write""#,
        ];
        assert_eq!(streams, expected);
    }

    #[test]
    fn words_are_quoted_as_for_a_shell() {
        let words = |source: &str| -> Vec<String> {
            stages(source).unwrap().into_iter().flatten().map(|word| word.text).collect()
        };
        assert_eq!(words(r#" a'b c'"d\" \x" \| "#), ["ab cd\" \\x", "|"]);
        assert_eq!(words("é 'ü|' \"\""), ["é", "ü|", ""]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn a_quoted_value_is_a_string() {
        let of = |source: &str| written(&tables(source).ok().unwrap().filters[0].1);
        assert_eq!(of("read 7"), r#"path=7 run="read""#);
        assert_eq!(of("read '7'"), r#"path="7" run="read""#);
        assert_eq!(of("read 2024-01-01"), r#"path="2024-01-01" run="read""#);
        assert_eq!(of(r#"read files=["*.a","b"]"#), r#"files=["*.a", "b"] run="read""#);
    }

    #[test]
    fn mistakes_are_located() {
        for (source, at, why) in [
            ("", 0, "the pipeline is empty"),
            ("| read", 0, "missing before this |"),
            ("read || write", 6, "missing before this |"),
            ("read | ", 7, "missing after the last |"),
            ("read | lines=7 | count", 14, "the name of a filter is missing"),
            ("lines=7 read", 0, "no stream leads to the first filter"),
            ("read | grep x", 7, "there is no filter grep; there are read,"),
            ("read a b", 7, "`path` is given twice"),
            ("read | gunzip 9", 14, "no option without a name"),
            ("read | write 'out", 13, "is not closed"),
            ("read \\", 5, "nothing follows"),
        ] {
            let (found, said) = fault(source);
            assert!(found == at && said.contains(why), "{source}: {found}: {said}");
        }
    }

    #[test]
    fn options_without_a_name_are_those_of_filters() {
        let help = builtin::help();
        let mut checked = 0;
        for filter in builtin::names() {
            if let Some(option) = bare_option(filter) {
                let (_, own) = help.split_once(&format!("{filter}\n    ")).unwrap();
                let mut own = own.lines().skip(1).take_while(|line| line.starts_with(' '));
                let begin = format!("    {option} ");
                assert!(own.any(|line| line.starts_with(&begin)), "{filter}: {option}");
                checked += 1;
            }
        }
        assert_eq!(checked, 7);
        assert!(builtin::names().filter(|filter| runs_program(filter)).count() == 2);
    }
}

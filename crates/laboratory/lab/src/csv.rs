//! Comma-separated values as in RFC 4180: raw data out, `redis-benchmark --csv` in.

/// Appends one record, quoting only the fields that need it.
pub(crate) fn push_record<'a>(text: &mut String, fields: impl IntoIterator<Item = &'a str>) {
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        if field.contains([',', '"', '\n', '\r']) {
            text.push('"');
            text.push_str(&field.replace('"', "\"\""));
            text.push('"');
        } else {
            text.push_str(field);
        }
    }
    text.push('\n');
}

/// Splits `text` into records of fields. Lenient: an unterminated quote ends with the text.
pub(crate) fn parse(text: &str) -> Vec<Vec<String>> {
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut field = String::new();
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {}
            '\n' if !quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            _ => field.push(character),
        }
    }
    if !field.is_empty() || !record.is_empty() {
        record.push(field);
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_fields_survive_the_round_trip() {
        let fields =
            ["plain", "", "with, comma", "with \"quotes\"", "two\nlines", "GET 64 B \u{2192} 1"];
        let mut text = String::new();
        push_record(&mut text, fields);
        push_record(&mut text, ["next"]);
        assert_eq!(parse(&text), [fields.map(str::to_owned).to_vec(), vec!["next".to_owned()]]);
    }

    #[test]
    fn last_line_may_lack_its_newline() {
        assert_eq!(
            parse("\"SET\",\"499999.97\"\r\n\"GET\",\"1\""),
            [["SET", "499999.97"], ["GET", "1"]]
        );
    }
}

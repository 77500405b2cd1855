//! Tables in Markdown.

use std::fmt::Write;

use serde_json::Value;

use crate::text;

/// A table whose columns are as wide as their contents. Cells are Markdown.
pub(super) fn table(columns: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).chain(columns.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    let mut push = |cells: &[String]| {
        for (index, &width) in widths.iter().enumerate() {
            let cell = cells.get(index).map_or("", String::as_str);
            // Writing to a string cannot fail.
            let _ = write!(text, "| {cell:<width$} ");
        }
        text.push_str("|\n");
    };
    push(columns);
    push(&widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>());
    rows.iter().for_each(|row| push(row));
    text
}

/// Stands for a missing number.
pub(super) fn nothing() -> String {
    "–".to_owned()
}

/// A cell of a table that a result has.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => nothing(),
        Value::String(text) => escape(&text::signed(text)),
        Value::Number(number) => match number.as_f64() {
            Some(value) if number.is_f64() => text::three_digits(value),
            _ => text::signed(&number.to_string()),
        },
        other => escape(&other.to_string()),
    }
}

/// Escapes any text as Markdown, so that it is shown and has no other effect.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '&' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(character);
            }
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_stays_text() {
        let hostile = "a|b\n<script> `x` [y](z) <!-- seekwire lab report: end -->";
        let shown = r"a\|b \<script\> \`x\` \[y\](z) \<!-- seekwire lab report: end --\>";
        assert_eq!(escape(hostile), shown);
        let rows = [vec![escape(hostile), "1".to_owned()]];
        let table = table(&["one".to_owned(), "two".to_owned()], &rows);
        assert_eq!(table.lines().count(), 3, "{table}");
    }
}

//! Formats tables for terminals, and numbers for people.

/// The alignment of a cell in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Lays `rows` out under `columns`, two spaces apart, without trailing space.
///
/// Each row has one cell for each column. Control characters in cells, which may come from another
/// program's name, are replaced.
pub fn layout(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let header = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(header)
        .chain(rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()))
        .collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();

    let mut text = String::new();
    for line in &lines {
        let mut out = String::new();
        for ((cell, width), (_, align)) in line.iter().zip(&widths).zip(columns) {
            if !out.is_empty() {
                out.push_str("  ");
            }
            match align {
                Align::Left => out.push_str(&format!("{cell:<width$}")),
                Align::Right => out.push_str(&format!("{cell:>width$}")),
            }
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

/// The text with control characters replaced.
pub fn printable(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The same for a text of several lines, which may have tabs.
pub fn lines(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() || c == '\n' || c == '\t';
    text.chars().map(|c| if is_plain(c) { c } else { '\u{fffd}' }).collect()
}

/// A number of bytes with a binary unit: `999 B`, `1.5 KiB`, `20 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    // The largest unit of which there is at least one.
    let power = (count.ilog2() / 10) as usize;
    let scaled = count as f64 / 1024f64.powi(power as i32);
    let decimals = usize::from(scaled < 10.0);
    format!("{scaled:.decimals$} {}", UNITS[power - 1])
}

/// `text` in lines of at most `width` characters, if its words allow.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_filled_and_long_words_kept() {
        assert_eq!(wrap("a bb ccc dddddd e", 4), ["a bb", "ccc", "dddddd", "e"]);
        assert!(wrap("  ", 4).is_empty());
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["1".into(), "long name".into()], vec!["1000".into(), "x".into()]];
        let text = layout(&[("PID", Align::Right), ("NAME", Align::Left)], &rows);
        assert_eq!(text, " PID  NAME\n   1  long name\n1000  x\n");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let text = layout(&[("NAME", Align::Left)], &[vec!["a\u{1b}[2Jb\n".into()]]);
        assert!(!text.contains('\u{1b}'));
        assert_eq!(text.lines().count(), 2);
        assert_eq!(lines("a\n\tb\r\u{9b}c\u{7}"), "a\n\tb\u{fffd}\u{fffd}c\u{fffd}");
    }

    #[test]
    fn bytes_keep_two_or_more_digits() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (20 << 20, "20 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
    }
}

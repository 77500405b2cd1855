//! The rows as text for a terminal.

use seekwire_program::command_line::WIDTH;
use seekwire_program::table::{self, Align};

use super::row::{Holder, Row};

/// The table in lines of at most [`WIDTH`] columns: for each connection one with its process and its
/// ends, one with its carriers and bytes, and more if it uses a link or is on TCP.
pub(super) fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "No TCP connections of programs under `seekwire run`.\n".to_owned();
    }
    let [mut heads, counts] = [ends(rows, true), counts(rows)];
    // Two IPv6 addresses take a line each.
    let is_wide = heads.lines().any(|line| line.chars().count() > WIDTH);
    if is_wide {
        heads = ends(rows, false);
    }
    let mut text = String::new();
    let mut add = |indent: &str, line: &str| {
        text += indent;
        text += line;
        text.push('\n');
    };
    let above = [None].into_iter().chain(rows.iter().map(Some));
    for ((row, head), count) in above.zip(heads.lines()).zip(counts.lines()) {
        add("", head);
        if is_wide {
            add(INDENT, &row.map_or("PEER".to_owned(), |row| row.peer.to_string()));
        }
        add(INDENT, count);
        let Some(row) = row else { continue };
        further_lines(row).iter().for_each(|line| add(INDENT, line));
    }
    if rows.iter().any(|row| row.reason.is_some()) {
        text += "`seekwire reasons` explains what follows WHY NOT.\n";
    }
    text
}

/// Precedes the further lines of a connection.
const INDENT: &str = "      ";

/// The lines of a connection after the columns.
fn further_lines(row: &Row) -> Vec<String> {
    let width = WIDTH - INDENT.len();
    let holder = holder(&row.holder);
    let mut lines: Vec<String> = Vec::new();
    for part in holder {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= width => {
                *line += &format!("  {part}");
            }
            _ => lines.push(part.chars().take(width).collect()),
        }
    }
    lines.extend(row.link.as_ref().map(|link| format!("LINK: {}", table::printable(link))));
    if let Some(why) = row.why_not() {
        let why = table::wrap(&format!("WHY NOT: {}", table::printable(&why)), width);
        lines.extend(why.iter().flat_map(|line| pieces(line, width)));
    }
    lines
}

/// A line that has no room for its longest word is cut.
fn pieces(line: &str, width: usize) -> Vec<String> {
    line.chars().collect::<Vec<_>>().chunks(width).map(|piece| piece.iter().collect()).collect()
}

/// The user, the unit and the container, and the number that the process has there.
fn holder(holder: &Holder) -> Vec<String> {
    let parts = [
        ("USER", &holder.user),
        ("UNIT", &holder.unit),
        ("CONTAINER", &holder.container),
        ("PID INSIDE", &holder.pid_inside.map(|pid| pid.to_string())),
    ];
    let shown = parts.into_iter().filter_map(|(title, value)| {
        value.as_ref().map(|value| format!("{title}: {}", table::printable(value)))
    });
    shown.collect()
}

/// The processes and the ends of the connections, under a header.
fn ends(rows: &[Row], has_peer: bool) -> String {
    const COLUMNS: [(&str, Align); 4] = [
        ("PID", Align::Left),
        ("PROGRAM", Align::Left),
        ("LOCAL", Align::Left),
        ("PEER", Align::Left),
    ];
    let shown = COLUMNS.len() - usize::from(!has_peer);
    let cells = rows.iter().map(|row| {
        let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let cells = [pid, row.program.clone(), row.local.to_string(), row.peer.to_string()];
        cells.into_iter().take(shown).collect()
    });
    table::layout(&COLUMNS[..shown], &cells.collect::<Vec<_>>())
}

/// The carriers and the bytes of the connections, under a header.
fn counts(rows: &[Row]) -> String {
    const COLUMNS: [(&str, Align); 8] = [
        ("TX", Align::Left),
        ("RX", Align::Left),
        ("TX TCP", Align::Right),
        ("TX RING", Align::Right),
        ("RX TCP", Align::Right),
        ("RX RING", Align::Right),
        ("TX/S", Align::Right),
        ("RX/S", Align::Right),
    ];
    let has_rates = rows.iter().any(|row| row.bytes_per_second.is_some());
    let shown = if has_rates { COLUMNS.len() } else { COLUMNS.len() - 2 };
    let bytes = |count: Option<u64>| count.map_or("-".to_owned(), table::bytes);
    let cells = rows.iter().map(|row| {
        let cells = [
            row.tx.to_string(),
            row.rx.to_string(),
            bytes(row.bytes.map(|bytes| bytes.tx_tcp)),
            bytes(row.bytes.map(|bytes| bytes.tx_ring)),
            bytes(row.bytes.map(|bytes| bytes.rx_tcp)),
            bytes(row.bytes.map(|bytes| bytes.rx_ring)),
            bytes(row.bytes_per_second.map(|rates| rates.tx)),
            bytes(row.bytes_per_second.map(|rates| rates.rx)),
        ];
        cells.into_iter().take(shown).collect()
    });
    table::layout(&COLUMNS[..shown], &cells.collect::<Vec<_>>())
}

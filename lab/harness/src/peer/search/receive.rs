//! The receiver: connections in turns, and their cost.

use std::io::{BufRead, Write};

use super::connection::{Request, Target};
use super::methods;
use super::searcher::Search;
use super::usage::{Instructions, Usage, system_calls};
use crate::search::plan::Turn;
use crate::search::{Account, Receive};
use anyhow::{Context as _, Result};

/// Executes each line of `orders`, until there are no more.
pub(super) fn take_turns(
    order: &Receive,
    orders: impl BufRead,
    report: &mut impl Write,
) -> Result<()> {
    let target = Target::new(order.sender, order.plan.receive_buffer())?;
    let mut search = methods::search(order.method, order.carrier, order.plan, target)?;
    let mut counter = Instructions::new();
    for line in orders.lines() {
        let line = line?;
        let turn: Turn =
            serde_json::from_str(&line).with_context(|| format!("not a turn: {line}"))?;
        let account = take_turn(search.as_mut(), order, turn, counter.as_mut())?;
        writeln!(report, "{}", serde_json::to_string(&account)?)?;
        report.flush()?;
    }
    Ok(())
}

fn take_turn(
    search: &mut dyn Search,
    order: &Receive,
    turn: Turn,
    counter: Option<&mut Instructions>,
) -> Result<Account> {
    let piece = order.plan.piece.unwrap_or(order.plan.size);
    let tags = order.plan.tags.unwrap_or(0);
    let request = Request { size: order.plan.size, messages: turn.messages, piece, tags };
    let mut account = Account {
        turn: turn.turn,
        messages: turn.messages * turn.repetitions,
        ..Account::default()
    };
    let mut counted = None;
    if let Some(counter) = counter {
        counted = counter.read().map(|before| (counter, before));
    }
    for _ in 0..turn.repetitions {
        let before = Usage::now()?;
        account.receive_buffer = search.open(request)?;
        // Only where no times are measured.
        let mut calls = (turn.turn == 1).then(system_calls).flatten();
        let opened = Usage::now()?;
        search.receive(turn.messages)?;
        let received = Usage::now()?;
        if let Some(calls) = &mut calls {
            account.system_calls = calls.read().ok().map(|calls| 1000 * calls / turn.messages);
        }
        account.copied =
            search.copied(turn.messages).map(|bytes| account.copied.unwrap_or(0) + bytes);
        let traffic = search.close()?;
        let closed = Usage::now()?;

        let (user, system) = closed.since(before);
        let (messages_user, messages_system) = received.since(opened);
        account.user_ns += user;
        account.system_ns += system;
        account.messages_ns += messages_user + messages_system;
        account.elapsed_ns += received.elapsed(opened);
        if let Some(traffic) = traffic {
            *account.traffic.get_or_insert_default() += traffic;
        }
    }
    account.instructions =
        counted.and_then(|(counter, before)| Some(counter.read()?.saturating_sub(before)));
    Ok(account)
}

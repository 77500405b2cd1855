//! A sender and a receiver as processes of their own, which work only in their turn.

use anyhow::{Context as _, Result, anyhow, ensure};

use super::fabric;
use super::plan::{
    Account, Carrier, Receive, SearchMethod, SearchMode, SearchPlan, Send, Turn, patience,
};
use crate::context::Context;
use crate::launch::{Program, Running};

/// Default and maximum number of shared memory segments of [`SEGMENT`] bytes.
const SEGMENTS: std::ops::RangeInclusive<u64> = 64..=1024;
const SEGMENT: u64 = 32 << 10;

/// A receiver and its sender.
#[derive(Debug)]
pub struct SearchPair {
    carrier: Carrier,
    sender: Running,
    receiver: Running,
    turns: u64,
}

impl SearchPair {
    /// Starts both.
    ///
    /// # Errors
    ///
    /// If this way cannot be used here.
    pub fn start(context: &Context<'_>, mode: SearchMode, plan: SearchPlan) -> Result<Self> {
        let [sending, receiving] = [processor(); 2];
        let (send, receive): (Program, Box<dyn Fn(u16) -> Result<Program>>) = match mode.method {
            SearchMethod::Fabric => {
                let send = fabric::sender(sending)?;
                (send, Box::new(move |port| fabric::receiver(port, plan, receiving)))
            }
            method => {
                let carrier = mode.carrier;
                let send =
                    role(context, plan, "search-send", &Send { carrier, processor: sending })?;
                let receive = move |port| {
                    let sender = ([127, 0, 0, 1], port).into();
                    let order = Receive { method, carrier, sender, plan, processor: receiving };
                    let program = role(context, plan, "search-receive", &order)?;
                    Ok(match method.of_tcp() {
                        Some(method) => program.env("SEEKWIRE_SEEK_WAY", method.name()),
                        None => program,
                    })
                };
                (send, Box::new(receive))
            }
        };
        let sender = send.start()?;
        let ready = sender.wait_for_line(|line| line.starts_with("ready "))?;
        let port =
            ready.trim_start_matches("ready ").parse().context("the sender names no port")?;
        let receiver = receive(port)?.start()?;
        Ok(Self { carrier: mode.carrier, sender, receiver, turns: 0 })
    }

    /// Lets the two work; all other processes of the experiment wait meanwhile.
    pub fn turn(&mut self, repetitions: u64, messages: u64) -> Result<Account> {
        self.turns += 1;
        let turn = self.turns;
        let order = serde_json::to_string(&Turn { turn, repetitions, messages })?;
        let head = format!("{{\"turn\":{turn},");
        let receiver = &mut self.receiver;
        let done = receiver.send_line(&order).and_then(|()| {
            let receiver: &Running = receiver;
            receiver.wait_for_line(|line| line.starts_with(&head))
        });
        let line =
            done.map_err(|error| match (self.receiver.obituary(), self.sender.obituary()) {
                (None, Some(obituary)) => anyhow!("the sender {obituary} ({error})"),
                _ => error.into(),
            })?;
        let account: Account =
            serde_json::from_str(&line).with_context(|| format!("not an account: {line}"))?;
        if let (Carrier::Ring, Some(traffic)) = (self.carrier, account.traffic) {
            ensure!(
                traffic.ring > traffic.tcp,
                "the bytes went through TCP, not through shared memory"
            );
        }
        Ok(account)
    }
}

fn role(
    context: &Context<'_>,
    plan: SearchPlan,
    name: &str,
    order: &impl serde::Serialize,
) -> Result<Program> {
    // Skipped messages have to fit, as they have to fit into a receive buffer; and a waiting end
    // sleeps, because processor time is measured.
    let segments = (2 * plan.group_bytes() / SEGMENT)
        .clamp(*SEGMENTS.start(), *SEGMENTS.end())
        .next_power_of_two();
    Ok(Program::role(context.peer()?, &context.linked())
        .arg(name)
        .arg(serde_json::to_string(order)?)
        .env("SEEKWIRE_SPIN_US", "0")
        .env("SEEKWIRE_SEGMENT_SIZE", SEGMENT.to_string())
        .env("SEEKWIRE_SEGMENTS", segments.to_string())
        .timeout(patience(plan)))
}

/// The processor of sender and receiver. They share one: otherwise copied bytes would come out of
/// another processor's cache, which on some machines costs ten times as much as the copy, and on
/// virtual ones varies from moment to moment. In the paper they came from a network interface.
pub fn processor() -> Option<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).ok()?;
    (0..rustix::thread::CpuSet::MAX_CPU).rfind(|&processor| allowed.is_set(processor))
}

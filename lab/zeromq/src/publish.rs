//! Publish and subscribe: PUB and SUB, with the topic as the first frame.
//!
//! A publisher drops messages for which a subscriber has no room. So that nothing is lost,
//! subscribers acknowledge messages over a second connection, and the publisher keeps a window. It
//! is an XPUB socket, which is a PUB socket that shows subscriptions: the publisher begins when it
//! has seen all.
//!
//! The end is a message like the others: the publisher waits until all subscribers have
//! acknowledged it. libzmq keeps acknowledgements that nobody receives while the program runs, and
//! keeps the program running while it has any.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use seekwire_lab::messaging::{
    Hub, Member, MessageContents, Modelled, SHARE, TOPICS, Violation, ready, renumber, repeat,
    report, subscribed,
};
use zmq::{Context, PULL, PUSH, SUB, Socket, XPUB};

use crate::frames::{bind, connect, receive_exactly, send};

/// Messages that may be on their way to a subscriber, and the number of them after which it
/// acknowledges them.
const WINDOW: u64 = 1000;
const STEP: u64 = 250;

/// Topics besides those of messages: a request to acknowledge only every [`STEP`]th arrival from
/// now on, the end with the number of messages of each topic, and one that is subscribed to last,
/// with the number of the subscriber.
const QUICKLY: &str = "quickly";
const END: &str = "end";
const READY: &str = "ready/";

struct Publisher<'a> {
    order: &'a Hub,
    out: Socket,
    arrivals: Socket,
    /// By topic.
    messages: [Vec<u8>; TOPICS],
    published: [u64; TOPICS],
    /// By subscriber.
    sent: Vec<u64>,
    arrived: Vec<u64>,
}

impl Publisher<'_> {
    fn publish(&mut self, topic: usize) -> Result<()> {
        let message = &mut self.messages[topic];
        renumber(message, self.published[topic]);
        send(&self.out, [name(topic).as_bytes(), message])?;
        self.published[topic] += 1;
        for rank in subscribers(self.order, topic) {
            self.sent[rank] += 1;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        send(&self.out, [END.as_bytes(), &serde_json::to_vec(&self.published)?])?;
        self.sent.iter_mut().for_each(|sent| *sent += 1);
        Ok(())
    }

    /// Waits until a subscriber acknowledges messages.
    fn hear(&mut self) -> Result<()> {
        let [rank, messages] = receive_exactly(&self.arrivals)?;
        let (rank, messages): (usize, u64) =
            (serde_json::from_slice(&rank)?, serde_json::from_slice(&messages)?);
        ensure!(rank < self.order.members, "there is no subscriber {rank}");
        self.arrived[rank] += messages;
        Ok(())
    }

    /// The most that is on its way to one subscriber.
    fn outstanding(&self) -> u64 {
        self.sent.iter().zip(&self.arrived).map(|(sent, arrived)| sent - arrived).max().unwrap_or(0)
    }
}

fn name(topic: usize) -> String {
    format!("topic/{topic}")
}

fn subscribers(order: &Hub, topic: usize) -> impl Iterator<Item = usize> {
    (0..order.members).filter(move |&rank| subscribed(rank, topic))
}

/// Publishes on all topics in turn: first each message only after the preceding one has arrived
/// everywhere, then as many as possible.
pub(crate) fn publisher(order: &Hub) -> Result<()> {
    let context = Context::new();
    let (out, arrivals) = (context.socket(XPUB)?, context.socket(PULL)?);
    // The window is the limit. libzmq's own would drop messages for which there is room: it learns
    // of room only when half of the messages have been taken, and a sender checks for that once in
    // a millisecond.
    out.set_sndhwm(0)?;
    ready(&format!("{} {}", bind(&out, &order.address)?, bind(&arrivals, &order.address)?))?;
    let mut there = 0;
    while there < order.members {
        // A byte that marks a subscription, and the topic.
        let subscription = out.recv_bytes(0)?;
        there += usize::from(
            subscription.get(1..).is_some_and(|topic| topic.starts_with(READY.as_bytes())),
        );
    }
    let (sent, arrived) = (vec![0; order.members], vec![0; order.members]);
    let contents = MessageContents::new(order.size);
    // The bodies are those of the topics' numbers.
    let messages = std::array::from_fn(|topic| contents.message(topic as u64));
    let mut publisher =
        Publisher { order, out, arrivals, messages, published: [0; TOPICS], sent, arrived };

    let topics: Vec<usize> =
        (0..TOPICS).filter(|&topic| subscribers(order, topic).next().is_some()).collect();
    let (latencies, _) = repeat(order.time(), |turn| {
        let began = Instant::now();
        publisher.publish(topics[turn.number as usize % topics.len()])?;
        while publisher.outstanding() > 0 {
            publisher.hear()?;
        }
        Ok(began.elapsed())
    })?;

    send(&publisher.out, [QUICKLY, ""])?;
    let (began, before) = (Instant::now(), publisher.sent.iter().sum::<u64>());
    while began.elapsed() < order.time() {
        (0..TOPICS).try_for_each(|topic| publisher.publish(topic))?;
        while publisher.outstanding() > WINDOW - TOPICS as u64 {
            publisher.hear()?;
        }
    }
    let deliveries = publisher.sent.iter().sum::<u64>() - before;
    publisher.end()?;
    while publisher.outstanding() > 0 {
        publisher.hear()?;
    }
    report(&Modelled::of(deliveries as f64 / began.elapsed().as_secs_f64(), &latencies, None)?)
}

/// Receives the messages of its topics, and checks that they are complete, in order, and no others.
pub(crate) fn subscriber(order: &Member) -> Result<()> {
    let context = Context::new();
    let (publisher, arrivals) = (context.socket(SUB)?, context.socket(PUSH)?);
    let Some((messages_from, arrivals_to)) = order.address.split_once(' ') else {
        bail!("there are not two addresses: {}", order.address)
    };
    connect(&arrivals, arrivals_to)?;
    connect(&publisher, messages_from)?;
    let topics: Vec<usize> = (0..TOPICS).filter(|&topic| subscribed(order.rank, topic)).collect();
    let names = topics.iter().map(|&topic| name(topic));
    for topic in names.chain([QUICKLY.to_owned(), END.to_owned(), format!("{READY}{}", order.rank)])
    {
        publisher.set_subscribe(topic.as_bytes())?;
    }
    let tell =
        |messages: u64| send(&arrivals, [order.rank.to_string().as_str(), &messages.to_string()]);
    let contents = MessageContents::new(order.size);
    let mut received = [0u64; TOPICS];
    let (mut step, mut unreported) = (1, 0);
    loop {
        let [topic, message] = receive_exactly(&publisher)?;
        let topic = topic.as_str().unwrap_or_default();
        if topic == QUICKLY {
            step = STEP;
        } else if topic == END {
            let published: [u64; TOPICS] = serde_json::from_slice(&message)?;
            for topic in topics {
                let (got, sent) = (received[topic], published[topic]);
                ensure!(
                    got == sent,
                    Violation(format!("{got} of {sent} messages of topic {topic} arrived"))
                );
            }
            return tell(unreported + 1);
        } else {
            let number = topics.iter().copied().find(|&number| name(number) == topic);
            let Some(number) = number else {
                bail!(Violation(format!("'{topic}' arrived without a subscription")))
            };
            contents.check_number(received[number], &message)?;
            let is_compared = step == 1 || received[number] % SHARE == 0;
            received[number] += 1;
            unreported += 1;
            if unreported == step {
                tell(std::mem::take(&mut unreported))?;
            }
            // While the publisher measures latencies, it has received the acknowledgement by now.
            if is_compared {
                contents.check_body(number as u64, &message)?;
            }
        }
    }
}

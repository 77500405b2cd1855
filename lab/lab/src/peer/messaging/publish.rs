//! Publish and subscribe: the topic is the tag.
//!
//! The publisher has a mailbox for each subscriber, and sends a message to those that have
//! subscribed to its topic. A subscriber that falls behind makes the publisher wait; nothing is
//! dropped.

use std::time::Instant;

use anyhow::{Result, ensure};
use seekwire::mailbox::{Mailbox, Selector};

use super::mailbox_stream::{self, Line};
use crate::messaging::{
    Hub, Member, MessageContents, Modelled, SHARE, TOPICS, Violation, ready, renumber, repeat,
    report, subscribed,
};

/// Tags above those of topics. To the publisher: subscriptions, and acknowledgements of messages
/// and of the last message. To the subscribers: that no more acknowledgements are needed, and the
/// end, with the number of messages of each topic.
const SUBSCRIBE: u64 = 1 << 32;
const ARRIVED: u64 = SUBSCRIBE + 1;
const QUICKLY: u64 = SUBSCRIBE + 2;
const END: u64 = SUBSCRIBE + 3;

struct Subscriber<S: Line> {
    mailbox: Mailbox<S>,
    topics: Vec<usize>,
}

/// Publishes on all topics in turn: first each message only after the preceding one has arrived
/// everywhere, then as many as possible.
pub(super) fn publisher<S: Line>(order: &Hub) -> Result<()> {
    let (listener, address) = S::listen(&order.address)?;
    ready(&address.to_string())?;
    let subscribers: Vec<Subscriber<S>> = (0..order.members)
        .map(|_| {
            let mailbox = S::accept(&listener)?;
            let (_, topics) = mailbox.recv_vec(Selector::exact(SUBSCRIBE))?;
            Ok(Subscriber { topics: serde_json::from_slice(&topics)?, mailbox })
        })
        .collect::<Result<_>>()?;
    let of_topic = |topic: usize| {
        subscribers.iter().filter(move |subscriber| subscriber.topics.contains(&topic))
    };
    let contents = MessageContents::new(order.size);
    // The bodies are those of the topics' numbers.
    let mut messages: [Vec<u8>; TOPICS] =
        std::array::from_fn(|topic| contents.message(topic as u64));
    let mut published = [0u64; TOPICS];
    let mut deliveries = 0;
    let mut publish = |topic: usize, deliveries: &mut u64| -> Result<()> {
        let message = &mut messages[topic];
        renumber(message, published[topic]);
        published[topic] += 1;
        for subscriber in of_topic(topic) {
            subscriber.mailbox.send(topic as u64, message)?;
            *deliveries += 1;
        }
        Ok(())
    };
    let arrived =
        |subscriber: &Subscriber<S>| subscriber.mailbox.recv(Selector::exact(ARRIVED), &mut []);

    let topics: Vec<usize> =
        (0..TOPICS).filter(|&topic| of_topic(topic).next().is_some()).collect();
    let (latencies, _) = repeat(order.time(), |turn| {
        let topic = topics[turn.number as usize % topics.len()];
        let began = Instant::now();
        publish(topic, &mut deliveries)?;
        of_topic(topic).try_for_each(|subscriber| arrived(subscriber).map(|_| ()))?;
        Ok(began.elapsed())
    })?;

    for subscriber in &subscribers {
        subscriber.mailbox.send(QUICKLY, b"")?;
    }
    let (began, before) = (Instant::now(), deliveries);
    while began.elapsed() < order.time() {
        // All topics, so that subscribers must be distinguished.
        (0..TOPICS).try_for_each(|topic| publish(topic, &mut deliveries))?;
    }
    for subscriber in &subscribers {
        subscriber.mailbox.send(END, &serde_json::to_vec(&published)?)?;
    }
    subscribers.iter().try_for_each(|subscriber| arrived(subscriber).map(|_| ()))?;
    let rate = (deliveries - before) as f64 / began.elapsed().as_secs_f64();
    let traffic = mailbox_stream::traffic(subscribers.iter().map(|subscriber| &subscriber.mailbox));
    report(&Modelled::of(rate, &latencies, traffic)?)
}

/// Receives the messages of its topics, and checks that they are complete, in order, and no others.
pub(super) fn subscriber<S: Line>(order: &Member) -> Result<()> {
    let publisher = S::connect(&order.address)?;
    let topics: Vec<usize> = (0..TOPICS).filter(|&topic| subscribed(order.rank, topic)).collect();
    publisher.send(SUBSCRIBE, &serde_json::to_vec(&topics)?)?;
    let contents = MessageContents::new(order.size);
    let mut received = [0u64; TOPICS];
    let mut tell = true;
    loop {
        let (envelope, message) = publisher.recv_vec(Selector::ANY)?;
        match envelope.tag {
            QUICKLY => tell = false,
            END => {
                let published: [u64; TOPICS] = serde_json::from_slice(&message)?;
                for topic in topics {
                    let (got, sent) = (received[topic], published[topic]);
                    ensure!(
                        got == sent,
                        Violation(format!("{got} of {sent} messages of topic {topic} arrived"))
                    );
                }
                return Ok(publisher.send(ARRIVED, b"")?);
            }
            tag => {
                let topic = tag as usize;
                ensure!(
                    topics.contains(&topic),
                    Violation(format!("topic {topic} arrived without a subscription"))
                );
                contents.check_number(received[topic], &message)?;
                let is_compared = tell || received[topic] % SHARE == 0;
                received[topic] += 1;
                if tell {
                    publisher.send(ARRIVED, b"")?;
                }
                // While the publisher measures latencies, it has received the acknowledgement by
                // now.
                if is_compared {
                    contents.check_body(topic as u64, &message)?;
                }
            }
        }
    }
}

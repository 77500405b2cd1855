//! Processes of a job, which find each other on loopback.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use seekwire_flow::{ClusterConfig, Peer, SILENCE_LIMIT};

/// This many of them, by rank.
pub(crate) fn jobs(size: usize) -> Vec<ClusterConfig> {
    let listeners: Vec<TcpListener> =
        (0..size).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<SocketAddr> =
        listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let peers: Vec<Peer> = addresses
        .iter()
        .enumerate()
        .map(|(rank, address)| Peer { host: format!("host{rank}"), addresses: vec![*address] })
        .collect();
    let job = |(rank, listener)| ClusterConfig {
        rank: rank as u32,
        peers: peers.clone(),
        listener,
        secret: [7; 32],
        limit: Duration::from_secs(60),
        patience: SILENCE_LIMIT,
        called_off: None,
    };
    listeners.into_iter().enumerate().map(job).collect()
}

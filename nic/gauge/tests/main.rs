//! Both ends of a measurement: over loopback, over a link that fails, and with a server that lies.

#![forbid(unsafe_code)]

mod liar;
mod loopback;
mod unplugged;

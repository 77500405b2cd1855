//! Pipelines inside one process, and in several that are simulated by threads.

mod jobs;

mod adversity;
mod cluster;
mod errors;
mod examples;
mod guarantee;
mod pipelines;
mod random_cluster;
mod recall;
mod sizes;

//! A server and its workers as the processes of one mpiexec or srun job: rank 0 is the server, and
//! publishes its address and a secret.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail, ensure};
use seekwire_launch::network::{self, Network};
use seekwire_launch::{Job, Secret};

/// Keys under which the launcher stores them.
const ADDRESSES: &str = "address";
const NETWORK: &str = "network";
const SECRET: &str = "secret";

/// The job of a server with workers; `None` if it has no other processes.
pub(crate) fn server() -> Result<Option<Job>> {
    let job = Job::join().context("cannot join the other processes of this job")?;
    if job.size() == 1 {
        return Ok(None);
    }
    ensure!(
        job.rank() == 0,
        "this is rank {} of a job: the server is rank 0, and the others are `seekwire slides worker`",
        job.rank()
    );
    Ok(Some(job))
}

/// Publishes the server's address to the workers of the job.
pub(crate) fn tell(mut job: Job, address: SocketAddr, secret: &Secret) -> Result<()> {
    let addresses = match address.ip().is_unspecified() {
        true => network::addresses(address, None)?,
        false => vec![address],
    };
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    job.publish(ADDRESSES, &addresses.join(" "))?;
    job.publish(NETWORK, &Network::here()?.name)?;
    job.publish(SECRET, &secret.to_hex())?;
    job.exchange().context("the workers of this job have not come")?;
    job.finish().context("cannot take leave of the launcher")
}

/// The address of the server of this worker's job, and the secret.
pub(crate) fn worker() -> Result<(Vec<SocketAddr>, Secret)> {
    let mut job = Job::join().context("cannot join the other processes of this job")?;
    if job.size() == 1 {
        bail!("which server? Give its address, or start both by mpiexec or srun");
    }
    ensure!(job.rank() != 0, "rank 0 of a job is the server: `seekwire slides LOCATION --workers`");
    job.exchange().context("the server of this job has not come")?;
    let published = job.lookup(0, ADDRESSES).context("rank 0 of this job is no server")?;
    let network = Network::here()?;
    let is_same = !network.name.is_empty() && job.lookup(0, NETWORK)? == network.name;
    let addresses: Result<Vec<SocketAddr>, _> =
        published.split_whitespace().map(str::parse).collect();
    let addresses = addresses.with_context(|| format!("the server has no address: {published}"))?;
    let addresses = network.reachable(&addresses, is_same);
    ensure!(
        !addresses.is_empty(),
        "the server has no address that leads there from here: {published}; --workers of the server \
         chooses one"
    );
    let secret = Secret::from_hex(&job.lookup(0, SECRET)?);
    job.finish().context("cannot take leave of the launcher")?;
    Ok((addresses, secret.context("the secret of the job is damaged")?))
}

/// Resolves a host name and port.
pub(crate) fn addresses(of: &str) -> Result<Vec<SocketAddr>> {
    let addresses = of.to_socket_addrs().with_context(|| format!("no address: {of}"))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    ensure!(!addresses.is_empty(), "no address: {of}");
    Ok(addresses)
}

//! Proves that an address leads to the machine at the other end of a link.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use seekwire_link::{Answer, Link};
use seekwire_transport::sys::host;

use super::hello::{ANSWERED, Hello, REFUSED};

/// How long to wait for a connection to the other machine, and then for its answer.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Why an address is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unproven {
    /// No connection could be made.
    Unreached(String),
    /// The peer hangs up or sends nothing.
    Unheard,
    /// An agent answered that is not at the other end of this link.
    SomebodyElse,
    /// It is the machine at the other end, but addresses were translated on the way there.
    Translated(Answer),
}

impl fmt::Display for Unproven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreached(why) => write!(f, "its agent is not reached there: {why}"),
            Self::Unheard => write!(
                f,
                "nobody there answers for this link: it leads to another machine, or the agent has \
                 too many others to listen to"
            ),
            Self::SomebodyElse => {
                write!(f, "it does not lead to the machine at the other end of this link")
            }
            Self::Translated(Answer { here, there, .. }) => write!(
                f,
                "addresses are translated on the way: the other machine sees a connection from \
                 {there} to {here}"
            ),
        }
    }
}

/// Proves an address, at which the agent of the other machine is said to answer on `port`. Only one
/// thread may ask through a link.
pub(super) fn prove(link: &Link, address: IpAddr, port: u16) -> Result<(), Unproven> {
    let question = host::random().max(1);
    let secret = u128::from(host::random()) << 64 | u128::from(host::random());
    link.ask(question);
    let hello = Hello { question, secret, link: link.name().to_owned() };
    let exchanged = say(SocketAddr::new(address, port), &hello);
    let answer = link.answered(question);
    link.ask(0);
    let (own, is_answered) = exchanged.map_err(|error| Unproven::Unreached(error.to_string()))?;
    let stranger = if is_answered { Unproven::SomebodyElse } else { Unproven::Unheard };
    let answer = answer.filter(|answer| answer.secret == secret).ok_or(stranger)?;
    let is_direct = answer == Answer { secret, here: address, there: own };
    if is_direct { Ok(()) } else { Err(Unproven::Translated(answer)) }
}

/// Sends the question and waits for the answer. Returns the local address of the connection, and
/// whether an agent replied.
fn say(to: SocketAddr, hello: &Hello) -> io::Result<(IpAddr, bool)> {
    let mut stream = TcpStream::connect_timeout(&to, ATTEMPT_TIMEOUT)?;
    stream.set_read_timeout(Some(ATTEMPT_TIMEOUT))?;
    stream.set_write_timeout(Some(ATTEMPT_TIMEOUT))?;
    let own = stream.local_addr()?.ip().to_canonical();
    // A peer that is no agent hangs up or sends nothing; the answer that counts is in the region.
    let mut answered = [0; ANSWERED.len()];
    let sent = stream.write_all(&hello.encode());
    let received = sent.and_then(|()| stream.read_exact(&mut answered));
    Ok((own, received.is_ok() && [ANSWERED, REFUSED].contains(&answered)))
}

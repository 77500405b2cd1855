//! The socket options that all streams share with [`std::net::TcpStream`].

/// Gives a stream the addresses and options of the socket in its field.
macro_rules! socket_options {
    ($stream:ty, $socket:ident) => {
        impl $stream {
            /// This end's address.
            ///
            /// # Errors
            /// Those of getsockname(2).
            pub fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
                self.$socket.local_addr()
            }

            /// The other end's address.
            ///
            /// # Errors
            /// Those of getpeername(2).
            pub fn peer_addr(&self) -> std::io::Result<std::net::SocketAddr> {
                self.$socket.peer_addr()
            }

            /// TCP_NODELAY: whether small writes are sent at once. It affects bytes that travel by
            /// TCP only: without TCP_CORK or MSG_MORE, shared memory never delays bytes.
            ///
            /// # Errors
            /// Those of getsockopt(2).
            pub fn nodelay(&self) -> std::io::Result<bool> {
                self.$socket.nodelay()
            }

            /// Sets TCP_NODELAY.
            ///
            /// # Errors
            /// Those of setsockopt(2).
            pub fn set_nodelay(&self, on: bool) -> std::io::Result<()> {
                self.$socket.set_nodelay(on)
            }

            /// IP_TTL: maximum number of hops of a packet.
            ///
            /// # Errors
            /// Those of getsockopt(2).
            pub fn ttl(&self) -> std::io::Result<u32> {
                self.$socket.ttl()
            }

            /// Sets IP_TTL.
            ///
            /// # Errors
            /// Those of setsockopt(2).
            pub fn set_ttl(&self, ttl: u32) -> std::io::Result<()> {
                self.$socket.set_ttl(ttl)
            }
        }
    };
}

pub(crate) use socket_options;

//! A real web server.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server that runs until it is dropped.
pub(crate) struct Nginx(Child, u16);

impl Nginx {
    /// Serves a directory; below `/whole/` without ranges, and below `/untagged/` without entity
    /// tags. Requests below `/moved/` are redirected, and so are those below `/plain/`, to the full
    /// address of a place without TLS; below `/away/`, to another name of this host; and below
    /// `/around/`, in a loop.
    pub(crate) fn start(directory: &Path) -> Self {
        Self::listen(directory, "")
    }

    /// The same with TLS, with the certificate in `server.pem` and its key in `server.key`.
    pub(crate) fn start_tls(directory: &Path) -> Self {
        let root = directory.display();
        Self::listen(
            directory,
            &format!(
                "ssl; ssl_certificate {root}/server.pem; ssl_certificate_key {root}/server.key"
            ),
        )
    }

    fn listen(directory: &Path, by: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let root = directory.display();
        let configuration = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/log;\n\
             events {{}}\n\
             http {{ access_log {root}/access; client_body_temp_path {root}/t1;\n\
             proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3; uwsgi_temp_path {root}/t4;\n\
             scgi_temp_path {root}/t5;\n\
             server {{ listen 127.0.0.1:{port} {by}; root {root};\n\
             location /whole/ {{ alias {root}/; max_ranges 0; }}\n\
             location /untagged/ {{ alias {root}/; etag off; }}\n\
             location /broken/ {{ return 503; }}\n\
             location /moved/ {{ absolute_redirect off; rewrite ^/moved/(.*)$ /$1 redirect; }}\n\
             location /plain/ {{ rewrite ^/plain/(.*)$ http://127.0.0.1:{port}/$1 redirect; }}\n\
             location /away/ {{ rewrite ^/away/(.*)$ http://localhost:{port}/$1 redirect; }}\n\
             location /around/ {{ rewrite ^/around/(.*)$ /around/$1 redirect; }} }} }}\n"
        );
        let file = directory.join("nginx.conf");
        std::fs::write(&file, configuration).unwrap();
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let child = Command::new("/usr/bin/env")
            .args(["nginx", "-c"])
            .arg(&file)
            .env("PATH", path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self(child, port);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.0.try_wait().unwrap().is_none(), "nginx has ended");
            std::thread::yield_now();
        }
        server
    }

    pub(crate) fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.1)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

//! `seekwire slides sign`: addresses that admit their holders.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use seekwire_program::standard;

use crate::arguments::Sign;
use crate::web::signed::{self, SigningKey};

pub(crate) fn command(options: &Sign) -> Result<()> {
    let key = SigningKey::new(&secret(&options.secret_file)?);
    let until = signed::now().saturating_add(options.valid.get().as_secs());
    let mut output = standard::output()?.lock();
    for address in &options.addresses {
        writeln!(output, "{}", sign(&key, address, until, options.with_associated)?)?;
    }
    Ok(output.flush()?)
}

/// Signs an address or a path.
fn sign(key: &SigningKey, address: &str, until: u64, has_associated: bool) -> Result<String> {
    if !address.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("{address:?}: not an address in URL encoding, with %20 for a space and so on");
    }
    // The fragment is never sent: it selects the place that a viewer shows.
    let (address, view) = address.split_at(address.find('#').unwrap_or(address.len()));
    let start = match address.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.find(['/', '?']).unwrap_or(rest.len());
            scheme.len() + "://".len() + host
        }
        None => 0,
    };
    let (server, path) = address.split_at(start);
    let path = match path {
        "" if start > 0 => "/",
        path => path,
    };
    if !path.starts_with('/') {
        bail!("{address}: an address such as https://slides.example/a.svs.dzi, or /a.svs.dzi");
    }
    if signed::is_signed(path) {
        bail!(
            "{address}: it is signed already; remove associated=, expires= and signature= from it"
        );
    }
    Ok(format!("{server}{}{view}", key.sign(path, until, has_associated)))
}

/// The secret in a file.
pub(crate) fn secret(path: &Path) -> Result<String> {
    let from = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| from.clone())?;
    first_line(&text, &from)
}

fn first_line(text: &str, from: &str) -> Result<String> {
    let secret = text.lines().next().unwrap_or_default().trim();
    if secret.len() < signed::SHORTEST {
        let shortest = signed::SHORTEST;
        bail!(
            "{from}: at least {shortest} characters are needed, such as those of `openssl rand -hex 32`"
        );
    }
    Ok(secret.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_signed_from_the_first_slash_on() {
        let key = SigningKey::new("0123456789abcdef");
        let of =
            |address: &str| sign(&key, address, 1000, false).map_err(|error| error.to_string());
        let path = of("/slides/a%20b.svs").unwrap();
        assert_eq!(of("https://host:1/slides/a%20b.svs").unwrap(), format!("https://host:1{path}"));
        assert_eq!(of("http://host").unwrap(), format!("http://host{}", of("/").unwrap()));
        assert_eq!(of("/slides/a%20b.svs#zoom=1").unwrap(), format!("{path}#zoom=1"));
        assert!(of("/?a=b").unwrap().starts_with("/?a=b&expires=1000&signature="));
        for again in [&*path, "/a?associated=yes", "/a?b=c&expires=9", "https://host/?signature=0"]
        {
            assert!(of(again).unwrap_err().contains("signed already"), "{again}");
        }
        for wrong in ["", "a.svs", "slides/a.svs", "/a b", "/ä", "http://host?a=b", "#a"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_a_line_of_16_characters() {
        assert_eq!(first_line("0123456789abcdef\nmore", "file").unwrap(), "0123456789abcdef");
        assert!(
            first_line("short", "file").unwrap_err().to_string().starts_with("file: at least 16")
        );
    }
}

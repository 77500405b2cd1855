//! `seekwire slides sign`: addresses that admit their holders.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use seekwire_program::standard;

use crate::arguments::Sign;
use crate::server;
use crate::web::signed::{self, Key};

pub(crate) fn command(options: &Sign) -> Result<()> {
    let key = Key::new(&server::secret(&options.secret_file)?);
    let until = signed::now().saturating_add(options.valid.as_secs());
    let mut output = standard::output()?.lock();
    for address in &options.addresses {
        writeln!(output, "{}", sign(&key, address, until, options.with_associated)?)?;
    }
    Ok(output.flush()?)
}

/// Signs an address or a path.
fn sign(key: &Key, address: &str, until: u64, has_associated: bool) -> Result<String> {
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
    Ok(format!("{server}{}{view}", key.sign(path, until, has_associated)))
}

/// Parses a time such as `90m`, `12h` or `7d`.
pub(crate) fn duration(text: &str) -> std::result::Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, seconds)));
    let number = |digits: &str| -> Option<u64> {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse().ok().filter(|_| is_number)
    };
    let seconds = unit.and_then(|(digits, seconds)| number(digits)?.checked_mul(*seconds));
    let seconds = seconds.filter(|seconds| (1..=100 * 366 * 86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| "a time such as 90m, 12h or 7d".to_owned())
}

/// Returns the secret in the first line of a file.
pub(crate) fn secret(text: &str, from: &str) -> Result<String> {
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
        let key = Key::new("0123456789abcdef");
        let of =
            |address: &str| sign(&key, address, 1000, false).map_err(|error| error.to_string());
        let path = of("/slides/a%20b.svs").unwrap();
        assert_eq!(of("https://host:1/slides/a%20b.svs").unwrap(), format!("https://host:1{path}"));
        assert_eq!(of("http://host").unwrap(), format!("http://host{}", of("/").unwrap()));
        assert_eq!(of("/slides/a%20b.svs#zoom=1").unwrap(), format!("{path}#zoom=1"));
        assert!(of("/?a=b").unwrap().starts_with("/?a=b&expires=1000&signature="));
        for wrong in ["", "a.svs", "slides/a.svs", "/a b", "/ä", "http://host?a=b", "#a"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_units() {
        let seconds = |text: &str| duration(text).map(|duration| duration.as_secs());
        assert_eq!(
            (seconds("90m"), seconds("12h"), seconds("7d")),
            (Ok(5400), Ok(43_200), Ok(604_800))
        );
        for wrong in ["", "0s", "7", "d", "-1h", "+1h", "1w", "99999999999999999999h", "1000000d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(secret("0123456789abcdef\nmore", "file").unwrap(), "0123456789abcdef");
        assert!(secret("short", "file").unwrap_err().to_string().starts_with("file: at least 16"));
    }
}

//! Parsing the values of settings.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

/// A value that can be parsed from the text of a setting. The error says what was expected.
pub(super) trait Parse: Sized {
    fn parse(text: &str) -> Result<Self, String>;
}

/// A duration, written as a number and a unit: `20ms`, `5s`, `10m`, `24h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A number of bytes, written with or without a unit: `10MB`, `100MiB`, `4096`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub usize);

/// A list of strings, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List(pub Vec<String>);

impl Deref for Time {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

impl Deref for Bytes {
    type Target = usize;

    fn deref(&self) -> &usize {
        &self.0
    }
}

impl Deref for List {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl Parse for Time {
    fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected a time such as 20ms, 5s, 10m, 24h or 7d".to_owned();
        let (number, unit) = split_unit(text);
        let number: u64 = number.parse().map_err(|_| expected())?;
        let unit_ms: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(expected()),
        };
        number.checked_mul(unit_ms).map(|ms| Time(Duration::from_millis(ms))).ok_or_else(expected)
    }
}

impl Parse for Bytes {
    fn parse(text: &str) -> Result<Self, String> {
        let expected = || "expected a number of bytes such as 4096, 10MB or 100MiB".to_owned();
        let (number, unit) = split_unit(text);
        let number: usize = number.parse().map_err(|_| expected())?;
        let unit: usize = match unit {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(expected()),
        };
        number.checked_mul(unit).map(Bytes).ok_or_else(expected)
    }
}

/// Splits a text into its leading digits and its unit.
fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    (number, unit.trim())
}

impl Parse for List {
    fn parse(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        Ok(List(items.map(str::to_owned).collect()))
    }
}

impl Parse for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        local.as_deref().unwrap_or(text).parse().map_err(|_| {
            "expected an address and a port such as 127.0.0.1:8787 or [::1]:8787".to_owned()
        })
    }
}

impl Parse for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("expected a folder".to_owned()) } else { Ok(text.into()) }
    }
}

impl Parse for Option<PathBuf> {
    fn parse(text: &str) -> Result<Self, String> {
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

impl Parse for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "true" | "on" => Ok(true),
            "false" | "off" => Ok(false),
            _ => Err("expected true or false".to_owned()),
        }
    }
}

impl Parse for String {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("expected some text".to_owned()) } else { Ok(text.to_owned()) }
    }
}

/// A URL with scheme and host. A trailing slash is removed.
impl Parse for Option<String> {
    fn parse(text: &str) -> Result<Self, String> {
        let url = text.trim_end_matches('/');
        let host = url.strip_prefix("https://").or(url.strip_prefix("http://"));
        match host {
            _ if url.is_empty() => Ok(None),
            Some(host) if !host.is_empty() && !host.contains(char::is_whitespace) => {
                Ok(Some(url.to_owned()))
            }
            _ => Err("expected a URL such as https://venue.example".to_owned()),
        }
    }
}

impl Parse for Option<Time> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { Time::parse(text).map(Some) }
    }
}

impl Parse for usize {
    fn parse(text: &str) -> Result<Self, String> {
        parse_positive(text)
    }
}

/// A small number, which may be 0.
impl Parse for u8 {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "expected a whole number from 0 to 255".to_owned())
    }
}

impl Parse for u32 {
    fn parse(text: &str) -> Result<Self, String> {
        parse_positive(text)
    }
}

impl Parse for u64 {
    fn parse(text: &str) -> Result<Self, String> {
        parse_positive(text)
    }
}

fn parse_positive<T: std::str::FromStr + PartialOrd + Default>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// Appends the entries of a TOML table as dotted names with the texts of their values.
pub(super) fn flatten(prefix: &str, table: &toml::Table, values: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, values),
            other => values.push((name, text_of(other))),
        }
    }
}

fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Float(number) => number.to_string(),
        toml::Value::Boolean(is_on) => is_on.to_string(),
        toml::Value::Datetime(time) => time.to_string(),
        toml::Value::Table(_) => String::new(),
    }
}

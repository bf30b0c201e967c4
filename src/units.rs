//! Times, sizes and words as settings write them, and how much memory there is.

use std::collections::BTreeMap;
use std::time::Duration;

/// Reads `on`, `true`, `yes`, `1` and their opposites.
pub fn parse_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// A number and what follows it.
pub fn split_unit(value: &str) -> Option<(f64, &str)> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, unit) = value.split_at(value.len() - digits.len() + end);
    Some((number.parse().ok()?, unit.trim()))
}

/// The seconds that `100ms`, `1s`, `10min` mean, also negative ones; without a unit, milliseconds.
pub fn seconds_of(value: &str) -> Option<f64> {
    let (number, unit) = split_unit(value)?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" | "" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Some(number * seconds)
}

/// Reads `100ms`, `1s`, `10min`; without a unit, milliseconds.
pub fn parse_duration(value: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds_of(value)?).ok()
}

/// Writes a duration in its largest whole unit, as PostgreSQL does.
pub fn format_duration(duration: Duration) -> String {
    let us = duration.as_micros();
    let units =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms")];
    match units.iter().find(|(size, _)| us >= *size && us.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", us / size),
        None if us == 0 => "0".to_owned(),
        None => format!("{us}us"),
    }
}

/// The bytes that `64MB`, `1GB` mean, also negative ones; without a unit, bytes.
pub fn bytes_of(value: &str) -> Option<f64> {
    let (number, unit) = split_unit(value)?;
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" | "kib" => 1024.0,
        "mb" | "mib" => 1024f64.powi(2),
        "gb" | "gib" => 1024f64.powi(3),
        "tb" | "tib" => 1024f64.powi(4),
        _ => return None,
    };
    Some(number * scale)
}

/// Reads `64MB`, `1GB`; without a unit, bytes.
pub fn parse_bytes(value: &str) -> Option<u64> {
    bytes_of(value).filter(|bytes| *bytes >= 0.0).map(|bytes| bytes as u64)
}

/// Writes a size in its largest whole unit.
pub fn format_bytes(bytes: u64) -> String {
    let units = [(1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")];
    match units.iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size)) {
        Some((size, unit)) => format!("{}{unit}", bytes / size),
        None => format!("{bytes}B"),
    }
}

/// Reads `60%`.
pub fn parse_percent(value: &str) -> Option<u8> {
    let percent = value.strip_suffix('%')?.trim().parse().ok()?;
    (1..=100).contains(&percent).then_some(percent)
}

/// The Levenshtein distance of two names: how many letters differ.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// The smaller of the machine's memory and the cgroup's.
pub fn available_memory() -> usize {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kb| kb * 1024)
    });
    let cgroup = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok());
    machine.into_iter().chain(cgroup).min().unwrap_or(1 << 30)
}

/// `ISO` and an order of day, month and year, as SHOW prints it.
pub fn date_style(value: &str) -> Option<String> {
    let mut order = "MDY";
    for word in value.split(',').map(|w| w.trim().to_ascii_uppercase()) {
        order = match word.as_str() {
            "ISO" | "DEFAULT" => order,
            "MDY" | "US" | "NONEURO" | "NONEUROPEAN" => "MDY",
            "DMY" | "EURO" | "EUROPEAN" => "DMY",
            "YMD" => "YMD",
            _ => return None,
        };
    }
    Some(format!("ISO, {order}"))
}

/// A time zone as SHOW prints it.
pub fn time_zone(value: &str) -> Option<String> {
    if ["utc", "gmt", "z", "zulu", "default", "local", "etc/utc"]
        .contains(&value.to_ascii_lowercase().as_str())
    {
        return Some("UTC".to_owned());
    }
    value.parse::<arrow::array::timezone::Tz>().ok().map(|_| value.to_owned())
}

/// Users and their secrets.
#[derive(Clone, Default, PartialEq)]
pub struct Users(BTreeMap<String, String>);

impl Users {
    /// `name:password, name:password`.
    pub fn parse(text: &str) -> Option<Self> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let pair = |entry: &str| {
            let (name, secret) = entry.split_once(':')?;
            (!name.is_empty() && !secret.is_empty()).then(|| (name.trim().to_owned(), secret.to_owned()))
        };
        entries.map(pair).collect::<Option<_>>().map(Users)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What proves that somebody is `user`.
    pub fn secret(&self, user: &str) -> Option<&str> {
        self.0.get(user).map(String::as_str)
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The bytes that a size, or a share of `whole`, means.
pub fn memory_size(value: &str, whole: usize) -> usize {
    match parse_percent(value) {
        Some(percent) => whole / 100 * usize::from(percent),
        None => parse_bytes(value).map_or(whole, |bytes| bytes as usize),
    }
}

/// How clients may encrypt: `tls.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// `tls.cert`
    pub cert: String,
    /// `tls.key`
    pub key: String,
    /// `tls.required`
    pub required: bool,
}

impl TlsSettings {
    /// Of the values of settings; `None` where none of them says anything.
    pub fn of<'a>(value: impl Fn(&str) -> &'a String) -> Option<Self> {
        let (cert, key) = (value("tls.cert").clone(), value("tls.key").clone());
        let required = parse_bool(value("tls.required")).unwrap_or(false);
        (required || !cert.is_empty() || !key.is_empty()).then_some(Self { cert, key, required })
    }
}

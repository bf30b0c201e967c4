//! What a setting's text means: its kind, the range it has, and the spelling that SHOW prints.
//!
//! Whatever is refused is refused with what may be written instead.

use super::{ConfigError, HIDDEN, SettingSpec, StorageUrl};
use crate::units::{
    Users, bytes_of, date_style, format_bytes, format_duration, parse_bool, parse_percent, seconds_of,
    split_unit, time_zone,
};
use std::net::SocketAddr;
use std::time::Duration;

/// What a setting's text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `on` or `off`.
    Bool,
    /// A time: `100ms`, `1s`, `10min`; without a unit, milliseconds.
    Duration(Range),
    /// A time, or `auto`: Weir chooses.
    DurationOrAuto(Range),
    /// A size: `64MB`, `1GB`; without a unit, bytes.
    Bytes(Range),
    /// A size, or a share of what there is: `60%`.
    Memory(Range),
    /// A whole number within bounds.
    Integer(i64, i64),
    /// Any text.
    Text,
    /// Users and their passwords, which are never shown.
    Users,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An address and port.
    Address,
    /// `ISO` and an order of day, month and year.
    DateStyle,
    /// A time zone's name or offset.
    TimeZone,
    /// `local`, or the URL of an object store.
    StorageUrl,
}

/// The times or sizes that make sense, as one writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// No less, unless it is off.
    pub least: &'static str,
    /// No more.
    pub most: &'static str,
    /// Whether `0`, or `off`, turns off what the setting is about.
    pub off: Off,
}

/// How it is written that a time or a limit is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Off {
    /// It can't be.
    Never,
    /// `0` or `off`; SHOW prints the zero.
    Zero,
    /// `0` or `off`; SHOW prints the word.
    Word,
}

/// What PostgreSQL accepts of a timeout; 0: none.
pub(super) const POSTGRES_TIMEOUT: Range = Range { least: "1us", most: "2147483647ms", off: Off::Zero };

/// What turns a time or a limit off; SHOW prints it where it is a [`Off::Word`].
const OFF: &str = "off";

/// What leaves a setting to Weir.
const AUTO: &str = "auto";

const TIMES: Measure = Measure {
    parse: seconds_of,
    format: |seconds| format_duration(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    noun: "a time",
    units: "\"us\", \"ms\", \"s\", \"min\", \"h\" and \"d\"",
};

const SIZES: Measure = Measure {
    parse: bytes_of,
    format: |bytes| format_bytes(bytes as u64),
    noun: "a size",
    units: "\"B\", \"kB\", \"MB\", \"GB\" and \"TB\"",
};

/// How a number with a unit is read and written.
struct Measure {
    /// Seconds or bytes, also negative ones.
    parse: fn(&str) -> Option<f64>,
    format: fn(f64) -> String,
    noun: &'static str,
    units: &'static str,
}

impl Measure {
    /// `value` within the range of `spec`, or what else is accepted, which is `more`.
    fn normalize(
        &self,
        spec: &SettingSpec,
        range: Range,
        value: &str,
        more: &str,
    ) -> Result<String, ConfigError> {
        let or_off = if range.off == Off::Never { "" } else { ", or off" };
        let hint = || format!("Write {} from {} to {}{more}{or_off}.", self.noun, range.least, range.most);
        let parsed = match (self.parse)(value) {
            _ if range.off != Off::Never && parse_bool(value) == Some(false) => Some(0.0),
            parsed => parsed,
        };
        let Some(parsed) = parsed else {
            let hint = match split_unit(value) {
                Some(_) => format!("Valid units for this parameter are {}.", self.units),
                None => hint(),
            };
            return Err(spec.invalid(value, Some(hint)));
        };
        let bound = |text: &str| (self.parse)(text).expect("the bounds of settings are well written");
        match range.off {
            Off::Word if parsed == 0.0 => return Ok(OFF.to_owned()),
            Off::Zero if parsed == 0.0 => return Ok((self.format)(0.0)),
            _ if (bound(range.least)..=bound(range.most)).contains(&parsed) => {}
            _ => {
                return Err(ConfigError::OutOfRange {
                    name: spec.name,
                    value: value.to_owned(),
                    least: range.least.to_owned(),
                    most: range.most.to_owned(),
                    hint: hint(),
                });
            }
        }
        Ok((self.format)(parsed))
    }
}

impl SettingSpec {
    /// Checks `value` and gives the spelling that SHOW prints.
    pub fn normalize(&self, value: &str) -> Result<String, ConfigError> {
        let value = value.trim();
        let invalid = |hint: &str| self.invalid(value, Some(hint.to_owned()));
        match self.kind {
            Kind::Text => Ok(value.to_owned()),
            Kind::Users => match Users::parse(value) {
                Some(_) => Ok(value.to_owned()),
                // The value is a secret, even a wrong one.
                None => {
                    Err(self.invalid(HIDDEN, Some("Write name:password, separated by commas.".to_owned())))
                }
            },
            Kind::Bool => parse_bool(value)
                .map(|b| if b { "on" } else { "off" }.to_owned())
                .ok_or(ConfigError::NotBool { name: self.name }),
            Kind::DurationOrAuto(_) if value.eq_ignore_ascii_case(AUTO) => Ok(AUTO.to_owned()),
            Kind::DurationOrAuto(range) => TIMES.normalize(self, range, value, ", or auto"),
            Kind::Duration(range) => TIMES.normalize(self, range, value, ""),
            Kind::Bytes(range) => SIZES.normalize(self, range, value, ""),
            Kind::Memory(range) => match parse_percent(value) {
                Some(percent) => Ok(format!("{percent}%")),
                None => SIZES.normalize(self, range, value, ", or a share such as 60%"),
            },
            Kind::Integer(least, most) => self.integer(value, least, most),
            Kind::Choice(words) => self.choice(value, words),
            Kind::Address => value
                .parse::<SocketAddr>()
                .map(|address| address.to_string())
                .map_err(|_| invalid("Write an IP address and a port, such as 127.0.0.1:4566.")),
            Kind::DateStyle => {
                date_style(value).ok_or_else(|| invalid("Weir writes dates in the ISO style only."))
            }
            Kind::TimeZone => time_zone(value).ok_or_else(|| {
                invalid("Write a name such as \"Europe/Berlin\", or an offset such as \"+02:00\".")
            }),
            Kind::StorageUrl => self.storage_url(value),
        }
    }

    fn invalid(&self, value: &str, hint: Option<String>) -> ConfigError {
        ConfigError::Invalid { name: self.name, value: value.to_owned(), hint }
    }

    fn integer(&self, value: &str, least: i64, most: i64) -> Result<String, ConfigError> {
        let hint = || format!("Write a whole number from {least} to {most}.");
        match value.parse::<i128>() {
            Ok(n) if (i128::from(least)..=i128::from(most)).contains(&n) => Ok(n.to_string()),
            Ok(n) => Err(ConfigError::OutOfRange {
                name: self.name,
                value: n.to_string(),
                least: least.to_string(),
                most: most.to_string(),
                hint: hint(),
            }),
            Err(_) => Err(self.invalid(value, Some(hint()))),
        }
    }

    fn choice(&self, value: &str, words: &[&str]) -> Result<String, ConfigError> {
        let plain = |word: &str| word.replace(['-', '_'], "");
        let wanted = plain(value);
        let found = words.iter().find(|word| plain(word).eq_ignore_ascii_case(&wanted));
        found
            .map(|word| (*word).to_owned())
            .ok_or_else(|| self.invalid(value, Some(format!("Available values: {}.", words.join(", ")))))
    }

    fn storage_url(&self, value: &str) -> Result<String, ConfigError> {
        StorageUrl::parse(value).map(|_| value.to_owned()).map_err(|hint| {
            // It may hold what nobody should see.
            let shown = value.split('?').next().filter(|shown| !shown.contains('@')).unwrap_or(HIDDEN);
            self.invalid(shown, Some(hint))
        })
    }

    /// The unit that `pg_settings` shows.
    pub fn unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Duration(_) => Some("ms"),
            Kind::Bytes(_) | Kind::Memory(_) => Some("B"),
            _ => None,
        }
    }
}

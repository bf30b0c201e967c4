//! `WITH` options against what a connector says that it takes.

use super::BindContext;
use super::names::nearest;
use crate::error::SqlError;
use weir_catalog::SqlState;
use weir_catalog::connector::{ConnectorRole, ConnectorSpec};
use weir_catalog::source::{FormatSpec, Options};

/// The encoding of generators and of sinks that write none.
pub(super) const NATIVE: &str = "NATIVE";

/// The connector that the options name. They are left without it.
pub(super) fn take_connector<'a>(
    options: &mut Options,
    role: ConnectorRole,
    context: &'a BindContext,
) -> Result<&'a ConnectorSpec, SqlError> {
    let known: Vec<&ConnectorSpec> = context.connectors.iter().filter(|c| c.role == role).collect();
    let names: Vec<&str> = known.iter().map(|c| c.name).collect();
    let list = format!("Use one of {}.", names.join(", "));
    let Some(name) = options.remove("connector") else {
        return Err(invalid("missing option \"connector\"").hint(list));
    };
    if let Some(spec) = known.iter().find(|c| c.name == name) {
        return Ok(spec);
    }
    let what = match role {
        ConnectorRole::Source => "source",
        ConnectorRole::Sink => "sink",
    };
    let error = invalid(format!("there is no {what} connector \"{name}\""));
    Err(match nearest(&name, names.iter().copied()) {
        Some(near) => error.hint(format!("Perhaps you meant \"{near}\".")),
        None => error.hint(list),
    })
}

/// The option that is meant by another name: one that it is a part of (`host` of `hostname`, `table` of
/// `table.name`, `url` of `jdbc.url`), or else the nearest.
fn meant<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let part = |of: &&&str| {
        name.len() > 2 && (of.starts_with(name) || of.rsplit_once('.').is_some_and(|(_, last)| last == name))
    };
    known.iter().find(part).copied().or_else(|| nearest(name, known.iter().copied()))
}

/// Names the first option that the connector does not take, or that it needs.
pub(super) fn check_options(spec: &ConnectorSpec, options: &Options) -> Result<(), SqlError> {
    if let Some(name) = options.keys().find(|name| !spec.takes(name)) {
        let error = invalid(format!("unknown option \"{name}\" of connector \"{}\"", spec.name));
        let known: Vec<&str> = spec.options.iter().map(|o| o.name).collect();
        return Err(match meant(name, &known) {
            Some(near) => error.hint(format!("Perhaps you meant \"{near}\".")),
            None if known.is_empty() => error.hint("It takes no options."),
            None => error.hint(format!("It takes {}.", known.join(", "))),
        });
    }
    match spec.options.iter().find(|o| o.required && !options.contains_key(o.name)) {
        Some(missing) => {
            Err(invalid(format!("missing option \"{}\" of connector \"{}\"", missing.name, spec.name))
                .hint(missing.help))
        }
        None => Ok(()),
    }
}

/// The format as declared, or the only one that the connector has.
pub(super) fn check_format(spec: &ConnectorSpec, format: Option<FormatSpec>) -> Result<FormatSpec, SqlError> {
    let native =
        || FormatSpec { format: NATIVE.to_owned(), encode: NATIVE.to_owned(), options: Options::new() };
    let Some(format) = format else {
        if spec.encodings.is_empty() {
            return Ok(native());
        }
        return Err(invalid(format!("connector \"{}\" needs FORMAT … ENCODE …", spec.name))
            .hint(format!("Write FORMAT PLAIN ENCODE {}.", spec.encodings.join(" or "))));
    };
    let known = spec.encodings.iter().any(|e| e.eq_ignore_ascii_case(&format.encode));
    let native_only = spec.encodings.is_empty() && format.encode == NATIVE;
    if known || native_only {
        return Ok(format);
    }
    let takes = if spec.encodings.is_empty() { NATIVE.to_owned() } else { spec.encodings.join(" or ") };
    Err(SqlError::not_supported(format_args!("ENCODE {} with connector \"{}\"", format.encode, spec.name))
        .hint(format!("Use ENCODE {takes}.")))
}

/// Takes a boolean option.
pub(super) fn take_bool(options: &mut Options, name: &str, default: bool) -> Result<bool, SqlError> {
    let Some(value) = options.remove(name) else { return Ok(default) };
    match value.to_lowercase().as_str() {
        "true" | "t" | "on" | "yes" | "1" => Ok(true),
        "false" | "f" | "off" | "no" | "0" => Ok(false),
        _ => Err(invalid(format!("option \"{name}\" requires a Boolean value"))),
    }
}

pub(super) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

//! PostgreSQL's patterns of dates and times, `YYYY-MM-DD HH24:MI:SS`, taken apart.

use super::calendar::DAY_US;

/// A part of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Year(usize),
    IsoYear,
    Month,
    MonthName(Case, bool),
    Day,
    DayOfYear,
    DayOfWeek,
    IsoDayOfWeek,
    DayName(Case, bool),
    Hour24,
    Hour12,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    SecondsOfDay,
    Meridiem(Case, bool),
    Quarter,
    Week,
    IsoWeek,
    WeekOfMonth,
    Century,
    Julian,
    Zone,
}

/// How letters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Lower,
    Title,
}

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    /// A field; without padding after `FM`; with an ordinal's ending after `TH` or `th`.
    Field {
        field: Field,
        fill: bool,
        ordinal: Option<Case>,
    },
}

/// The patterns, longest first among those that start alike.
const PATTERNS: &[(&str, Field)] = &[
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("IYYY", Field::IsoYear),
    ("IDDD", Field::DayOfYear),
    ("ID", Field::IsoDayOfWeek),
    ("IW", Field::IsoWeek),
    ("MONTH", Field::MonthName(Case::Upper, false)),
    ("Month", Field::MonthName(Case::Title, false)),
    ("month", Field::MonthName(Case::Lower, false)),
    ("MON", Field::MonthName(Case::Upper, true)),
    ("Mon", Field::MonthName(Case::Title, true)),
    ("mon", Field::MonthName(Case::Lower, true)),
    ("MM", Field::Month),
    ("MI", Field::Minute),
    ("MS", Field::Millisecond),
    ("DAY", Field::DayName(Case::Upper, false)),
    ("Day", Field::DayName(Case::Title, false)),
    ("day", Field::DayName(Case::Lower, false)),
    ("DY", Field::DayName(Case::Upper, true)),
    ("Dy", Field::DayName(Case::Title, true)),
    ("dy", Field::DayName(Case::Lower, true)),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("D", Field::DayOfWeek),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("SSSSS", Field::SecondsOfDay),
    ("SSSS", Field::SecondsOfDay),
    ("SS", Field::Second),
    ("US", Field::Microsecond),
    ("A.M.", Field::Meridiem(Case::Upper, true)),
    ("P.M.", Field::Meridiem(Case::Upper, true)),
    ("a.m.", Field::Meridiem(Case::Lower, true)),
    ("p.m.", Field::Meridiem(Case::Lower, true)),
    ("AM", Field::Meridiem(Case::Upper, false)),
    ("PM", Field::Meridiem(Case::Upper, false)),
    ("am", Field::Meridiem(Case::Lower, false)),
    ("pm", Field::Meridiem(Case::Lower, false)),
    ("Q", Field::Quarter),
    ("WW", Field::Week),
    ("W", Field::WeekOfMonth),
    ("CC", Field::Century),
    ("J", Field::Julian),
    ("TZ", Field::Zone),
];

/// Takes a pattern apart.
pub(super) fn pieces(pattern: &str) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut text = String::new();
    let mut rest = pattern;
    let mut fill = true;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let inner = &rest[1..];
            let end = inner.find('"').unwrap_or(inner.len());
            text.push_str(&inner[..end]);
            rest = inner.get(end + 1..).unwrap_or("");
        } else if let Some(after) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            fill = false;
            rest = after;
        } else if let Some((after, field)) = field_at(rest) {
            if !text.is_empty() {
                found.push(Piece::Text(std::mem::take(&mut text)));
            }
            let ordinal = match after.get(..2) {
                Some("TH") => Some(Case::Upper),
                Some("th") => Some(Case::Lower),
                _ => None,
            };
            found.push(Piece::Field { field, fill, ordinal });
            rest = if ordinal.is_some() { &after[2..] } else { after };
            fill = true;
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    if !text.is_empty() {
        found.push(Piece::Text(text));
    }
    found
}

fn field_at(rest: &str) -> Option<(&str, Field)> {
    let exact = PATTERNS.iter().find(|(name, _)| rest.starts_with(name));
    // Lower-case patterns of numbers mean the same: yyyy-mm-dd.
    let any_case = || {
        PATTERNS.iter().find(|(name, field)| {
            let cased = matches!(field, Field::MonthName(..) | Field::DayName(..) | Field::Meridiem(..));
            !cased && rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        })
    };
    exact.or_else(any_case).map(|(name, field)| (&rest[name.len()..], *field))
}

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// How fine a field is.
pub(super) fn grain_us(piece: &Piece) -> i64 {
    match piece {
        Piece::Text(_) => DAY_US,
        Piece::Field { field, .. } => match field {
            Field::Microsecond | Field::Millisecond => 1,
            Field::Second | Field::SecondsOfDay => 1_000_000,
            Field::Minute => 60_000_000,
            Field::Hour24 | Field::Hour12 | Field::Meridiem(..) => 3_600_000_000,
            _ => DAY_US,
        },
    }
}

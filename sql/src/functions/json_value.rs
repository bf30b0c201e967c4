//! A JSON value as jsonb has it: numbers keep their digits and their scale, keys are in order, and
//! the last of equal keys counts.

use std::collections::HashMap;
use std::iter::Peekable;
use std::str::CharIndices;

/// Deeper nesting is refused: it would need more stack than there is.
const DEPTH_MAX: usize = 128;

/// More digits than this are refused: an exponent can ask for any number of them.
const DIGITS_MAX: i64 = 10_000;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` and `false`
    Bool(bool),
    /// A number in plain decimal notation.
    Number(String),
    /// A text, unescaped.
    Text(String),
    /// `[…]`
    Array(Vec<Json>),
    /// `{…}`: shorter keys first, then by bytes; no two alike.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value that a text is, if it is one.
    pub fn parse(text: &str) -> Option<Json> {
        let mut parser = Parser { text, chars: text.char_indices().peekable() };
        let value = parser.value(0)?;
        parser.skip_space();
        parser.chars.next().is_none().then_some(value)
    }

    /// A number from its text as numeric or a float has it; of a special float, its text.
    pub fn number(text: &str) -> Json {
        match plain(text).filter(|_| text.ends_with(|c: char| c.is_ascii_digit())) {
            Some(digits) => Json::Number(digits),
            None => Json::Text(text.to_owned()),
        }
    }

    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Json]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Whether a text or a name in it holds a zero.
    pub fn has_zero(&self) -> bool {
        match self {
            Json::Text(text) => text.contains('\0'),
            Json::Array(items) => items.iter().any(Json::has_zero),
            Json::Object(fields) => {
                fields.iter().any(|(name, value)| name.contains('\0') || value.has_zero())
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => false,
        }
    }

    /// The normal form: one space after `:` and `,`.
    pub fn shown(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// An object of these members: the last of equal names counts.
    pub fn object(fields: Vec<(String, Json)>) -> Json {
        let mut kept: Vec<(String, Json)> = Vec::with_capacity(fields.len());
        let mut places: HashMap<String, usize> = HashMap::with_capacity(fields.len());
        for (name, value) in fields {
            match places.get(&name) {
                Some(at) => kept[*at].1 = value,
                None => {
                    places.insert(name.clone(), kept.len());
                    kept.push((name, value));
                }
            }
        }
        Json::Object(Json::sorted(kept))
    }

    /// Members in jsonb's order.
    pub fn sorted(mut fields: Vec<(String, Json)>) -> Vec<(String, Json)> {
        fields.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
        fields
    }

    /// Indented, one element a line.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write_pretty(0, &mut out);
        out
    }

    fn write_pretty(&self, depth: usize, out: &mut String) {
        let (open, close, length) = match self {
            Json::Array(items) => ('[', ']', items.len()),
            Json::Object(fields) => ('{', '}', fields.len()),
            scalar => return scalar.write(out),
        };
        let line = |depth: usize, out: &mut String| {
            out.push('\n');
            out.push_str(&"    ".repeat(depth));
        };
        out.push(open);
        for i in 0..length {
            out.push_str(if i > 0 { "," } else { "" });
            line(depth + 1, out);
            match self {
                Json::Array(items) => items[i].write_pretty(depth + 1, out),
                Json::Object(fields) => {
                    write_text(&fields[i].0, out);
                    out.push_str(": ");
                    fields[i].1.write_pretty(depth + 1, out);
                }
                _ => {}
            }
        }
        line(depth, out);
        out.push(close);
    }

    fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(digits) => out.push_str(digits),
            Json::Text(text) => write_text(text, out),
            Json::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Json::Object(fields) => {
                out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    write_text(name, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

pub(super) fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

struct Parser<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

impl Parser<'_> {
    fn skip_space(&mut self) {
        while self.chars.next_if(|(_, c)| matches!(c, ' ' | '\t' | '\n' | '\r')).is_some() {}
    }

    fn is_next(&mut self, wanted: char) -> bool {
        self.skip_space();
        self.chars.next_if(|(_, c)| *c == wanted).is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.skip_space();
        match self.chars.peek()?.1 {
            '{' => self.object(depth),
            '[' => self.array(depth),
            '"' => self.string().map(Json::Text),
            '-' | '0'..='9' => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Option<Json> {
        let start = self.chars.peek()?.0;
        while self.chars.next_if(|(_, c)| c.is_ascii_alphabetic()).is_some() {}
        let end = self.chars.peek().map_or(self.text.len(), |(i, _)| *i);
        match &self.text[start..end] {
            "null" => Some(Json::Null),
            "true" => Some(Json::Bool(true)),
            "false" => Some(Json::Bool(false)),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<String> {
        let (start, _) = self.chars.next()?;
        loop {
            match self.chars.next()? {
                (_, '\\') => drop(self.chars.next()?),
                (end, '"') => return serde_json::from_str(&self.text[start..=end]).ok(),
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Option<Json> {
        let start = self.chars.peek()?.0;
        let part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        while self.chars.next_if(|(_, c)| part(*c)).is_some() {}
        let end = self.chars.peek().map_or(self.text.len(), |(i, _)| *i);
        let written = &self.text[start..end];
        // What is a number, JSON's grammar says: no leading zeros, digits around the point.
        serde_json::from_str::<serde_json::Value>(written).ok().or_else(|| huge(written))?;
        plain(written).map(Json::Number)
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.chars.next();
        let mut items = Vec::new();
        if self.is_next(']') {
            return Some(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.is_next(']') {
                return Some(Json::Array(items));
            }
            self.is_next(',').then_some(())?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.chars.next();
        let mut fields: Vec<(String, Json)> = Vec::new();
        if self.is_next('}') {
            return Some(Json::Object(fields));
        }
        loop {
            self.skip_space();
            self.chars.peek().filter(|(_, c)| *c == '"')?;
            let name = self.string()?;
            self.is_next(':').then_some(())?;
            let value = self.value(depth + 1)?;
            fields.push((name, value));
            if self.is_next('}') {
                return Some(Json::object(fields));
            }
            self.is_next(',').then_some(())?;
        }
    }
}

/// A number beyond what a float can be is one all the same.
fn huge(written: &str) -> Option<serde_json::Value> {
    let (mantissa, exponent) = written.split_once(['e', 'E'])?;
    exponent.parse::<i64>().ok()?;
    serde_json::from_str(mantissa).ok()
}

/// A number without exponent, its digits and scale as numeric has them.
fn plain(written: &str) -> Option<String> {
    let (mantissa, exponent) = match written.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (written, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let point = whole.len() as i64 + exponent;
    if exponent.abs() > DIGITS_MAX {
        return None;
    }
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    let (whole, fraction) = if point <= 0 {
        ("0".to_owned(), format!("{}{all}", zeros(-point)))
    } else if point >= all.len() as i64 {
        (format!("{all}{}", zeros(point - all.len() as i64)), String::new())
    } else {
        let (whole, fraction) = all.split_at(point as usize);
        (whole.to_owned(), fraction.to_owned())
    };
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let zero = all.bytes().all(|b| b == b'0');
    let sign = if negative && !zero { "-" } else { "" };
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    Some(format!("{sign}{whole}{fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_scale() {
        let shown = |text: &str| Json::parse(text).map(|v| v.shown());
        let number = |text: &str| shown(text).unwrap_or_default();
        assert_eq!(number("1.50"), "1.50");
        assert_eq!(number("-0.0"), "0.0");
        assert_eq!(number("1e3"), "1000");
        assert_eq!(number("1.5E2"), "150");
        assert_eq!(number("12.5e-4"), "0.00125");
        assert_eq!(number("123456789012345678901234567890.10"), "123456789012345678901234567890.10");
        assert_eq!(number("1e400").len(), 401);
        for bad in
            ["01", "1.", ".5", "+1", "1e", "--1", "1e999999", "nul", "[1,]", "{\"a\" 1}", "\"\n\"", "1 2"]
        {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }

    #[test]
    fn texts_and_nesting() {
        let shown = |text: &str| Json::parse(text).map(|v| v.shown());
        assert_eq!(
            shown(r#" ["\u00e9\n", {"b": {}, "a": []}] "#).as_deref(),
            Some(r#"["é\n", {"a": [], "b": {}}]"#)
        );
        assert_eq!(shown(&format!("{}{}", "[".repeat(500), "]".repeat(500))), None);
    }
}

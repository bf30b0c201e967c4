//! `to_char` of numbers: PostgreSQL's patterns (`9 0 . , D G FM S MI PL SG PR L V RN TH EEEE`).
//!
//! A pattern is taken apart once, then each number, rounded to the pattern's digits, is walked
//! through its elements. What is printed where, and when the sign is, follows PostgreSQL's own
//! `formatting.c` step by step, for its rules are what they are.

use super::error::failure;
use datafusion_common::Result;
use weir_catalog::SqlState;

/// One element of a pattern.
#[derive(Clone, Debug, PartialEq)]
enum Element {
    Nine,
    Zero,
    Point,
    Group,
    Minus,
    Plus,
    Sign,
    Currency,
    Roman {
        upper: bool,
    },
    Ordinal {
        upper: bool,
    },
    Literal(char),
    /// Says something of the whole, prints nothing itself.
    Silent,
}

/// A pattern taken apart.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    elements: Vec<Element>,
    before: usize,
    after: usize,
    /// Digits behind V.
    multiplied: usize,
    zero_start: usize,
    zero_end: usize,
    zero: bool,
    decimal: bool,
    fill: bool,
    locale_sign: Option<SignPlace>,
    sign_before: usize,
    minus: bool,
    plus: bool,
    bracket: bool,
    roman: bool,
    multi: bool,
    scientific: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum SignPlace {
    Before,
    After,
}

/// Words of a pattern, longer ones first.
const WORDS: [&str; 18] =
    ["EEEE", "FM", "MI", "PL", "SG", "PR", "RN", "TH", "SP", "S", "V", "L", "D", "G", "B", "C", "9", "0"];

impl Pattern {
    /// Takes a pattern apart.
    pub fn parse(text: &str) -> Result<Self> {
        let mut pattern = Self::default();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first == '"' {
                let quoted: String = rest[1..].chars().take_while(|c| *c != '"').collect();
                rest = &rest[(1 + quoted.len() + 1).min(rest.len())..];
                pattern.elements.extend(quoted.chars().map(Element::Literal));
                continue;
            }
            let word = WORDS.iter().find(|w| rest.get(..w.len()).is_some_and(|r| r.eq_ignore_ascii_case(w)));
            let length = word.map_or(first.len_utf8(), |w| w.len());
            let written = &rest[..length];
            let upper = written.starts_with(char::is_uppercase);
            let element = match (word, first) {
                (Some(word), _) => pattern.word(word, upper)?,
                (None, '.') => pattern.point()?,
                (None, ',') => Element::Group,
                (None, other) => Element::Literal(other),
            };
            pattern.elements.push(element);
            rest = &rest[length..];
        }
        Ok(pattern)
    }

    fn point(&mut self) -> Result<Element> {
        if self.decimal {
            return Err(syntax("multiple decimal points"));
        }
        if self.multi {
            return Err(syntax("cannot use \"V\" and decimal point together"));
        }
        self.decimal = true;
        Ok(Element::Point)
    }

    fn nine(&mut self) -> Element {
        if self.multi {
            self.multiplied += 1;
        } else if self.decimal {
            self.after += 1;
        } else {
            self.before += 1;
        }
        Element::Nine
    }

    fn zero(&mut self) -> Element {
        if !self.zero && !self.decimal {
            self.zero = true;
            self.zero_start = self.before + 1;
        }
        if self.decimal {
            self.after += 1;
        } else {
            self.before += 1;
        }
        self.zero_end = self.before + self.after;
        Element::Zero
    }

    fn word(&mut self, word: &str, upper: bool) -> Result<Element> {
        Ok(match word {
            "9" => self.nine(),
            "0" => self.zero(),
            "D" => self.point()?,
            "G" => Element::Group,
            "S" => {
                if self.locale_sign.is_some() {
                    return Err(syntax("cannot use \"S\" twice"));
                }
                self.locale_sign = Some(if self.decimal { SignPlace::After } else { SignPlace::Before });
                self.sign_before = self.before;
                Element::Silent
            }
            "MI" => {
                self.minus = true;
                Element::Minus
            }
            "PL" => {
                self.plus = true;
                Element::Plus
            }
            "SG" => {
                (self.minus, self.plus) = (true, true);
                Element::Sign
            }
            "PR" => {
                self.bracket = true;
                Element::Silent
            }
            "FM" => {
                self.fill = true;
                Element::Silent
            }
            "V" => {
                if self.decimal {
                    return Err(syntax("cannot use \"V\" and decimal point together"));
                }
                self.multi = true;
                Element::Silent
            }
            "RN" => {
                self.roman = true;
                Element::Roman { upper }
            }
            "TH" => Element::Ordinal { upper },
            "L" => Element::Currency,
            "EEEE" => {
                self.scientific = true;
                Element::Silent
            }
            _ => Element::Silent,
        })
    }

    /// How many digits after the point the number is to be rounded to, and the power of ten that it
    /// is multiplied by before.
    pub fn digits(&self) -> (usize, usize) {
        (self.after, self.multiplied)
    }

    /// Whether the number is wanted with an exponent.
    pub fn is_scientific(&self) -> bool {
        self.scientific
    }

    /// A number of so many digits after the point, `-12.50`, as the pattern has it.
    pub fn format(&self, number: &str) -> String {
        let (negative, digits) = match number.strip_prefix('-') {
            Some(digits) => (digits.bytes().any(|b| (b'1'..=b'9').contains(&b)), digits),
            None => (false, number),
        };
        if self.roman {
            return self.roman_number(if negative { "0" } else { digits });
        }
        let whole = digits.split('.').next().unwrap_or_default().len();
        let before = self.before + self.multiplied;
        let digits = if whole > before {
            let after = if self.after > 0 { format!(".{}", "#".repeat(self.after)) } else { String::new() };
            format!("{}{after}", "#".repeat(before))
        } else {
            digits.to_owned()
        };
        Walk::new(self, negative, digits.into_bytes(), before, before.saturating_sub(whole)).run()
    }

    fn roman_number(&self, digits: &str) -> String {
        const PARTS: [(u32, &str); 13] = [
            (1000, "M"),
            (900, "CM"),
            (500, "D"),
            (400, "CD"),
            (100, "C"),
            (90, "XC"),
            (50, "L"),
            (40, "XL"),
            (10, "X"),
            (9, "IX"),
            (5, "V"),
            (4, "IV"),
            (1, "I"),
        ];
        let upper = self.elements.contains(&Element::Roman { upper: true });
        let whole = digits.split('.').next().and_then(|d| d.parse::<u32>().ok());
        let Some(mut rest) = whole.filter(|n| (1..4000).contains(n)) else { return "#".repeat(15) };
        let mut roman = String::new();
        for (value, letters) in PARTS {
            while rest >= value {
                roman.push_str(letters);
                rest -= value;
            }
        }
        let roman = if upper { roman } else { roman.to_lowercase() };
        if self.fill { roman } else { format!("{roman:>15}") }
    }
}

fn syntax(message: &str) -> datafusion_common::DataFusionError {
    failure(SqlState::SYNTAX_ERROR, message)
}

/// A number on its way through a pattern. Its fields are named for what `formatting.c` calls them.
struct Walk<'a> {
    pattern: &'a Pattern,
    negative: bool,
    number: Vec<u8>,
    locale_sign: Option<SignPlace>,
    bracket: bool,
    zero_start: usize,
    spaces: usize,
    last_relevant: Option<usize>,
    count: usize,

    sign_wrote: bool,
    at: usize,
    current: usize,
    in_number: bool,
    out: String,
}

impl<'a> Walk<'a> {
    fn new(pattern: &'a Pattern, negative: bool, number: Vec<u8>, before: usize, spaces: usize) -> Self {
        let mut locale_sign = pattern.locale_sign;
        let sign_wrote = if pattern.plus || pattern.minus {
            !pattern.plus || pattern.minus
        } else {
            if locale_sign == Some(SignPlace::Before) && pattern.before == pattern.sign_before {
                locale_sign = Some(SignPlace::After);
            }
            !negative && pattern.fill && pattern.locale_sign.is_none()
        };
        let mut walk = Self {
            pattern,
            negative,
            locale_sign,
            bracket: pattern.bracket && (negative || !pattern.fill),
            zero_start: pattern.zero_start.saturating_sub(1),
            spaces,
            last_relevant: None,
            count: (pattern.after + before).saturating_sub(1),
            sign_wrote,
            at: 0,
            current: 0,
            in_number: false,
            out: String::new(),
            number,
        };
        if pattern.fill && pattern.decimal {
            walk.last_relevant = walk.last_digit();
        }
        if !sign_wrote && spaces == 0 {
            walk.count += 1;
        }
        walk
    }

    /// The last digit that is not a zero behind the point, or the point; further where the pattern
    /// has a 0.
    fn last_digit(&self) -> Option<usize> {
        let point = self.number.iter().position(|b| *b == b'.')?;
        let last = self.number.iter().rposition(|b| *b != b'0').unwrap_or(point).max(point);
        if self.pattern.zero_end > self.spaces {
            let zero = (self.number.len() - 1).min(self.pattern.zero_end - self.spaces);
            return Some(last.max(zero));
        }
        Some(last)
    }

    fn relevant_is_point(&self) -> bool {
        self.last_relevant.is_some_and(|at| self.number.get(at) == Some(&b'.'))
    }

    /// `0.1` by `9.9` is ` .1`.
    fn is_space_before_point(&self) -> bool {
        let pattern = self.pattern;
        !pattern.zero && self.at == 0 && self.number.first() == Some(&b'0') && pattern.after != 0
    }

    fn run(mut self) -> String {
        let pattern = self.pattern;
        for element in &pattern.elements {
            match element {
                Element::Nine | Element::Zero | Element::Point => self.digit(element),
                Element::Group if self.in_number => self.out.push(','),
                Element::Group | Element::Currency => self.blank(),
                Element::Minus if self.negative => self.out.push('-'),
                Element::Minus => self.blank(),
                Element::Plus if !self.negative => self.out.push('+'),
                Element::Plus => self.blank(),
                Element::Sign => self.out.push(if self.negative { '-' } else { '+' }),
                Element::Ordinal { upper } => self.ordinal(*upper),
                Element::Literal(c) => self.out.push(*c),
                Element::Roman { .. } | Element::Silent => {}
            }
        }
        self.out
    }

    fn blank(&mut self) {
        if !self.pattern.fill {
            self.out.push(' ');
        }
    }

    fn ordinal(&mut self, upper: bool) {
        if self.number.first() == Some(&b'#') || self.negative || self.pattern.decimal {
            return;
        }
        let [.., tens, ones] = [b"0".as_slice(), self.number.as_slice()].concat()[..] else { return };
        let ending = match (tens, ones) {
            (b'1', _) => "th",
            (_, b'1') => "st",
            (_, b'2') => "nd",
            (_, b'3') => "rd",
            _ => "th",
        };
        self.out.push_str(&if upper { ending.to_uppercase() } else { ending.to_owned() });
    }

    fn write_sign(&mut self) {
        if let Some(place) = self.locale_sign {
            if place == SignPlace::Before {
                self.out.push(if self.negative { '-' } else { '+' });
                self.sign_wrote = true;
            }
        } else if self.bracket {
            self.out.push(if self.negative { '<' } else { ' ' });
            self.sign_wrote = true;
        } else if self.negative {
            self.out.push('-');
            self.sign_wrote = true;
        } else {
            self.blank();
            self.sign_wrote = true;
        }
    }

    fn digit(&mut self, element: &Element) {
        let pattern = self.pattern;
        let starts = self.current >= self.spaces || (pattern.zero && self.zero_start == self.current);
        if !self.sign_wrote && starts && (!self.is_space_before_point() || self.relevant_is_point()) {
            self.write_sign();
        }
        if self.current < self.spaces && (self.zero_start > self.current || !pattern.zero) {
            self.blank();
        } else if pattern.zero && self.current < self.spaces {
            self.out.push('0');
            self.in_number = true;
        } else {
            match self.number.get(self.at).copied() {
                Some(b'.') if self.relevant_is_point() && !pattern.fill => {}
                Some(b'.') => self.out.push('.'),
                Some(digit) => self.write_digit(digit, element),
                None => {}
            }
            if self.at < self.number.len() {
                self.at += 1;
            }
        }
        self.close_sign();
        self.current += 1;
    }

    fn write_digit(&mut self, digit: u8, element: &Element) {
        if self.last_relevant.is_some_and(|last| self.at > last) && *element != Element::Zero {
            return;
        }
        if !self.is_space_before_point() {
            self.out.push(char::from(digit));
            self.in_number = true;
        } else if !self.pattern.fill {
            self.out.push(' ');
        } else if self.relevant_is_point() {
            self.out.push('0');
        }
    }

    /// What comes behind the last digit: a bracket, or the sign.
    fn close_sign(&mut self) {
        let mut end = self.count + usize::from(self.spaces > 0) + usize::from(self.pattern.decimal);
        if self.last_relevant == Some(self.at) {
            end = self.current;
        }
        if self.current + 1 != end {
            return;
        }
        if self.sign_wrote && self.bracket {
            self.out.push(if self.negative { '>' } else { ' ' });
        } else if self.locale_sign == Some(SignPlace::After) {
            self.out.push(if self.negative { '-' } else { '+' });
        }
    }
}

#[cfg(test)]
#[path = "tests/number_pattern.rs"]
mod tests;

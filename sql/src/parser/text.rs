//! A statement's text, and how the tokenizer's lines and columns become offsets in it.
//!
//! The tokenizer counts lines and columns in characters from 1; slices need bytes, and error
//! positions need characters from the start.

use sqlparser::tokenizer::{Location, Span, TokenWithSpan};

/// Text with its lines.
pub(crate) struct Text<'a> {
    /// The text.
    pub(crate) text: &'a str,
    /// Where each line starts: byte, character.
    lines: Vec<(usize, usize)>,
}

impl<'a> Text<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut lines = vec![(0, 0)];
        for (char_index, (byte_index, c)) in text.char_indices().enumerate() {
            if c == '\n' {
                lines.push((byte_index + 1, char_index + 1));
            }
        }
        Self { text, lines }
    }

    /// The byte at a location; the end of the text for one beyond it.
    pub(crate) fn byte(&self, at: Location) -> usize {
        let Some(&(line_byte, _)) = self.lines.get((at.line as usize).saturating_sub(1)) else {
            return self.text.len();
        };
        let columns = (at.column as usize).saturating_sub(1);
        self.text[line_byte..].char_indices().nth(columns).map_or(self.text.len(), |(i, _)| line_byte + i)
    }

    /// The character at a location, from 0.
    pub(crate) fn char(&self, at: Location) -> usize {
        match self.lines.get((at.line as usize).saturating_sub(1)) {
            Some(&(_, line_char)) => line_char + (at.column as usize).saturating_sub(1),
            None => self.char_len(),
        }
    }

    /// How many characters the text has.
    pub(crate) fn char_len(&self) -> usize {
        let &(byte, char) = self.lines.last().unwrap_or(&(0, 0));
        char + self.text[byte..].chars().count()
    }

    /// The text from the start of `span` to its end.
    pub(crate) fn slice(&self, span: Span) -> &'a str {
        &self.text[self.byte(span.start)..self.byte(span.end)]
    }
}

/// The span from the first to the last of `tokens`, if any.
pub(crate) fn span_of(tokens: &[TokenWithSpan]) -> Option<Span> {
    Some(Span::new(tokens.first()?.span.start, tokens.last()?.span.end))
}

/// `tokens` as if the text began where the first of them does.
pub(crate) fn rebase(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let Some(first) = tokens.first().map(|t| t.span.start) else { return Vec::new() };
    let shift = |at: Location| Location {
        line: at.line - first.line + 1,
        column: if at.line == first.line { at.column - first.column + 1 } else { at.column },
    };
    tokens
        .iter()
        .map(|t| TokenWithSpan {
            token: t.token.clone(),
            span: Span::new(shift(t.span.start), shift(t.span.end)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_count_characters_not_bytes() {
        let text = Text::new("äö\n'é' x");
        assert_eq!(text.byte(Location { line: 2, column: 5 }), 10);
        assert_eq!(text.char(Location { line: 2, column: 5 }), 7);
        assert_eq!(text.char_len(), 8);
        assert_eq!(
            text.slice(Span::new(Location { line: 1, column: 2 }, Location { line: 2, column: 4 })),
            "ö\n'é'"
        );
        assert_eq!(text.byte(Location { line: 9, column: 1 }), text.text.len());
    }
}

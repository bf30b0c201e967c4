//! The text of arrays: `{1,"a b",NULL}`, `{{1,2},{3,4}}`.

use super::parse::ParseError;
use ParseError::Syntax;

/// Takes an array whose opening brace has been read, up to its closing one.
fn inner_array(chars: &mut impl Iterator<Item = char>, out: &mut String) -> Result<(), ParseError> {
    out.push('{');
    let (mut depth, mut quoted) = (1, false);
    while depth > 0 {
        let c = chars.next().ok_or(Syntax)?;
        out.push(c);
        match c {
            '\\' => out.push(chars.next().ok_or(Syntax)?),
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => depth -= 1,
            _ => {}
        }
    }
    Ok(())
}

/// The elements of `{1,"a b",NULL}`; `None` is NULL.
pub fn array(text: &str) -> Result<Vec<Option<String>>, ParseError> {
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or(Syntax)?;
    let mut elements = Vec::new();
    let mut chars = inner.chars().peekable();
    if inner.trim().is_empty() {
        return Ok(elements);
    }
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let mut element = String::new();
        let quoted = chars.next_if_eq(&'"').is_some();
        loop {
            match chars.next() {
                Some('"') if quoted => break,
                Some('\\') => element.push(chars.next().ok_or(Syntax)?),
                // The text of an inner array, whose elements are read in their turn.
                Some('{') if !quoted && element.is_empty() => {
                    inner_array(&mut chars, &mut element)?;
                    break;
                }
                Some('{' | '}') if !quoted => return Err(Syntax),
                Some(c) => element.push(c),
                None if quoted => return Err(Syntax),
                None => break,
            }
            if !quoted && chars.peek().is_none_or(|c| *c == ',') {
                break;
            }
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let plain = element.trim_end();
        elements.push(match (quoted, plain) {
            (true, _) => Some(element),
            (false, "") => return Err(Syntax),
            (false, plain) if plain.eq_ignore_ascii_case("null") => None,
            (false, plain) => Some(plain.to_owned()),
        });
        match chars.next() {
            Some(',') => {}
            None => return Ok(elements),
            Some(_) => return Err(Syntax),
        }
    }
}

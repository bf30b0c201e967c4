//! Array literals: `'{1, 2, NULL}'`, `'{"a b", c}'`.

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;

/// The list that a literal of one dimension means; none if it is not one.
pub(super) fn array_literal(text: &str, item: &DataType) -> Option<ScalarValue> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut values = Vec::new();
    for element in elements(inner)? {
        let value = ScalarValue::Utf8(element);
        values.push(value.cast_to(item).ok()?);
    }
    Some(ScalarValue::List(ScalarValue::new_list(&values, item, true)))
}

/// The elements' texts of `{1,2}`; none for NULL.
pub(super) fn elements_of(text: &str) -> Option<Vec<Option<String>>> {
    elements(text.trim().strip_prefix('{')?.strip_suffix('}')?)
}

/// The elements' texts; none for NULL.
fn elements(text: &str) -> Option<Vec<Option<String>>> {
    let mut found = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = chars.peek() else {
            // A trailing comma has no element after it.
            return found.is_empty().then_some(found);
        };
        let mut element = String::new();
        let quoted = *first == '"';
        if quoted {
            chars.next();
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => element.push(chars.next()?),
                    c => element.push(c),
                }
            }
            while chars.next_if(|c| c.is_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '{' | '}' | '"' => return None,
                    '\\' => element.push(chars.next()?),
                    c => element.push(c),
                }
            }
            element.truncate(element.trim_end().len());
        }
        let null = !quoted && element.eq_ignore_ascii_case("null");
        found.push((!null).then_some(element));
        match chars.next() {
            None => return Some(found),
            Some(',') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_read_as_postgres_does() {
        let read = |text: &str| {
            elements(text).map(|e| e.into_iter().map(|e| e.unwrap_or("∅".into())).collect::<Vec<_>>())
        };
        assert_eq!(read(""), Some(vec![]));
        assert_eq!(read(" 1, 2 ,NULL"), Some(vec!["1".into(), "2".into(), "∅".into()]));
        assert_eq!(
            read(r#""a b",c\,d,"nu\"ll","null""#),
            Some(vec!["a b".into(), "c,d".into(), "nu\"ll".into(), "null".into()])
        );
        assert_eq!(read("1,"), None);
        assert_eq!(read("{1}"), None);
        let list = array_literal("{1,NULL}", &DataType::Int32).expect("a list");
        assert_eq!(list.to_string(), "[1, ]");
        assert!(array_literal("{x}", &DataType::Int32).is_none());
        assert!(array_literal("x", &DataType::Utf8).is_none());
    }
}

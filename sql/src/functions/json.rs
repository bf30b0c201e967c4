//! jsonb's normal form: keys in PostgreSQL's order (shorter first, then by bytes), the last of equal
//! keys, one space after `:` and `,`.

use serde_json::Value;

/// The normal form of a JSON text; `None` if it is none.
pub fn normalized(text: &str) -> Option<String> {
    let value: Value = serde_json::from_str(text).ok()?;
    let mut out = String::with_capacity(text.len());
    write(&value, &mut out);
    Some(out)
}

/// Appends a value in its normal form.
pub fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            out.push('{');
            for (i, (name, value)) in fields.into_iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_and_the_last_wins() {
        let text = normalized(r#" {"bb":1,"a":[1,2.50,{}],"a":[true,null,"x\ny"]} "#);
        assert_eq!(text.as_deref(), Some(r#"{"a": [true, null, "x\ny"], "bb": 1}"#));
        assert_eq!(normalized("{"), None);
        assert_eq!(normalized("3").as_deref(), Some("3"));
    }
}

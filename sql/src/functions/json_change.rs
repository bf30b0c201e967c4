//! jsonb made of jsonb: `||`, `-`, `#-`, `jsonb_set` and its kin, and containment.

use super::error::failure;
use super::json_value::Json;
use datafusion_common::Result;
use weir_catalog::SqlState;

/// `a || b`: members of both, elements of both; anything else stands for an array of itself.
pub(super) fn concatenated(a: Json, b: Json) -> Json {
    match (a, b) {
        (Json::Object(mut a), Json::Object(b)) => {
            a.extend(b);
            Json::object(a)
        }
        (a, b) => {
            let mut items = into_items(a);
            items.extend(into_items(b));
            Json::Array(items)
        }
    }
}

fn into_items(value: Json) -> Vec<Json> {
    match value {
        Json::Array(items) => items,
        other => vec![other],
    }
}

fn refused(message: &str) -> datafusion_common::DataFusionError {
    failure(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// `value - name`: without the member, or the elements, of this name.
pub(super) fn without_names(value: Json, names: &[&str]) -> Result<Json> {
    match value {
        Json::Object(mut fields) => {
            fields.retain(|(name, _)| !names.contains(&name.as_str()));
            Ok(Json::Object(fields))
        }
        Json::Array(mut items) => {
            items.retain(|item| !matches!(item, Json::Text(text) if names.contains(&text.as_str())));
            Ok(Json::Array(items))
        }
        _ => Err(refused("cannot delete from scalar")),
    }
}

/// `value - n`: without the element of this number, from the end if it is negative.
pub(super) fn without_element(value: Json, index: i64) -> Result<Json> {
    match value {
        Json::Array(mut items) => {
            if let Some(at) = place(&items, index) {
                items.remove(at);
            }
            Ok(Json::Array(items))
        }
        Json::Object(_) => Err(refused("cannot delete from object using integer index")),
        _ => Err(refused("cannot delete from scalar")),
    }
}

fn place(items: &[Json], index: i64) -> Option<usize> {
    let from_end = || items.len().checked_sub(index.unsigned_abs() as usize);
    let at = if index < 0 { from_end()? } else { usize::try_from(index).ok()? };
    (at < items.len()).then_some(at)
}

fn step_number(step: &str, position: usize) -> Result<i64> {
    step.parse().map_err(|_| {
        let message = format!("path element at position {position} is not an integer: \"{step}\"");
        failure(SqlState::INVALID_TEXT_REPRESENTATION, message)
    })
}

/// What is done at the end of a path.
pub(super) enum Change {
    /// `#-`
    Remove,
    /// `jsonb_set`; whether what is missing is created.
    Set(Json, bool),
    /// `jsonb_insert`; whether behind the element.
    Insert(Json, bool),
}

/// `value` changed at the end of a path. A path that leads nowhere changes nothing.
pub(super) fn changed(mut value: Json, path: &[&str], change: &Change) -> Result<Json> {
    if !matches!(value, Json::Object(_) | Json::Array(_)) {
        let what = if matches!(change, Change::Remove) { "delete" } else { "set" };
        return Err(refused(&format!("cannot {what} path in scalar")));
    }
    if !path.is_empty() {
        change_at(&mut value, path, 1, change)?;
    }
    Ok(value)
}

fn change_at(value: &mut Json, path: &[&str], position: usize, change: &Change) -> Result<()> {
    let [step, rest @ ..] = path else { return Ok(()) };
    match value {
        Json::Object(fields) => {
            let at = fields.iter().position(|(name, _)| name == step);
            match (at, rest.is_empty()) {
                (Some(at), false) => change_at(&mut fields[at].1, rest, position + 1, change)?,
                (None, false) => {}
                (at, true) => change_member(fields, step, at, change)?,
            }
        }
        Json::Array(items) => {
            let index = step_number(step, position)?;
            let at = place(items, index);
            match (at, rest.is_empty()) {
                (Some(at), false) => change_at(&mut items[at], rest, position + 1, change)?,
                (None, false) => {}
                (at, true) => change_element(items, index, at, change),
            }
        }
        _ => {}
    }
    Ok(())
}

fn change_member(
    fields: &mut Vec<(String, Json)>,
    name: &str,
    at: Option<usize>,
    change: &Change,
) -> Result<()> {
    match (change, at) {
        (Change::Remove, Some(at)) => drop(fields.remove(at)),
        (Change::Set(new, _), Some(at)) => fields[at].1 = new.clone(),
        (Change::Set(new, true) | Change::Insert(new, _), None) => {
            fields.push((name.to_owned(), new.clone()));
            *fields = Json::sorted(std::mem::take(fields));
        }
        (Change::Insert(..), Some(_)) => {
            return Err(refused("cannot replace existing key"));
        }
        (Change::Remove | Change::Set(_, false), None) => {}
    }
    Ok(())
}

fn change_element(items: &mut Vec<Json>, index: i64, at: Option<usize>, change: &Change) {
    let end = if index < 0 { 0 } else { items.len() };
    match (change, at) {
        (Change::Remove, Some(at)) => drop(items.remove(at)),
        (Change::Set(new, _), Some(at)) => items[at] = new.clone(),
        (Change::Insert(new, after), Some(at)) => items.insert(at + usize::from(*after), new.clone()),
        (Change::Set(new, true) | Change::Insert(new, _), None) => items.insert(end, new.clone()),
        (Change::Remove | Change::Set(_, false), None) => {}
    }
}

/// Without the members of objects that are null.
pub(super) fn without_nulls(value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| *value != Json::Null);
            Json::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Json::Array(items) => Json::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// `a @> b`.
pub(super) fn contains(a: &Json, b: &Json) -> bool {
    match (a, b) {
        // An array contains what is one of its elements, but only at the top.
        (Json::Array(_), Json::Array(_) | Json::Object(_)) => contains_within(a, b),
        (Json::Array(items), scalar) => items.iter().any(|item| same(item, scalar)),
        _ => contains_within(a, b),
    }
}

fn contains_within(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Object(_), Json::Object(wanted)) => {
            wanted.iter().all(|(name, value)| a.get(name).is_some_and(|found| contains_within(found, value)))
        }
        (Json::Array(items), Json::Array(wanted)) => {
            wanted.iter().all(|value| items.iter().any(|item| contains_within(item, value)))
        }
        (a, b) => same(a, b),
    }
}

/// Whether two scalars are the same: numbers by their value.
fn same(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => without_scale(a) == without_scale(b),
        (Json::Object(_) | Json::Array(_), _) => false,
        (a, b) => a == b,
    }
}

fn without_scale(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// `value ? name`.
pub(super) fn has_name(value: &Json, name: &str) -> bool {
    let is_name = |item: &Json| matches!(item, Json::Text(text) if text == name);
    match value {
        Json::Object(_) => value.get(name).is_some(),
        Json::Array(items) => items.iter().any(is_name),
        scalar => is_name(scalar),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).expect("JSON")
    }

    #[test]
    fn containment_is_of_structure() {
        let holds = |a: &str, b: &str| contains(&json(a), &json(b));
        assert!(holds("[1, 2, [1, 3]]", "[[1]]"));
        assert!(!holds("[1, 2, [1, 3]]", "[1, 3]"));
        assert!(holds(r#"["a", "b"]"#, r#""a""#));
        assert!(!holds(r#""a""#, r#"["a"]"#));
        assert!(holds(r#"{"a": {"b": 1.0, "c": 2}}"#, r#"{"a": {"b": 1}}"#));
        assert!(!holds(r#"{"a": [1]}"#, r#"{"a": 1}"#));
        assert!(holds("[1, 1]", "[1]") && holds("[1]", "[1, 1]"));
    }

    #[test]
    fn changes_at_paths() {
        let set = |value: &str, path: &[&str], new: &str, create: bool| {
            changed(json(value), path, &Change::Set(json(new), create)).expect("a container").shown()
        };
        assert_eq!(set(r#"{"a": [1, 2]}"#, &["a", "-1"], "9", true), r#"{"a": [1, 9]}"#);
        assert_eq!(set(r#"{"bb": 1}"#, &["a"], "2", true), r#"{"a": 2, "bb": 1}"#);
        assert_eq!(set(r#"{"bb": 1}"#, &["a"], "2", false), r#"{"bb": 1}"#);
        assert_eq!(set("[1]", &["-5"], "0", true), "[0, 1]");
        assert_eq!(set(r#"{"a": 1}"#, &["a", "b"], "2", true), r#"{"a": 1}"#);
        assert!(changed(json("1"), &["a"], &Change::Remove).is_err());
        assert!(changed(json("[1]"), &["a"], &Change::Remove).is_err());
    }
}

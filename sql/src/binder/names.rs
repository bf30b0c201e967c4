//! Names that are not found or mean something else, and the names that were perhaps meant.

use super::BindContext;
use crate::error::SqlError;
use weir_catalog::{Object, ObjectKind, ObjectName, SqlState};

/// The candidate that differs least from `name`, if it differs little.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let limit = match length {
        0..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| {
            *distance <= limit && *distance < length.max(candidate.chars().count())
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters to insert, remove, replace or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.to_lowercase().chars().collect(), b.to_lowercase().chars().collect());
    if a.len().abs_diff(b.len()) > 3 {
        return usize::MAX;
    }
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// `relation "x" does not exist`, with the nearest name.
pub(super) fn not_found(context: &BindContext, written: &str, name: &str) -> SqlError {
    with_nearest(context, name, &[], format!("relation \"{written}\" does not exist"))
}

/// `table "x" does not exist`, as DROP says it, with the nearest name of that kind.
pub(super) fn kind_not_found(context: &BindContext, kind: ObjectKind, name: &ObjectName) -> SqlError {
    let mut error = with_nearest(context, &name.name, &[kind], missing(kind, name));
    if kind == ObjectKind::Index {
        error.state = SqlState::UNDEFINED_OBJECT;
    }
    error
}

/// `table "x" does not exist`.
pub(super) fn missing(kind: ObjectKind, name: &ObjectName) -> String {
    format!("{kind} \"{}\" does not exist", plain(name))
}

fn with_nearest(context: &BindContext, name: &str, kinds: &[ObjectKind], message: String) -> SqlError {
    let known = context
        .catalog
        .objects()
        .filter(|o| match kinds {
            [] => !matches!(o.kind(), ObjectKind::Index | ObjectKind::Sink),
            kinds => kinds.contains(&o.kind()),
        })
        .map(|o| o.name.name.as_str());
    let error = SqlError::new(SqlState::UNDEFINED_TABLE, message);
    match nearest(name, known) {
        Some(nearest) => {
            let kind = match kinds {
                [kind] => kind.to_string(),
                _ => "relation".to_owned(),
            };
            error.hint(format!("Perhaps you meant the {kind} \"{nearest}\"."))
        }
        None => error,
    }
}

/// A name without quotes, as PostgreSQL's messages have it.
pub(super) fn plain(name: &ObjectName) -> String {
    match name.schema.as_str() {
        "" | weir_catalog::name::DEFAULT_SCHEMA => name.name.clone(),
        schema => format!("{schema}.{}", name.name),
    }
}

/// `cannot insert into source "s"`: the object is of a kind that can't do that.
pub(super) fn wrong_kind(object: &Object, verb: &str, hint: &str) -> SqlError {
    SqlError::new(
        SqlState::WRONG_OBJECT_TYPE,
        format!("cannot {verb} {} \"{}\"", object.kind(), plain(&object.name)),
    )
    .hint(hint)
}

/// `"x" is not a table`, and what to use instead.
pub(super) fn not_a(object: &Object, wanted: ObjectKind, verb: &str) -> SqlError {
    let article = if wanted == ObjectKind::Index { "an" } else { "a" };
    SqlError::new(
        SqlState::WRONG_OBJECT_TYPE,
        format!("\"{}\" is not {article} {wanted}", plain(&object.name)),
    )
    .hint(format!("Use {verb} {} {}.", object.kind().to_string().to_uppercase(), object.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["auction", "bid", "person"];
        let near = |name| nearest(name, names.iter().copied());
        assert_eq!(near("auctoin"), Some("auction"));
        assert_eq!(near("bids"), Some("bid"));
        assert_eq!(near("Person"), Some("person"));
        assert_eq!(near("xyz"), None);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}

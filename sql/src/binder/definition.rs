//! The text that makes an object: as it was typed, changed where the object has changed since.

use crate::parser::{name_place, source_place, written};
use weir_catalog::name::quote_identifier;
use weir_catalog::relation::{MaterializedView, OnConflict, RowKey, Table, View};
use weir_catalog::source::LateRows;
use weir_catalog::{Column, Object, ObjectBody, ObjectName};

/// The definition under another name.
pub(super) fn with_name(object: &Object, name: &ObjectName) -> String {
    let mut text = object.definition.clone();
    if let Some(place) = name_place(&text) {
        text.replace_range(place, &shown(name));
    }
    text
}

/// The definition of a view or sink whose query was `old` and is `new`.
pub(super) fn with_query(object: &Object, old: &str, new: &str) -> String {
    let text = &object.definition;
    if let Some(at) = text.rfind(old) {
        return format!("{}{new}{}", &text[..at], &text[at + old.len()..]);
    }
    match (&object.body, source_place(text)) {
        (ObjectBody::Sink(_), Some(place)) => {
            format!("{}AS {new}{}", &text[..place.start], &text[place.end..])
        }
        _ => of(object).unwrap_or_else(|| text.clone()),
    }
}

/// The definition that an object's parts tell; `None` for kinds of which they don't tell all.
pub(super) fn of(object: &Object) -> Option<String> {
    let name = shown(&object.name);
    match &object.body {
        ObjectBody::Table(table) => Some(table_text(&name, table)),
        ObjectBody::MaterializedView(view) => {
            let MaterializedView { columns, query, emit_on_close, .. } = view;
            let end = if *emit_on_close { " EMIT ON WINDOW CLOSE" } else { "" };
            Some(format!("CREATE MATERIALIZED VIEW {name} ({}) AS {query}{end}", names(columns)))
        }
        ObjectBody::View(View { columns, query, .. }) => {
            Some(format!("CREATE VIEW {name} ({}) AS {query}", names(columns)))
        }
        ObjectBody::Source(_) | ObjectBody::Index(_) | ObjectBody::Sink(_) => None,
    }
}

fn shown(name: &ObjectName) -> String {
    let is_default = name.schema == weir_catalog::name::DEFAULT_SCHEMA;
    written(&ObjectName::new(if is_default { "" } else { name.schema.as_str() }, name.name.as_str()))
}

fn names(columns: &[Column]) -> String {
    columns.iter().map(|c| quote_identifier(&c.name)).collect::<Vec<_>>().join(", ")
}

fn table_text(name: &str, table: &Table) -> String {
    let key = match &table.key {
        RowKey::Columns(key) => key.as_slice(),
        RowKey::WholeRow => &[],
    };
    let column = |(i, c): (usize, &Column)| {
        let not_null = if c.nullable || key.contains(&i) { "" } else { " NOT NULL" };
        let default = c.default.as_ref().map_or_else(String::new, |default| format!(" DEFAULT {default}"));
        format!("{} {}{not_null}{default}", quote_identifier(&c.name), c.sql_type)
    };
    let mut parts: Vec<String> = table.columns.iter().enumerate().map(column).collect();
    if !key.is_empty() {
        let columns: Vec<Column> = key.iter().map(|i| table.columns[*i].clone()).collect();
        parts.push(format!("PRIMARY KEY ({})", names(&columns)));
    }
    let mut end = String::new();
    if let Some(watermark) = &table.watermark {
        let column = quote_identifier(&table.columns[watermark.column].name);
        let delay = watermark.delay_us;
        parts.push(format!(
            "WATERMARK FOR {column} AS {column} - INTERVAL '{}.{:06} seconds'",
            delay / 1_000_000,
            delay % 1_000_000
        ));
        if watermark.late_rows == LateRows::Skip {
            end.push_str(" WITH (late_rows = 'skip')");
        }
    }
    let append_only = if table.append_only { " APPEND ONLY" } else { "" };
    let conflict = match table.on_conflict {
        OnConflict::Error => "",
        OnConflict::DoUpdateFull => " ON CONFLICT DO UPDATE FULL",
        OnConflict::DoNothing => " ON CONFLICT DO NOTHING",
    };
    format!("CREATE TABLE {name} ({}){append_only}{conflict}{end}", parts.join(", "))
}

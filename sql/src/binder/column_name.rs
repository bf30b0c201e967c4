//! PostgreSQL's names for the columns of a SELECT that have none of their own.

use crate::parser::fold;
use sqlparser::ast::{self, Expr, Ident, ObjectNamePart, Select, SelectItem, Value};
use std::collections::HashSet;

/// Stands between a column's name and a number where names would repeat. Taken off again when the
/// query is planned.
pub(super) const MARK: char = '\u{1}';

/// Names the items of a SELECT as PostgreSQL would. An item that repeats a name, which DataFusion
/// does not allow, is set apart by [`MARK`]; with `set_apart` every named one beside `*` is.
pub(super) fn name_items(select: &mut Select, set_apart: bool) {
    let mut taken = Taken::default();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(_) => taken.all = true,
            SelectItem::QualifiedWildcard(ast::SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                taken.tables.insert(name.to_string());
            }
            _ => {}
        }
    }
    for (i, item) in select.projection.iter_mut().enumerate() {
        let (expr, name, column) = match item {
            SelectItem::UnnamedExpr(expr) => {
                let name = column_name(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name);
                let column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                (expr, name, column)
            }
            SelectItem::ExprWithAlias { expr, alias } => (expr, fold(alias), false),
            _ => continue,
        };
        let beside_all = set_apart && (taken.all || !taken.tables.is_empty());
        let repeated = taken.repeats(expr, &name, column) || (beside_all && !column);
        if column && !repeated {
            continue;
        }
        let alias = if repeated { format!("{name}{MARK}{i}") } else { name };
        let expr = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias) };
    }
}

/// The names of a SELECT's items, if all are named there: none of `*`.
pub(super) fn item_names(select: &Select) -> Option<Vec<String>> {
    let name = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => {
            Some(column_name(expr).map_or_else(|| "?column?".to_owned(), |(name, _)| name))
        }
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    };
    select.projection.iter().map(name).collect()
}

/// The names of a SELECT's items so far.
#[derive(Default)]
struct Taken {
    /// `*` is among the items: every column is.
    all: bool,
    /// The tables of `t.*`.
    tables: HashSet<String>,
    names: HashSet<String>,
    unqualified: HashSet<String>,
    columns: HashSet<String>,
}

impl Taken {
    /// Whether an item's name would be there twice, now that it is added.
    fn repeats(&mut self, expr: &Expr, name: &str, column: bool) -> bool {
        let repeated = match expr {
            // Columns of different tables may have the same name.
            Expr::CompoundIdentifier(parts) if column => {
                let table: Vec<String> = parts[..parts.len() - 1].iter().map(Ident::to_string).collect();
                let again = !self.columns.insert(expr.to_string());
                self.all || self.tables.contains(&table.join(".")) || self.unqualified.contains(name) || again
            }
            Expr::Identifier(_) if column => self.all || self.names.contains(name),
            _ => self.names.contains(name),
        };
        self.names.insert(name.to_owned());
        if !repeated && !matches!(expr, Expr::CompoundIdentifier(_)) {
            self.unqualified.insert(name.to_owned());
        }
        repeated
    }
}

/// PostgreSQL's name of a column without alias, and how sure of it a surrounding expression may be
/// (1: a type or keyword, which an outer name replaces; 2: a column or function).
fn column_name(expr: &Expr) -> Option<(String, u8)> {
    let sure = |name: &str| Some((name.to_owned(), 2));
    match expr {
        Expr::Identifier(ident) => Some((fold(ident), 2)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|p| (fold(p), 2)),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => column_name(inner),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(ast::AccessExpr::Dot(Expr::Identifier(field))) => Some((fold(field), 2)),
            _ => column_name(root),
        },
        Expr::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => Some((fold(ident), 2)),
            _ => None,
        },
        Expr::Cast { expr, data_type, .. } => match column_name(expr) {
            Some((name, 2)) => Some((name, 2)),
            _ => Some((short_type_name(data_type), 1)),
        },
        Expr::TypedString(typed) => Some((short_type_name(&typed.data_type), 1)),
        Expr::Interval(_) => Some(("interval".to_owned(), 1)),
        Expr::Case { else_result, .. } => match else_result.as_ref().and_then(|e| column_name(e)) {
            Some((name, 2)) => Some((name, 2)),
            _ => Some(("case".to_owned(), 1)),
        },
        Expr::Subquery(query) => match query.body.as_ref() {
            ast::SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr)) => column_name(expr).map(|(name, _)| (name, 2)),
                Some(SelectItem::ExprWithAlias { alias, .. }) => Some((fold(alias), 2)),
                _ => None,
            },
            _ => None,
        },
        Expr::Exists { negated: false, .. } => sure("exists"),
        Expr::Array(_) => sure("array"),
        Expr::Tuple(_) | Expr::Struct { .. } => sure("row"),
        Expr::Extract { .. } => sure("extract"),
        Expr::Position { .. } => sure("position"),
        Expr::Substring { .. } => sure("substring"),
        Expr::Overlay { .. } => sure("overlay"),
        Expr::Trim { trim_where, .. } => sure(match trim_where {
            Some(ast::TrimWhereField::Leading) => "ltrim",
            Some(ast::TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::Ceil { .. } => sure("ceil"),
        Expr::Floor { .. } => sure("floor"),
        Expr::AtTimeZone { .. } => sure("timezone"),
        Expr::Value(value) => match value.value {
            Value::Boolean(_) => Some(("bool".to_owned(), 1)),
            _ => None,
        },
        _ => None,
    }
}

/// What PostgreSQL calls a type inside: `int4`, `timestamptz`.
fn short_type_name(data_type: &ast::DataType) -> String {
    let long =
        super::types::sql_type_name(data_type).unwrap_or_else(|_| data_type.to_string().to_lowercase());
    let base = weir_catalog::column::base_type(&long);
    match base.split('[').next().unwrap_or_default().trim() {
        "smallint" => "int2",
        "integer" => "int4",
        "bigint" => "int8",
        "real" => "float4",
        "double precision" => "float8",
        "boolean" => "bool",
        "character varying" => "varchar",
        "character" => "bpchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "time without time zone" => "time",
        other => other,
    }
    .to_owned()
}

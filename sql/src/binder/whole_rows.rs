//! Whole rows by the name of their table: `to_jsonb(t)`, `count(t.*)`, `SELECT t FROM t`.
//!
//! What DataFusion reads is a record of the table's columns, so those must be known: of a relation
//! of the catalog, of a subquery whose items have names, of a function in FROM.

use super::BindContext;
use super::column_name::item_names;
use super::own_exprs;
use super::rewrite::call;
use crate::functions::json_build;
use crate::parser::{fold, name_of};
use sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Select, SelectItem,
    TableFactor, Value,
};
use std::collections::{HashMap, HashSet};

/// Replaces whole rows in a SELECT's expressions.
pub(super) fn rewrite_select(select: &mut Select, context: &BindContext) {
    let mut tables = HashMap::new();
    let mut columns = HashSet::new();
    for from in &select.from {
        for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            let Some((alias, names)) = named_columns(factor, context) else { return };
            columns.extend(names.iter().cloned());
            tables.insert(alias, names);
        }
    }
    // A column of that name is meant before a table.
    tables.retain(|alias, _| !columns.contains(alias));
    if tables.is_empty() {
        return;
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(table)) = item
            && tables.contains_key(&fold(table))
        {
            *item = SelectItem::ExprWithAlias { expr: Expr::Identifier(table.clone()), alias: table.clone() };
        }
    }
    let rows = WholeRows { tables };
    own_exprs::leaves_first(&mut select.projection, |expr| rows.rewrite(expr));
    own_exprs::leaves_first(&mut select.selection, |expr| rows.rewrite(expr));
    own_exprs::leaves_first(&mut select.having, |expr| rows.rewrite(expr));
}

/// A relation's name and its columns', if they are known.
pub(super) fn named_columns(factor: &TableFactor, context: &BindContext) -> Option<(String, Vec<String>)> {
    let renamed = |alias: &ast::TableAlias, mut names: Vec<String>| {
        for (name, column) in names.iter_mut().zip(&alias.columns) {
            *name = fold(&column.name);
        }
        (fold(&alias.name), names)
    };
    match factor {
        TableFactor::Table { name, alias, args: None, .. } => {
            let name = name_of(name).ok()?;
            let names = context.resolve(&name)?.columns().iter().map(|c| c.name.clone()).collect();
            Some(match alias {
                Some(alias) => renamed(alias, names),
                None => (name.name, names),
            })
        }
        TableFactor::Derived { subquery, alias: Some(alias), .. } => {
            Some(renamed(alias, query_columns(subquery)?))
        }
        TableFactor::UNNEST { alias: Some(alias), .. } if !alias.columns.is_empty() => {
            Some((fold(&alias.name), alias.columns.iter().map(|c| fold(&c.name)).collect()))
        }
        _ => None,
    }
}

fn query_columns(query: &Query) -> Option<Vec<String>> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            ast::SetExpr::Select(select) => return item_names(select),
            ast::SetExpr::Query(inner) => return query_columns(inner),
            ast::SetExpr::SetOperation { left, .. } => body = left,
            ast::SetExpr::Values(values) => {
                let first = values.rows.first()?;
                return Some((1..=first.len()).map(|i| format!("column{i}")).collect());
            }
            _ => return None,
        }
    }
}

struct WholeRows {
    tables: HashMap<String, Vec<String>>,
}

impl WholeRows {
    /// The record of all columns of a table.
    fn record(&self, table: &Ident) -> Option<Expr> {
        let names = self.tables.get(&fold(table))?;
        let quoted = |name: &String| Ident::with_quote('"', name);
        let members = names.iter().flat_map(|name| {
            let label = Expr::Value(Value::SingleQuotedString(name.clone()).with_empty_span());
            [label, Expr::CompoundIdentifier(vec![table.clone(), quoted(name)])]
        });
        Some(call(json_build::RECORD, members.collect()))
    }

    /// Puts the record in the place of the table's name, or of all its columns as an argument.
    fn rewrite(&self, expr: &mut Expr) {
        match expr {
            Expr::Identifier(table) => {
                if let Some(record) = self.record(table) {
                    *expr = record;
                }
            }
            Expr::Function(function) => {
                let FunctionArguments::List(list) = &mut function.args else { return };
                for arg in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) = arg
                        && let [ast::ObjectNamePart::Identifier(table)] = name.0.as_slice()
                        && let Some(record) = self.record(table)
                    {
                        *arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(record));
                    }
                }
            }
            _ => {}
        }
    }
}

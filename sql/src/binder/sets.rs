//! Functions that give rows, in FROM and among the items of a SELECT: `unnest` of lists.
//!
//! ```text
//!   FROM generate_series(1, 3) g          UNNEST(generate_series(1, 3)) g (g)
//!   FROM jsonb_each(j) e                  UNNEST(jsonb_object_keys(j), …values(j)) e (key, value)
//!   FROM unnest(a) WITH ORDINALITY u      UNNEST(a, 1 … length of a) u (u, ordinality)
//!   SELECT jsonb_array_elements(j)        SELECT unnest(jsonb_array_elements(j))
//! ```

use super::column_name::MARK;
use super::rewrite::{call, cast_to};
use crate::functions::{json_part, json_rows, regexp};
use crate::parser::fold;
use sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, Query, Select,
    TableFactor, Value, VisitMut, VisitorMut,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// The lists that a function's rows are the elements of, and the names of their columns where the
/// function gives them.
pub(super) struct Lists {
    pub(super) exprs: Vec<Expr>,
    columns: &'static [&'static str],
}

/// The lists of a call, if its function gives rows.
pub(super) fn lists_of(function: &str, args: Vec<Expr>) -> Option<Lists> {
    let one = |name: &str, args, columns| Some(Lists { exprs: vec![call(name, args)], columns });
    let each = |names: &str, values: &str, args: Vec<Expr>| {
        let exprs = vec![call(names, args.clone()), call(values, args)];
        Some(Lists { exprs, columns: &["key", "value"] })
    };
    match function {
        "unnest" => Some(Lists { exprs: args, columns: &[] }),
        "generate_series" => one("generate_series", series_of_times(args), &[]),
        "jsonb_array_elements"
        | "json_array_elements"
        | "jsonb_array_elements_text"
        | "json_array_elements_text" => one(function, args, &["value"]),
        "jsonb_object_keys" | "json_object_keys" => one(function, args, &[]),
        "jsonb_each" => each("jsonb_object_keys", json_rows::EACH_VALUES, args),
        "json_each" => each("json_object_keys", json_part::EACH_VALUES, args),
        "jsonb_each_text" => each("jsonb_object_keys", json_rows::EACH_TEXTS, args),
        "json_each_text" => each("json_object_keys", json_part::EACH_TEXTS, args),
        "regexp_split_to_table" => one("regexp_split_to_array", args, &[]),
        "regexp_matches" => one(regexp::REGEXP_MATCHES, args, &[]),
        "_pg_expandarray" => one("_pg_expandarray", args, &[]),
        "string_to_table" => one("string_to_array", args, &[]),
        "generate_subscripts" => match args.as_slice() {
            [_, _] => {
                let last = call("array_length", args);
                one("generate_series", vec![number("1"), last], &[])
            }
            _ => None,
        },
        _ => None,
    }
}

/// The arguments of a series of times with their types: the step an interval, dates as timestamps with
/// time zone, and a quoted bound like the other one.
fn series_of_times(mut args: Vec<Expr>) -> Vec<Expr> {
    use ast::DataType::{Date, Interval, Timestamp};
    let type_of = |expr: &Expr| match expr {
        Expr::Cast { data_type, .. } => Some(data_type.clone()),
        Expr::TypedString(typed) => Some(typed.data_type.clone()),
        Expr::Interval(_) => Some(Interval { fields: None, precision: None }),
        _ => None,
    };
    let quoted = |expr: &Expr| match expr {
        Expr::Value(value) => matches!(value.value, Value::SingleQuotedString(_)),
        _ => false,
    };
    let [start, stop, step] = args.as_mut_slice() else { return args };
    if !quoted(step) && !matches!(type_of(step), Some(Interval { .. })) {
        return args;
    }
    let of_bounds = type_of(start).or_else(|| type_of(stop));
    let zoned = Timestamp(None, ast::TimezoneInfo::WithTimeZone);
    let wanted = match of_bounds {
        Some(time @ Timestamp(..)) => Some(time),
        Some(Date) => Some(zoned),
        _ => None,
    };
    for bound in [start, stop] {
        if let Some(wanted) = &wanted {
            let given = std::mem::replace(bound, Expr::Value(Value::Null.with_empty_span()));
            *bound = cast_to(given, wanted.clone());
        }
    }
    if quoted(step) {
        let given = std::mem::replace(step, Expr::Value(Value::Null.with_empty_span()));
        *step = cast_to(given, Interval { fields: None, precision: None });
    }
    args
}

fn number(text: &str) -> Expr {
    Expr::Value(Value::Number(text.to_owned(), false).with_empty_span())
}

/// The arguments of a call, if they are all plain expressions.
fn arguments(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    args.iter().map(plain).collect()
}

/// A function in FROM as an UNNEST.
pub(super) fn rewrite_factor(factor: &mut TableFactor) {
    let changed = match factor {
        TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
            let Some(ObjectNamePart::Identifier(ident)) = name.0.last() else { return };
            let function = fold(ident);
            let lists = arguments(&args.args).and_then(|args| lists_of(&function, args));
            lists.map(|lists| unnest(&function, lists, alias.take(), *with_ordinality))
        }
        TableFactor::Function { lateral: true, name, args, alias, with_ordinality } => {
            let Some(ObjectNamePart::Identifier(ident)) = name.0.last() else { return };
            let function = fold(ident);
            let lists = arguments(args).and_then(|args| lists_of(&function, args));
            lists.map(|lists| unnest(&function, lists, alias.take(), *with_ordinality))
        }
        TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. }
            if *with_ordinality || alias.as_ref().is_none_or(|alias| alias.columns.is_empty()) =>
        {
            let lists = Lists { exprs: std::mem::take(array_exprs), columns: &[] };
            Some(unnest("unnest", lists, alias.take(), *with_ordinality))
        }
        _ => None,
    };
    if let Some(changed) = changed.or_else(|| scalar_relation(factor)) {
        *factor = changed;
    }
}

/// A function in FROM that gives one value: `FROM abs(-5) AS a`.
fn scalar_relation(factor: &mut TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } = factor else {
        return None;
    };
    let ObjectNamePart::Identifier(ident) = name.0.last()? else { return None };
    let function = fold(ident);
    if matches!(function.as_str(), "tumble" | "hop" | "session" | "table") || name.0.len() > 2 {
        return None;
    }
    let value = call(&function, arguments(&args.args)?);
    let alias = alias.take().unwrap_or_else(|| table_alias(&function));
    let column = alias.columns.first().map_or_else(|| alias.name.clone(), |column| column.name.clone());
    let mut subquery = crate::parser::parse_query("SELECT 1").ok()?;
    if let ast::SetExpr::Select(select) = subquery.body.as_mut() {
        select.projection = vec![ast::SelectItem::ExprWithAlias { expr: value, alias: column }];
    }
    Some(TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None })
}

fn unnest(
    function: &str,
    mut lists: Lists,
    alias: Option<ast::TableAlias>,
    with_ordinality: bool,
) -> TableFactor {
    let mut alias = alias.unwrap_or_else(|| table_alias(function));
    let single = lists.exprs.len() == 1;
    let defaults = lists.exprs.iter().enumerate().map(|(i, _)| match lists.columns.get(i) {
        Some(name) => Some(Ident::new(*name)),
        // The alias of a function names its column too.
        None => single.then(|| alias.name.clone()),
    });
    let mut names: Vec<Option<Ident>> = defaults.collect();
    if with_ordinality {
        lists.exprs.push(ordinals(&lists.exprs));
        names.push(Some(Ident::new("ordinality")));
    }
    let missing = names.into_iter().skip(alias.columns.len()).collect::<Option<Vec<Ident>>>();
    for name in missing.into_iter().flatten() {
        alias.columns.push(ast::TableAliasColumnDef { name, data_type: None });
    }
    TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: lists.exprs,
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    }
}

/// The numbers of the longest list's elements, as bigint.
fn ordinals(lists: &[Expr]) -> Expr {
    let length = |list: &Expr| call("cardinality", vec![list.clone()]);
    let longest = match lists {
        [one] => length(one),
        many => call("greatest", many.iter().map(length).collect()),
    };
    let bigint = |expr| cast_to(expr, ast::DataType::BigInt(None));
    call("generate_series", vec![bigint(number("1")), bigint(longest)])
}

fn table_alias(name: &str) -> ast::TableAlias {
    ast::TableAlias { explicit: true, name: Ident::new(name), columns: Vec::new(), at: None }
}

/// Rewrites the functions in a SELECT's FROM and among its items. The alias of a function with a
/// named column stands for that column: `jsonb_array_elements(j) e` for `e.value`.
pub(super) fn rewrite_select(select: &mut Select) {
    let (mut named, mut jsons) = (HashMap::new(), HashMap::new());
    for from in &mut select.from {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            rewrite_factor(factor);
            if let TableFactor::UNNEST { alias: Some(alias), array_exprs, .. } = factor
                && let [_] = array_exprs.as_slice()
                && let [column] = alias.columns.as_slice()
                && column.name != alias.name
            {
                named.insert(fold(&alias.name), column.name.clone());
            }
            if let TableFactor::UNNEST { alias: Some(alias), array_exprs, .. } = factor
                && let Some((at, data_type)) = json_column(array_exprs)
                && let Some(column) = alias.columns.get(at)
            {
                jsons.insert(fold(&column.name), (alias.name.clone(), data_type));
            }
        }
    }
    let mut taken = HashSet::new();
    for item in &mut select.projection {
        let changes = |column: &str| named.contains_key(column) || jsons.contains_key(column);
        name_column(item, changes, &mut taken);
    }
    if !named.is_empty() {
        // Its break is never taken.
        let _ = select.visit(&mut Renamer { named });
    }
    if !jsons.is_empty() {
        let mut types = JsonColumns { columns: jsons };
        let _ = select.projection.visit(&mut types);
        let _ = select.selection.visit(&mut types);
        let _ = select.group_by.visit(&mut types);
        let _ = select.having.visit(&mut types);
    }
    let _ = select.projection.visit(&mut ItemRows::default());
}

/// An item that is a column whose expression will be another one keeps the column's name, set apart
/// from those before it.
fn name_column(item: &mut ast::SelectItem, changes: impl Fn(&str) -> bool, taken: &mut HashSet<String>) {
    let ast::SelectItem::UnnamedExpr(expr) = item else { return };
    let column = match &*expr {
        Expr::Identifier(column) => column.clone(),
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(column) => column.clone(),
            None => return,
        },
        _ => return,
    };
    if changes(&fold(&column)) {
        let expr = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
        let alias = match taken.insert(fold(&column)) {
            true => column,
            false => Ident::with_quote('"', format!("{}{MARK}{}", fold(&column), taken.len())),
        };
        *item = ast::SelectItem::ExprWithAlias { expr, alias };
    }
}

/// Which of the lists has elements that are json or jsonb, and which of them.
fn json_column(lists: &[Expr]) -> Option<(usize, ast::DataType)> {
    let json = |(at, list): (usize, &Expr)| {
        let Expr::Function(function) = list else { return None };
        let data_type = match function.name.to_string().as_str() {
            "jsonb_array_elements" | json_rows::EACH_VALUES => ast::DataType::JSONB,
            "json_array_elements" | json_part::EACH_VALUES => ast::DataType::JSON,
            _ => return None,
        };
        Some((at, data_type))
    };
    lists.iter().enumerate().find_map(json)
}

/// Gives the values out of JSON their type: an element of a list has none of its own.
struct JsonColumns {
    /// The table of each such column, and the column's type.
    columns: HashMap<String, (Ident, ast::DataType)>,
}

impl VisitorMut for JsonColumns {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let found = match &*expr {
            Expr::Identifier(column) => self.columns.get(&fold(column)),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] => self.columns.get(&fold(column)).filter(|(of, _)| fold(of) == fold(table)),
                _ => None,
            },
            _ => None,
        };
        if let Some((_, data_type)) = found {
            let column = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
            *expr = cast_to(column, data_type.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Names the column where only the table is named.
struct Renamer {
    named: HashMap<String, Ident>,
}

impl VisitorMut for Renamer {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr
            && let Some(column) = self.named.get(&fold(ident))
        {
            *expr = Expr::CompoundIdentifier(vec![ident.clone(), column.clone()]);
        }
        ControlFlow::Continue(())
    }
}

/// Puts `unnest` around the list that a function among the items is.
#[derive(Default)]
struct ItemRows {
    subqueries: usize,
    unnests: usize,
}

fn is_unnest(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    matches!(function.name.0.last(), Some(ObjectNamePart::Identifier(ident)) if fold(ident) == "unnest")
}

impl VisitorMut for ItemRows {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.unnests += usize::from(is_unnest(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.unnests -= usize::from(is_unnest(expr));
        if self.subqueries > 0 || self.unnests > 0 {
            return ControlFlow::Continue(());
        }
        let Expr::Function(function) = &*expr else { return ControlFlow::Continue(()) };
        let (Some(ObjectNamePart::Identifier(ident)), FunctionArguments::List(list)) =
            (function.name.0.last(), &function.args)
        else {
            return ControlFlow::Continue(());
        };
        let name = fold(ident);
        let lists = arguments(&list.args).and_then(|args| lists_of(&name, args));
        if name != "unnest"
            && let Some(mut lists) = lists.filter(|lists| lists.exprs.len() == 1)
            && let Some(list) = lists.exprs.pop()
        {
            let json = json_column(std::slice::from_ref(&list));
            let rows = call("unnest", vec![list]);
            *expr = match json {
                Some((_, data_type)) => cast_to(rows, data_type),
                None => rows,
            };
        }
        ControlFlow::Continue(())
    }
}

//! Changes of a query's AST before DataFusion plans it: forms that it does not read, as forms that
//! mean the same and that it does.

use super::{array_query, column_name, places, using};
use crate::error::SqlError;
use crate::parser::fold;
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, UnaryOperator, Value, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Rewrites a query and all in it.
///
/// `set_apart`: items with an alias beside `*` may repeat the name of one of its columns.
pub(super) fn rewrite(query: &mut Query, set_apart: bool) -> Result<(), SqlError> {
    run(query, set_apart)
}

/// Rewrites an expression and all in it.
pub(super) fn rewrite_expr(expr: &mut Expr) -> Result<(), SqlError> {
    run(expr, false)
}

fn run(node: &mut impl VisitMut, set_apart: bool) -> Result<(), SqlError> {
    match node.visit(&mut Rewriter { set_apart, merges: 0 }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewriter {
    set_apart: bool,
    /// How many joins with merged columns were named.
    merges: usize,
}

impl VisitorMut for Rewriter {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if !query.locks.is_empty() {
            query.locks.clear();
        }
        match fetch_to_limit(query).and_then(|()| places::check_limits(query)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &mut ast::TableFactor) -> ControlFlow<SqlError> {
        if let ast::TableFactor::Table { sample: Some(_), .. } = factor {
            return ControlFlow::Break(SqlError::not_supported("TABLESAMPLE"));
        }
        if let ast::TableFactor::NestedJoin { table_with_joins, .. } = factor {
            using::nest_inner(table_with_joins, &mut self.merges);
        }
        rewrite_factor(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        if select.into.is_some() {
            let error = SqlError::not_supported("SELECT INTO").hint("Use INSERT INTO … SELECT.");
            return ControlFlow::Break(error);
        }
        name_positions(select);
        if let Err(error) = places::check_windows(select) {
            return ControlFlow::Break(error);
        }
        using::qualify_grouped(select);
        using::nest_all(select, &mut self.merges);
        column_name::name_items(select, self.set_apart);
        // Its break has no value.
        let _ = select.projection.visit(&mut SeriesRows::default());
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match rewrite_one(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn post_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<SqlError> {
        // database.schema.relation: there is one database in a catalog.
        if relation.0.len() == 3 {
            relation.0.remove(0);
        }
        ControlFlow::Continue(())
    }
}

/// `DISTINCT ON (1)` names the first item.
fn name_positions(select: &mut Select) {
    let Some(ast::Distinct::On(exprs)) = &mut select.distinct else { return };
    for expr in exprs {
        let Expr::Value(value) = &*expr else { continue };
        let Value::Number(number, _) = &value.value else { continue };
        let item = number.parse::<usize>().ok().and_then(|n| select.projection.get(n.checked_sub(1)?));
        if let Some(SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }) = item {
            *expr = item.clone();
        }
    }
}

/// `generate_series(a, b)` among the items of a SELECT is `unnest(generate_series(a, b))`: a row for
/// each element.
#[derive(Default)]
struct SeriesRows {
    subqueries: usize,
    unnests: usize,
}

fn is_call_of(expr: &Expr, name: &str) -> bool {
    let Expr::Function(function) = expr else { return false };
    matches!(function.name.0.last(), Some(ObjectNamePart::Identifier(ident)) if fold(ident) == name)
}

impl VisitorMut for SeriesRows {
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
        self.unnests += usize::from(is_call_of(expr, "unnest"));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.unnests -= usize::from(is_call_of(expr, "unnest"));
        if self.subqueries == 0 && self.unnests == 0 && is_call_of(expr, "generate_series") {
            let series = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
            *expr = call("unnest", vec![series]);
        }
        ControlFlow::Continue(())
    }
}

/// `generate_series(a, b) s` is `unnest(generate_series(a, b)) s`, and the alias of a function in
/// FROM names its column too.
fn rewrite_factor(factor: &mut ast::TableFactor) {
    if let ast::TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } = factor {
        let function = match name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => fold(ident),
            _ => return,
        };
        let exprs: Vec<Expr> = args
            .args
            .iter()
            .filter_map(|arg| match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            })
            .collect();
        if exprs.len() != args.args.len() {
            return;
        }
        let array_exprs = match function.as_str() {
            "generate_series" => vec![call("generate_series", exprs)],
            "unnest" => exprs,
            _ => return,
        };
        let alias = alias.take().or_else(|| Some(table_alias(&function)));
        *factor = ast::TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality: false,
        };
    }
    if let ast::TableFactor::UNNEST { alias, array_exprs, .. } = factor
        && array_exprs.len() == 1
    {
        let alias = alias.get_or_insert_with(|| table_alias("unnest"));
        if alias.columns.is_empty() {
            alias.columns = vec![ast::TableAliasColumnDef { name: alias.name.clone(), data_type: None }];
        }
    }
}

fn table_alias(name: &str) -> ast::TableAlias {
    ast::TableAlias { explicit: true, name: Ident::new(name), columns: Vec::new(), at: None }
}

/// FETCH FIRST n ROWS ONLY is LIMIT n.
fn fetch_to_limit(query: &mut Query) -> Result<(), SqlError> {
    let Some(fetch) = query.fetch.take() else { return Ok(()) };
    if fetch.with_ties || fetch.percent {
        return Err(SqlError::not_supported("FETCH … WITH TIES or PERCENT"));
    }
    let one = || Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
    let limit = Some(fetch.quantity.unwrap_or_else(one));
    query.limit_clause = Some(match query.limit_clause.take() {
        Some(ast::LimitClause::LimitOffset { offset, limit_by, .. }) => {
            ast::LimitClause::LimitOffset { limit, offset, limit_by }
        }
        _ => ast::LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() },
    });
    Ok(())
}

fn rewrite_one(expr: &mut Expr) -> Result<(), SqlError> {
    let taken = |expr: &mut Expr| std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
    match expr {
        Expr::Collate { expr: inner, .. } => *expr = taken(inner),
        Expr::Interval(interval) => {
            if let Some(text) = interval_text(interval) {
                *expr = cast_to_interval(text);
            }
        }
        Expr::Function(function) => match &mut function.args {
            FunctionArguments::Subquery(query) if is_array(&function.name) => {
                *expr = array_query::array_of_query(query.clone())?;
            }
            _ => {
                order_distinct(function);
                unqualify_function(function);
            }
        },
        Expr::BinaryOp { op, .. } => {
            if let BinaryOperator::PGCustomBinaryOperator(parts) = op
                && let Some(plain) = parts.last().and_then(|symbol| plain_operator(symbol))
            {
                *op = plain;
            }
        }
        Expr::AtTimeZone { timestamp, time_zone } => {
            let (value, zone) = (taken(timestamp), taken(time_zone));
            *expr = call("timezone", vec![zone, value]);
        }
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right }
            if !matches!(**right, Expr::Subquery(_)) =>
        {
            let any = Expr::AnyOp {
                left: Box::new(taken(left)),
                compare_op: BinaryOperator::Eq,
                right: Box::new(taken(right)),
                is_some: false,
            };
            *expr = Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(any) };
        }
        Expr::Cast { data_type, expr: inner, .. } => {
            if matches!(data_type, ast::DataType::Text | ast::DataType::Varchar(None))
                && is_oid_of_name(inner)
            {
                // A name that became a number becomes a name again.
                let number = taken(inner);
                if let Expr::Function(function) = &number {
                    *expr = call(&function.name.to_string(), vec![number.clone()]);
                }
            } else if let Some(function) = oid_alias(data_type) {
                *expr = call(function, vec![taken(inner)]);
            } else if let Some(length) = text_length(data_type) {
                // A cast to varchar(n) cuts what is longer.
                let length = Expr::Value(Value::Number(length.to_string(), false).with_empty_span());
                *expr = call("left", vec![taken(expr), length]);
            }
        }
        _ => {}
    }
    Ok(())
}

/// DISTINCT values are aggregated in their order, as PostgreSQL sorts them to tell them apart.
fn order_distinct(function: &mut ast::Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let ordered = list.clauses.iter().any(|c| matches!(c, ast::FunctionArgumentClause::OrderBy(_)));
    let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
    let collects = ["array_agg", "string_agg"].iter().any(|name| match function.name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) => fold(ident) == *name,
        _ => false,
    });
    let Some(ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(first))) = list.args.first() else {
        return;
    };
    if distinct && !ordered && collects && function.over.is_none() {
        let options = ast::OrderByOptions { asc: None, nulls_first: None };
        let by = ast::OrderByExpr { expr: first.clone(), options, with_fill: None };
        list.clauses.push(ast::FunctionArgumentClause::OrderBy(vec![by]));
    }
}

/// `weir_regclass('t')`: what `'t'::regclass` has become.
fn is_oid_of_name(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let FunctionArguments::List(list) = &function.args else { return false };
    let named = matches!(
        list.args.as_slice(),
        [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(Expr::Value(value)))]
            if matches!(value.value, Value::SingleQuotedString(_))
    );
    named && function.name.to_string().starts_with("weir_reg")
}

fn is_array(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(i)] if i.value.eq_ignore_ascii_case("array"))
}

/// `pg_catalog.f(…)` is `f(…)`: what DataFusion knows has no schema.
fn unqualify_function(function: &mut ast::Function) {
    if let [ObjectNamePart::Identifier(schema), _] = function.name.0.as_slice()
        && matches!(fold(schema).as_str(), "pg_catalog" | "information_schema" | "public")
    {
        function.name.0.remove(0);
    }
    // Arrays start at 1 here.
    if matches!(function.name.0.as_slice(), [ObjectNamePart::Identifier(i)] if fold(i) == "array_upper") {
        function.name = ObjectName::from(Ident::new("array_length"));
    }
    if matches!(function.args, FunctionArguments::None) {
        function.args = FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: Vec::new(),
            clauses: Vec::new(),
        });
    }
}

/// The operator of `OPERATOR(pg_catalog.~)`.
fn plain_operator(symbol: &str) -> Option<BinaryOperator> {
    Some(match symbol {
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        _ => return None,
    })
}

/// The text of `INTERVAL '1 day 02:03'`; of `INTERVAL '1' DAY` with the unit that a number has.
fn interval_text(interval: &ast::Interval) -> Option<String> {
    let Expr::Value(value) = interval.value.as_ref() else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let unit = match (&interval.last_field, &interval.leading_field) {
        (Some(unit), _) | (None, Some(unit)) => unit,
        (None, None) => return Some(text.clone()),
    };
    match text.trim().parse::<f64>() {
        Ok(_) => Some(format!("{} {}", text.trim(), unit.to_string().to_lowercase())),
        Err(_) => Some(text.clone()),
    }
}

fn cast_to_interval(text: String) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(Expr::Value(Value::SingleQuotedString(text).with_empty_span())),
        data_type: ast::DataType::Interval { fields: None, precision: None },
        array: false,
        format: None,
    }
}

/// The n of `varchar(n)` and `char(n)`.
fn text_length(data_type: &ast::DataType) -> Option<u64> {
    use ast::DataType as Sql;
    match data_type {
        Sql::Varchar(Some(l)) | Sql::CharacterVarying(Some(l)) | Sql::CharVarying(Some(l)) => length_of(l),
        Sql::Char(l) | Sql::Character(l) => l.as_ref().map_or(Some(1), length_of),
        _ => None,
    }
}

fn length_of(length: &ast::CharacterLength) -> Option<u64> {
    match length {
        ast::CharacterLength::IntegerLength { length, .. } => Some(*length),
        ast::CharacterLength::Max => None,
    }
}

/// The function that casts to an oid alias, as `serve` provides it: a name to its number, a number
/// to its name.
fn oid_alias(data_type: &ast::DataType) -> Option<&'static str> {
    let name = match data_type {
        ast::DataType::Regclass => "regclass".to_owned(),
        ast::DataType::Custom(name, _) => match name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => ident.value.to_lowercase(),
            _ => return None,
        },
        _ => return None,
    };
    Some(match name.as_str() {
        "regclass" => "weir_regclass",
        "regtype" => "weir_regtype",
        "regproc" => "weir_regproc",
        "regnamespace" => "weir_regnamespace",
        "regrole" => "weir_regrole",
        _ => return None,
    })
}

/// `name(args)`.
pub(super) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args =
        args.into_iter().map(|arg| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg))).collect();
    Expr::Function(ast::Function {
        name: ObjectName::from(Ident::new(name)),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

//! Changes of a query's AST before DataFusion plans it: forms that it does not read, as forms that
//! mean the same and that it does.

use super::{
    BindContext, aggregate_names, array_query, collect, column_name, moments, named_arguments, natural,
    places, predicates, rows, sets, spellings, using, whole_rows,
};
use crate::error::SqlError;
use crate::functions::numeric;
use crate::parser::fold;
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, Value, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Rewrites a query and all in it.
///
/// `set_apart`: items with an alias beside `*` may repeat the name of one of its columns.
pub(super) fn rewrite(query: &mut Query, set_apart: bool, context: &BindContext) -> Result<(), SqlError> {
    run(query, set_apart, context)
}

/// Rewrites an expression and all in it.
pub(super) fn rewrite_expr(expr: &mut Expr, context: &BindContext) -> Result<(), SqlError> {
    run(expr, false, context)
}

fn run(node: &mut impl VisitMut, set_apart: bool, context: &BindContext) -> Result<(), SqlError> {
    match node.visit(&mut Rewriter { set_apart, context, merges: 0 }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewriter<'a> {
    set_apart: bool,
    context: &'a BindContext,
    /// How many joins with merged columns were named.
    merges: usize,
}

impl VisitorMut for Rewriter<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let ast::SetExpr::Table(table) = query.body.as_ref() {
            let schema = table.schema_name.iter().map(|schema| format!("{schema}."));
            let name = table.table_name.clone().unwrap_or_default();
            let text = format!("SELECT * FROM {}{name}", schema.collect::<String>());
            match crate::parser::parse_query(&text) {
                Ok(select) => query.body = select.body,
                Err(error) => return ControlFlow::Break(error),
            }
        }
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
        sets::rewrite_factor(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        if select.into.is_some() {
            let error = SqlError::not_supported("SELECT INTO").hint("Use INSERT INTO … SELECT.");
            return ControlFlow::Break(error);
        }
        name_positions(select);
        aggregate_names::rewrite_select(select);
        natural::rewrite_select(select, self.context);
        if let Err(error) = places::check_windows(select) {
            return ControlFlow::Break(error);
        }
        using::qualify_grouped(select);
        using::nest_all(select, &mut self.merges);
        column_name::name_items(select, self.set_apart);
        predicates::rewrite_items(select);
        records(select);
        sets::rewrite_select(select);
        whole_rows::rewrite_select(select, self.context);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        collect::rewrite(expr);
        moments::rewrite(expr);
        spellings::rewrite(expr);
        match rows::rewrite(expr).and_then(|()| rewrite_one(expr)) {
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
        Expr::Value(value) => {
            if let Value::Number(number, _) = &value.value
                && beyond_numeric(number)
            {
                *expr = typed_literal(number.clone(), ast::DataType::DoublePrecision);
            }
        }
        Expr::Interval(interval) => {
            if let Some(text) = interval_text(interval) {
                *expr = typed_literal(text, interval_type(interval));
            }
        }
        Expr::Function(function) => match &mut function.args {
            FunctionArguments::Subquery(query) if is_array(&function.name) => {
                *expr = array_query::array_of_query(query.clone())?;
            }
            _ => {
                record_arguments(function);
                named_arguments::rewrite(function);
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
                **inner = call("left", vec![cast_to(taken(inner), ast::DataType::Text), length]);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Rows among the items of a SELECT are records.
fn records(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && let Some(record) = rows::record(expr)
        {
            *expr = record;
        }
    }
}

/// And so they are as arguments.
fn record_arguments(function: &mut ast::Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    for arg in &mut list.args {
        if let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = arg
            && let Some(record) = rows::record(expr)
        {
            *expr = record;
        }
    }
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
    if let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
        && let Some(known) = other_name(&fold(name))
    {
        function.name = ObjectName::from(Ident::new(known));
    }
    if matches!(function.args, FunctionArguments::None) {
        function.args = FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: Vec::new(),
            clauses: Vec::new(),
        });
    }
}

/// What DataFusion calls a function of PostgreSQL, where its function of that name is another.
fn other_name(function: &str) -> Option<&'static str> {
    Some(match function {
        "array_remove" => "array_remove_all",
        "array_replace" => "array_replace_all",
        _ => return None,
    })
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
    if let Some(text) = clock_text(text.trim(), interval) {
        return Some(text);
    }
    let unit = match (&interval.last_field, &interval.leading_field) {
        (Some(unit), _) | (None, Some(unit)) => unit,
        (None, None) => return Some(text.clone()),
    };
    match text.trim().parse::<f64>() {
        Ok(_) => Some(format!("{} {}", text.trim(), unit.to_string().to_lowercase())),
        Err(_) => Some(text.clone()),
    }
}

/// The type of an interval literal, whose fields say what is left of it: `'1 day 02:03' HOUR`.
fn interval_type(interval: &ast::Interval) -> ast::DataType {
    use ast::DateTimeField::{Day, Hour, Minute, Month, Second, Year};
    use ast::IntervalFields;
    let fields = match (&interval.leading_field, &interval.last_field) {
        (Some(Year), None) => Some(IntervalFields::Year),
        (Some(Month), None) => Some(IntervalFields::Month),
        (Some(Day), None) => Some(IntervalFields::Day),
        (Some(Hour), None) => Some(IntervalFields::Hour),
        (Some(Minute), None) => Some(IntervalFields::Minute),
        (Some(Second), None) => Some(IntervalFields::Second),
        (Some(Year), Some(Month)) => Some(IntervalFields::YearToMonth),
        (Some(Day), Some(Hour)) => Some(IntervalFields::DayToHour),
        (Some(Day), Some(Minute)) => Some(IntervalFields::DayToMinute),
        (Some(Day), Some(Second)) => Some(IntervalFields::DayToSecond),
        (Some(Hour), Some(Minute)) => Some(IntervalFields::HourToMinute),
        (Some(Hour), Some(Second)) => Some(IntervalFields::HourToSecond),
        (Some(Minute), Some(Second)) => Some(IntervalFields::MinuteToSecond),
        _ => None,
    };
    let precision = interval.fractional_seconds_precision.or(interval.leading_precision);
    ast::DataType::Interval { fields, precision }
}

/// `'1 2' DAY TO HOUR` and `'3:04' MINUTE TO SECOND`, where the fields say what the numbers are.
fn clock_text(text: &str, interval: &ast::Interval) -> Option<String> {
    use ast::DateTimeField::{Day, Hour, Minute, Second};
    match (&interval.leading_field, &interval.last_field) {
        (Some(Day), Some(Hour)) => {
            let (days, hours) = text.split_once(' ')?;
            let numbers = days.parse::<f64>().is_ok() && hours.parse::<f64>().is_ok();
            numbers.then(|| format!("{days} days {hours} hours"))
        }
        (Some(Minute), Some(Second)) if text.matches(':').count() == 1 && !text.starts_with('-') => {
            Some(format!("00:{text}"))
        }
        _ => None,
    }
}

/// Whether a number with an exponent has more digits than numeric holds. It is a double precision
/// then.
fn beyond_numeric(number: &str) -> bool {
    let Some((mantissa, exponent)) = number.split_once(['e', 'E']) else { return false };
    let Ok(exponent) = exponent.parse::<i64>() else { return false };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (whole, fraction) = (whole.len() as i64, fraction.len() as i64);
    let digits =
        whole.saturating_add(exponent).max(0).saturating_add(fraction.saturating_sub(exponent).max(0));
    digits > i64::from(numeric::PRECISION)
}

/// `CAST('text' AS type)`.
fn typed_literal(text: String, data_type: ast::DataType) -> Expr {
    let literal = Expr::Value(Value::SingleQuotedString(text).with_empty_span());
    cast_to(literal, data_type)
}

/// `CAST(expr AS type)`.
pub(super) fn cast_to(expr: Expr, data_type: ast::DataType) -> Expr {
    Expr::Cast { kind: ast::CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
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

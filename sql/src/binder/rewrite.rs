//! Changes of a query's AST before DataFusion plans it: PostgreSQL's names for columns without one,
//! and forms that DataFusion does not read but that mean something it does.

use crate::error::SqlError;
use crate::parser::fold;
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, UnaryOperator, Value, VisitMut, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Stands between a column's name and a number where names would repeat. Taken off again when the
/// query is planned.
pub(super) const MARK: char = '\u{1}';

/// Rewrites a query and all in it.
pub(super) fn rewrite(query: &mut Query) -> Result<(), SqlError> {
    run(query)
}

/// Rewrites an expression and all in it.
pub(super) fn rewrite_expr(expr: &mut Expr) -> Result<(), SqlError> {
    run(expr)
}

fn run(node: &mut impl VisitMut) -> Result<(), SqlError> {
    match node.visit(&mut Rewriter) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewriter;

impl VisitorMut for Rewriter {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if !query.locks.is_empty() {
            query.locks.clear();
        }
        if let Err(error) = refuse_multiset_operations(&query.body) {
            return ControlFlow::Break(error);
        }
        match fetch_to_limit(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        name_items(select);
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

/// DataFusion takes INTERSECT ALL and EXCEPT ALL for semi and anti joins, which don't count rows.
fn refuse_multiset_operations(body: &ast::SetExpr) -> Result<(), SqlError> {
    let ast::SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return Ok(()) };
    if *set_quantifier == ast::SetQuantifier::All && *op != ast::SetOperator::Union {
        return Err(SqlError::not_supported(format!("{op} ALL")).hint(format!("Write {op}, without ALL.")));
    }
    refuse_multiset_operations(left)?;
    refuse_multiset_operations(right)
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

/// Names the items of a SELECT as PostgreSQL would. An item that repeats a name, which DataFusion
/// does not allow, is set apart by [`MARK`].
fn name_items(select: &mut Select) {
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
        let repeated = taken.repeats(expr, &name, column);
        if column && !repeated {
            continue;
        }
        let alias = if repeated { format!("{name}{MARK}{i}") } else { name };
        let expr = std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', alias) };
    }
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
        Expr::Exists { .. } => sure("exists"),
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
    let name = long.split('(').next().unwrap_or_default().trim();
    match name {
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

fn rewrite_one(expr: &mut Expr) -> Result<(), SqlError> {
    let taken = |expr: &mut Expr| std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
    match expr {
        Expr::Collate { expr: inner, .. } => *expr = taken(inner),
        Expr::Function(function) => match &mut function.args {
            FunctionArguments::Subquery(query) if is_array(&function.name) => {
                *expr = array_of_query(query.clone())?;
            }
            _ => unqualify_function(function),
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
            if let Some(function) = oid_alias(data_type) {
                *expr = call(function, vec![taken(inner)]);
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_array(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(i)] if i.value.eq_ignore_ascii_case("array"))
}

/// `pg_catalog.f(…)` is `f(…)`: what DataFusion knows has no schema.
fn unqualify_function(function: &mut ast::Function) {
    let [ObjectNamePart::Identifier(schema), _] = function.name.0.as_slice() else { return };
    if matches!(fold(schema).as_str(), "pg_catalog" | "information_schema" | "public") {
        function.name.0.remove(0);
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

/// `ARRAY(SELECT f(x) FROM unnest(a) x)` is a transformation of `a`, any other `ARRAY(query)` the
/// aggregation of its rows.
fn array_of_query(query: Box<Query>) -> Result<Expr, SqlError> {
    if let Some(transformed) = transformed_array(&query) {
        return Ok(transformed);
    }
    let mut outer =
        crate::parser::parse_query("SELECT array_agg(weir_item) FROM (SELECT 1) AS weir_array (weir_item)")?;
    if let ast::SetExpr::Select(select) = outer.body.as_mut()
        && let Some(ast::TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|t| &mut t.relation)
    {
        *subquery = query;
    }
    Ok(Expr::Subquery(outer))
}

fn transformed_array(query: &Query) -> Option<Expr> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    let bare = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
    let [
        ast::TableWithJoins {
            relation: ast::TableFactor::Table { name, alias, args: Some(args), .. },
            joins,
        },
    ] = select.from.as_slice()
    else {
        return None;
    };
    let unnest = matches!(name.0.last(), Some(ObjectNamePart::Identifier(i)) if fold(i) == "unnest");
    let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(array))] = args.args.as_slice() else {
        return None;
    };
    if !bare || !unnest || !joins.is_empty() || select.selection.is_some() || select.distinct.is_some() {
        return None;
    }
    let [SelectItem::UnnamedExpr(body) | SelectItem::ExprWithAlias { expr: body, .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let item = alias.as_ref()?.name.clone();
    let lambda = Expr::Lambda(ast::LambdaFunction {
        params: ast::OneOrManyWithParens::One(ast::LambdaFunctionParameter { name: item, data_type: None }),
        body: Box::new(body.clone()),
        syntax: ast::LambdaSyntax::Arrow,
    });
    Some(call("array_transform", vec![array.clone(), lambda]))
}

/// `name(args)`.
fn call(name: &str, args: Vec<Expr>) -> Expr {
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

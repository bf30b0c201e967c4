//! Changes of a query's AST before DataFusion plans it: PostgreSQL's names for columns without one,
//! and forms that DataFusion does not read but that mean something it does.

use super::BindContext;
use crate::error::SqlError;
use crate::parser::{fold, name_of};
use sqlparser::ast::{
    self, BinaryOperator, Expr, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, UnaryOperator, Value, VisitMut, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use weir_catalog::SqlState;

/// Stands between a column's name and a number where names would repeat. Taken off again when the
/// query is planned.
pub(super) const MARK: char = '\u{1}';

/// Rewrites a query and all in it.
pub(super) fn rewrite(query: &mut Query, context: &BindContext) -> Result<(), SqlError> {
    run(query, context)
}

/// Rewrites an expression and all in it.
pub(super) fn rewrite_expr(expr: &mut Expr, context: &BindContext) -> Result<(), SqlError> {
    run(expr, context)
}

fn run(node: &mut impl VisitMut, context: &BindContext) -> Result<(), SqlError> {
    match node.visit(&mut Rewriter { context }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Rewriter<'a> {
    context: &'a BindContext,
}

impl VisitorMut for Rewriter<'_> {
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

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        name_items(select);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match rewrite_one(expr, self.context) {
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

fn rewrite_one(expr: &mut Expr, context: &BindContext) -> Result<(), SqlError> {
    let taken = |expr: &mut Expr| std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()));
    match expr {
        Expr::Collate { expr: inner, .. } => *expr = taken(inner),
        Expr::Function(function) => unqualify_function(function),
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
        Expr::Cast { data_type, expr: inner, .. } if is_regclass(data_type) => {
            let inner = taken(inner);
            *expr = regclass(inner, context)?;
        }
        _ => {}
    }
    Ok(())
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let unnamed = |arg| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(arg));
    Expr::Function(ast::Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args: args.into_iter().map(unnamed).collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
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

fn is_regclass(data_type: &ast::DataType) -> bool {
    match data_type {
        ast::DataType::Regclass => true,
        ast::DataType::Custom(name, _) => match name.0.last() {
            Some(ObjectNamePart::Identifier(ident)) => ident.value.eq_ignore_ascii_case("regclass"),
            _ => false,
        },
        _ => false,
    }
}

/// `'name'::regclass` is the relation's id; of a number it is that number.
fn regclass(inner: Expr, context: &BindContext) -> Result<Expr, SqlError> {
    let number = |n: String| Expr::Value(Value::Number(n, false).with_empty_span());
    let text = match &inner {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            _ => return Ok(inner),
        },
        _ => return Ok(inner),
    };
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(number(text));
    }
    let not_found =
        || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist"));
    let Ok(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) = crate::parser::parse_expr(&text) else {
        return Err(not_found());
    };
    let parts: Vec<Ident> = match crate::parser::parse_expr(&text)? {
        Expr::Identifier(ident) => vec![ident],
        Expr::CompoundIdentifier(parts) => parts,
        _ => return Err(not_found()),
    };
    let name = name_of(&ObjectName::from(parts))?;
    match context.resolve(&name) {
        Some(object) => Ok(number(object.id.0.to_string())),
        None => Err(not_found()),
    }
}

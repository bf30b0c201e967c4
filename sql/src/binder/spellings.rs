//! Operators and functions that PostgreSQL spells otherwise than DataFusion does.
//!
//! ```text
//!   |/ x   ||/ x   @ x   ~ x            sqrt(x)   cbrt(x)   abs(x)   x # -1
//!   a LIKE 'x#%' ESCAPE '#'             a LIKE 'x\%'
//!   a = ANY ('{1,2}')                   a IN ('1', '2')
//!   ARRAY[a, b]                         make_array(a, b)
//!   float8(x)   date(x)                 CAST(x AS float8)   CAST(x AS date)
//!   date_trunc(unit, t, zone)           the wall clock of the zone truncated, and back
//!   age(t)                              age(current_date, t)
//!   x BETWEEN SYMMETRIC a AND b         (x BETWEEN a AND b OR x BETWEEN b AND a)
//! ```

use super::arrays;
use super::rewrite::{call, cast_to};
use super::rows;
use crate::functions::quantified::name_of;
use crate::parser::{SYMMETRIC, fold};
use sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
    TimezoneInfo, UnaryOperator, Value,
};

/// The same as DataFusion spells it; other expressions as they are.
pub(super) fn rewrite(expr: &mut Expr) {
    let changed = match expr {
        Expr::UnaryOp { op, expr: operand } => unary(*op, operand),
        Expr::BinaryOp { left, op, right } => binary(left, op, right),
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            with_backslashes(pattern, escape_char);
            None
        }
        Expr::AnyOp { left, compare_op, right, .. } => quantified(left, compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => quantified(left, compare_op, right, true),
        Expr::Between { expr, negated, low, high } => symmetric(expr, *negated, low, high),
        Expr::CompoundFieldAccess { root, access_chain } => {
            access_chain.iter_mut().for_each(quote_member);
            if let Expr::Nested(inner) = root.as_mut()
                && let Some(record) = rows::record(inner)
            {
                **inner = record;
            }
            None
        }
        // As a function call its elements may be of the query around, and typed parameters.
        Expr::Array(array) => Some(call("make_array", std::mem::take(&mut array.elem))),
        Expr::Function(function) => known_call(function),
        _ => None,
    };
    if let Some(changed) = changed {
        *expr = changed;
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.with_empty_span())
}

fn number(value: u64) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).with_empty_span())
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn unary(op: UnaryOperator, operand: &Expr) -> Option<Expr> {
    let of = |name: &str| Some(call(name, vec![operand.clone()]));
    match op {
        UnaryOperator::PGAbs => of("abs"),
        UnaryOperator::PGSquareRoot => of("sqrt"),
        UnaryOperator::PGCubeRoot => of("cbrt"),
        UnaryOperator::BitwiseNot => Some(nested(Expr::BinaryOp {
            left: Box::new(operand.clone()),
            op: BinaryOperator::PGBitwiseXor,
            right: Box::new(nested(negative(number(1)))),
        })),
        _ => None,
    }
}

fn negative(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(expr) }
}

fn binary(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    match op {
        BinaryOperator::PGStartsWith => Some(call("starts_with", vec![left.clone(), right.clone()])),
        // PostgreSQL reads no operator that ends with a sign: `j->-1` is `j -> -1`.
        BinaryOperator::Custom(symbol) => {
            let op = match symbol.strip_suffix('-')? {
                "->" => BinaryOperator::Arrow,
                "->>" => BinaryOperator::LongArrow,
                _ => return None,
            };
            let right = Box::new(negative(right.clone()));
            Some(Expr::BinaryOp { left: Box::new(left.clone()), op, right })
        }
        _ => None,
    }
}

/// A constant pattern with the escape character that DataFusion knows.
fn with_backslashes(pattern: &mut Expr, escape: &mut Option<ast::ValueWithSpan>) {
    let Some(Value::SingleQuotedString(character)) = escape.as_ref().map(|e| &e.value) else { return };
    let Expr::Value(value) = pattern else { return };
    let Value::SingleQuotedString(text) = &mut value.value else { return };
    let character = character.chars().next();
    if character == Some('\\') {
        return;
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == character => {
                out.push('\\');
                out.extend(chars.next());
            }
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    *text = out;
    *escape = None;
}

/// The `n` of `(x).n` as DataFusion reads it.
fn quote_member(access: &mut ast::AccessExpr) {
    if let ast::AccessExpr::Dot(member) = access
        && let Expr::Identifier(name) = &*member
    {
        *member = Expr::Value(Value::SingleQuotedString(fold(name)).with_empty_span());
    }
}

/// `left op ANY (right)`, or ALL, where `right` is an array.
fn quantified(left: &Expr, op: &BinaryOperator, right: &Expr, all: bool) -> Option<Expr> {
    let mut array = right;
    while let Expr::Nested(inner) = array {
        array = inner;
    }
    if matches!(array, Expr::Subquery(_)) {
        return None;
    }
    let listed = match (op, all) {
        (BinaryOperator::Eq, false) | (BinaryOperator::NotEq, true) => in_literal(left, right, all),
        _ => None,
    };
    listed.or_else(|| Some(call(name_of(op, all)?, vec![left.clone(), array.clone()])))
}

/// `left = ANY ('{1,2}')`, whose elements take the type of `left`, as IN; `<> ALL` as NOT IN.
fn in_literal(left: &Expr, right: &Expr, negated: bool) -> Option<Expr> {
    let literal = match right {
        Expr::Nested(inner) => inner.as_ref(),
        other => other,
    };
    let Expr::Value(value) = literal else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let elements = arrays::elements_of(text)?;
    if elements.is_empty() {
        return None;
    }
    let item = |element: Option<String>| match element {
        Some(text) => Expr::Value(Value::SingleQuotedString(text).with_empty_span()),
        None => null(),
    };
    let list = elements.into_iter().map(item).collect();
    Some(Expr::InList { expr: Box::new(left.clone()), list, negated })
}

/// BETWEEN with its bounds in either order, if its lower one is marked so.
fn symmetric(expr: &Expr, negated: bool, low: &Expr, high: &Expr) -> Option<Expr> {
    let Expr::Function(function) = low else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(low))] = list.args.as_slice() else { return None };
    if function.name.to_string() != SYMMETRIC {
        return None;
    }
    let between = |low: &Expr, high: &Expr| {
        Box::new(Expr::Between {
            expr: Box::new(expr.clone()),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        })
    };
    let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
    Some(nested(Expr::BinaryOp { left: between(low, high), op, right: between(high, low) }))
}

/// A call of a function that DataFusion does not have so.
fn known_call(function: &ast::Function) -> Option<Expr> {
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let args: Vec<Expr> = list.args.iter().map(plain).collect::<Option<_>>()?;
    match (fold(name).as_str(), args.as_slice()) {
        (name, [value]) if type_of_name(name).is_some() => Some(cast_to(value.clone(), type_of_name(name)?)),
        ("age", [time]) => Some(call("age", vec![call("current_date", Vec::new()), time.clone()])),
        ("date_trunc", [unit, time, zone]) => {
            let local = call("timezone", vec![zone.clone(), time.clone()]);
            let truncated = call("date_trunc", vec![unit.clone(), local]);
            Some(call("timezone", vec![zone.clone(), truncated]))
        }
        _ => None,
    }
}

/// The type that a function of this name casts to.
fn type_of_name(name: &str) -> Option<DataType> {
    Some(match name {
        "bool" => DataType::Boolean,
        "int2" => DataType::SmallInt(None),
        "int4" => DataType::Int(None),
        "int8" => DataType::BigInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "text" => DataType::Text,
        "date" => DataType::Date,
        "timestamptz" => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut expr = crate::parser::parse_expr(sql).expect("an expression");
        rewrite(&mut expr);
        expr.to_string()
    }

    #[test]
    fn operators_have_names() {
        assert_eq!(rewritten("|/ x"), "sqrt(x)");
        assert_eq!(rewritten("~ x"), "(x # (-1))");
        assert_eq!(rewritten("a ^@ 'x'"), "starts_with(a, 'x')");
        assert_eq!(rewritten("j->-1"), "j -> -1");
    }

    #[test]
    fn literals_are_taken_apart() {
        assert_eq!(rewritten("a LIKE 'x#%\\' ESCAPE '#'"), "a LIKE 'x\\%\\\\'");
        assert_eq!(rewritten("a = ANY ('{1,NULL}')"), "a IN ('1', NULL)");
        assert_eq!(rewritten("a <> ALL ('{1}')"), "a NOT IN ('1')");
    }

    #[test]
    fn calls_are_of_other_functions() {
        assert_eq!(rewritten("date(x)"), "CAST(x AS DATE)");
        assert_eq!(
            rewritten("date_trunc('day', t, 'UTC')"),
            "timezone('UTC', date_trunc('day', timezone('UTC', t)))"
        );
    }
}

//! Text functions where DataFusion's differ from PostgreSQL's: regular expressions with capture
//! groups, `md5`.

use super::error::failure;
use super::scalar::{Function, Kernel, exactly};
use arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::planner::{ExprPlanner, PlannerResult, RawFieldAccessExpr};
use datafusion_expr::{ColumnarValue, Expr, GetFieldAccess, Like, ScalarUDF};
use md5::{Digest, Md5};
use regex::Regex;
use std::sync::{Arc, LazyLock};
use weir_catalog::SqlState;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new("regexp_match", coerce_regexp, |_, _| text_list(), Kernel::Values(regexp_match)),
        regexp_group_function(),
        substring_function(),
        Function::new(
            "md5",
            |t| exactly(t, &[DataType::Utf8]),
            |_, _| DataType::Utf8,
            Kernel::Columns(md5_hex),
        ),
    ]
}

/// `regexp_group(text, pattern, n)`: what `(regexp_match(text, pattern))[n]` is, without the array.
fn regexp_group_function() -> Function {
    let coerce = |t: &[DataType]| exactly(t, &[DataType::Utf8, DataType::Utf8, DataType::Int64]);
    Function::new("regexp_group", coerce, |_, _| DataType::Utf8, Kernel::Values(regexp_group))
}

/// `regexp_substr(text, pattern)`: also `substring(text from pattern)`, which gives the first
/// group where there is one.
fn substring_function() -> Function {
    Function::new("regexp_substring", coerce_regexp, |_, _| DataType::Utf8, Kernel::Values(regexp_substring))
}

static REGEXP_GROUP: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| regexp_group_function().udf());
static REGEXP_SUBSTRING: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| substring_function().udf());

fn text_list() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

fn coerce_regexp(types: &[DataType]) -> Option<Vec<DataType>> {
    match types.len() {
        2 | 3 => exactly(types, &vec![DataType::Utf8; types.len()]),
        _ => None,
    }
}

/// Plans `(regexp_match(…))[n]` and `substring(text from pattern)`.
#[derive(Debug)]
pub struct RegexpPlanner;

impl ExprPlanner for RegexpPlanner {
    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        _schema: &datafusion_common::DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let RawFieldAccessExpr { field_access, expr } = access;
        if let (GetFieldAccess::ListIndex { key }, Expr::ScalarFunction(call)) = (&field_access, &expr)
            && call.func.name() == "regexp_match"
            && call.args.len() == 2
            && matches!(**key, Expr::Literal(_, _))
        {
            let args = vec![call.args[0].clone(), call.args[1].clone(), (**key).clone()];
            let call = ScalarFunction::new_udf(Arc::clone(&REGEXP_GROUP), args);
            return Ok(PlannerResult::Planned(Expr::ScalarFunction(call)));
        }
        Ok(PlannerResult::Original(RawFieldAccessExpr { field_access, expr }))
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        if let [_, Expr::Literal(ScalarValue::Utf8(_), _)] = args.as_slice() {
            let call = ScalarFunction::new_udf(Arc::clone(&REGEXP_SUBSTRING), args);
            return Ok(PlannerResult::Planned(Expr::ScalarFunction(call)));
        }
        Ok(PlannerResult::Original(args))
    }
}

/// A pattern with PostgreSQL's flags, compiled.
pub(super) fn compile(pattern: &str, flags: &str) -> Result<Regex> {
    let mut inline = String::new();
    for flag in flags.chars() {
        match flag {
            'i' => inline.push('i'),
            'c' => inline.retain(|f| f != 'i'),
            'n' | 'm' => inline.push('m'),
            's' | 'g' => {}
            'x' => inline.push('x'),
            other => {
                let message = format!("invalid regular expression option: \"{other}\"");
                return Err(failure(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        }
    }
    // In PostgreSQL a dot matches a line's end unless 'n' or 'm' says otherwise.
    if !inline.contains('m') {
        inline.push('s');
    }
    Regex::new(&format!("(?{inline}:{pattern})")).map_err(|error| {
        let cause = error.to_string();
        let cause = cause.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        failure(SqlState("2201B"), format!("invalid regular expression: {cause}"))
    })
}

/// The texts and, row by row, the pattern: compiled anew only where it differs from the last one.
struct Patterns<'a> {
    patterns: &'a StringArray,
    flags: Option<&'a StringArray>,
    last: Option<(usize, Regex)>,
}

impl<'a> Patterns<'a> {
    fn new(patterns: &'a ArrayRef, flags: Option<&'a ArrayRef>) -> Self {
        Self { patterns: patterns.as_string(), flags: flags.map(|f| f.as_string()), last: None }
    }

    /// The pattern of a row; rows beyond the first share a constant one.
    fn at(&mut self, row: usize) -> Result<Option<&Regex>> {
        let row = if self.patterns.len() == 1 { 0 } else { row };
        if self.patterns.is_null(row) || self.flags.is_some_and(|f| f.is_null(row)) {
            return Ok(None);
        }
        let flags = |row: usize| self.flags.map_or("", |f| f.value(row));
        let known = self.last.as_ref().is_some_and(|(last, _)| {
            *last == row
                || (self.patterns.value(*last) == self.patterns.value(row) && flags(*last) == flags(row))
        });
        if !known {
            self.last = Some((row, compile(self.patterns.value(row), flags(row))?));
        }
        Ok(self.last.as_ref().map(|(_, regex)| regex))
    }
}

/// Arguments as columns: the first of all rows, the patterns of one row where they are constant.
fn regexp_columns(args: &[ColumnarValue], rows: usize) -> Result<(Vec<ArrayRef>, bool)> {
    let constant = args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { rows };
    let constant_patterns = args[1..].iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
    let pattern_rows = if constant_patterns { 1 } else { rows };
    let mut columns = vec![args[0].to_array(rows)?];
    for arg in &args[1..] {
        columns.push(arg.to_array(pattern_rows)?);
    }
    Ok((columns, constant))
}

fn result(array: ArrayRef, constant: bool) -> Result<ColumnarValue> {
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
    }
    Ok(ColumnarValue::Array(array))
}

fn regexp_match(args: &[ColumnarValue], _output: &DataType, rows: usize) -> Result<ColumnarValue> {
    let (columns, constant) = regexp_columns(args, rows)?;
    let texts = columns[0].as_string::<i32>();
    let mut patterns = Patterns::new(&columns[1], columns.get(2));
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..texts.len() {
        let found = match patterns.at(row)? {
            Some(regex) if texts.is_valid(row) => regex.captures(texts.value(row)),
            _ => None,
        };
        match found {
            // Without groups the whole match is the one element.
            Some(captures) => {
                let first = usize::from(captures.len() > 1);
                for group in first..captures.len() {
                    out.values().append_option(captures.get(group).map(|m| m.as_str()));
                }
                out.append(true);
            }
            None => out.append(false),
        }
    }
    result(Arc::new(out.finish()), constant)
}

fn regexp_group(args: &[ColumnarValue], _output: &DataType, rows: usize) -> Result<ColumnarValue> {
    let (columns, constant) = regexp_columns(args, rows)?;
    let texts = columns[0].as_string::<i32>();
    let groups = columns[2].as_primitive::<Int64Type>();
    let mut patterns = Patterns::new(&columns[1], None);
    let mut out = StringBuilder::new();
    for row in 0..texts.len() {
        let group_row = if groups.len() == 1 { 0 } else { row };
        let value = match patterns.at(row)? {
            Some(regex) if texts.is_valid(row) && groups.is_valid(group_row) => {
                group_of(regex, texts.value(row), groups.value(group_row))
            }
            _ => None,
        };
        out.append_option(value);
    }
    result(Arc::new(out.finish()), constant)
}

/// Element `index` of what `regexp_match` gives.
fn group_of<'t>(regex: &Regex, text: &'t str, index: i64) -> Option<&'t str> {
    let index = usize::try_from(index).ok().filter(|i| *i > 0)?;
    if regex.captures_len() == 1 {
        return if index == 1 { regex.find(text).map(|m| m.as_str()) } else { None };
    }
    regex.captures(text)?.get(index).map(|m| m.as_str())
}

fn regexp_substring(args: &[ColumnarValue], _output: &DataType, rows: usize) -> Result<ColumnarValue> {
    let (columns, constant) = regexp_columns(args, rows)?;
    let texts = columns[0].as_string::<i32>();
    let mut patterns = Patterns::new(&columns[1], columns.get(2));
    let mut out = StringBuilder::new();
    for row in 0..texts.len() {
        let value = match patterns.at(row)? {
            Some(regex) if texts.is_valid(row) => group_of(regex, texts.value(row), 1),
            _ => None,
        };
        out.append_option(value);
    }
    result(Arc::new(out.finish()), constant)
}

/// `SIMILAR TO` with its pattern, if it is a constant, as a regular expression.
pub fn similar_pattern(mut like: Like) -> Like {
    if let Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) = like.pattern.as_mut()
        && !pattern.starts_with("^(?s:")
    {
        *pattern = similar_regex(pattern, like.escape_char.unwrap_or('\\'));
    }
    like
}

/// `%` and `_` are any text and any character; `| * + ? { } ( ) [ ]` mean what they mean elsewhere.
fn similar_regex(pattern: &str, escape: char) -> String {
    let mut regex = String::from("^(?s:");
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            _ if c == escape => {
                let escaped = chars.next().unwrap_or(escape);
                regex.push_str(&regex::escape(&escaped.to_string()));
            }
            ']' if in_class => {
                in_class = false;
                regex.push(c);
            }
            _ if in_class => regex.push(c),
            '[' => {
                in_class = true;
                regex.push(c);
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '.' | '^' | '$' => {
                regex.push('\\');
                regex.push(c);
            }
            _ => regex.push(c),
        }
    }
    regex.push_str(")$");
    regex
}

fn md5_hex(args: &[ArrayRef], _output: &DataType) -> Result<ArrayRef> {
    let hex =
        |text: &str| Md5::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let hashes: StringArray = args[0].as_string::<i32>().iter().map(|t| t.map(hex)).collect();
    Ok(Arc::new(hashes))
}

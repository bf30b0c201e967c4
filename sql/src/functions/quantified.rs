//! `x = ANY (array)`, `x < ALL (array)` and their kin: NULL where a NULL among the elements, or in
//! place of `x`, leaves the answer open.
//!
//! A constant array under `= ANY` or `<> ALL` becomes a list, `x IN (…)`, which keys and indexes answer.

use super::scalar::no_such;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, make_comparator};
use arrow::compute::{SortOptions, take};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::expr::{InList, ScalarFunction};
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::type_coercion::binary::comparison_coercion;
use datafusion_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use sqlparser::ast::BinaryOperator;
use std::cmp::Ordering;
use std::sync::Arc;

/// The operators that may be quantified, and what their functions are called.
const OPERATORS: [(Compare, &str, &str); 6] = [
    (Compare::Equal, "any_equal", "all_equal"),
    (Compare::NotEqual, "any_not_equal", "all_not_equal"),
    (Compare::Less, "any_less", "all_less"),
    (Compare::LessOrEqual, "any_less_or_equal", "all_less_or_equal"),
    (Compare::Greater, "any_greater", "all_greater"),
    (Compare::GreaterOrEqual, "any_greater_or_equal", "all_greater_or_equal"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Compare {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Compare::Equal => ordering.is_eq(),
            Compare::NotEqual => ordering.is_ne(),
            Compare::Less => ordering.is_lt(),
            Compare::LessOrEqual => ordering.is_le(),
            Compare::Greater => ordering.is_gt(),
            Compare::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// The function of `x op ANY (array)`, of `x op ALL (array)`.
pub fn name_of(op: &BinaryOperator, all: bool) -> Option<&'static str> {
    let compare = match op {
        BinaryOperator::Eq => Compare::Equal,
        BinaryOperator::NotEq => Compare::NotEqual,
        BinaryOperator::Lt => Compare::Less,
        BinaryOperator::LtEq => Compare::LessOrEqual,
        BinaryOperator::Gt => Compare::Greater,
        BinaryOperator::GtEq => Compare::GreaterOrEqual,
        _ => return None,
    };
    let found = OPERATORS.iter().find(|(known, ..)| *known == compare);
    found.map(|(_, any, every)| if all { *every } else { *any })
}

/// The functions of this file.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let both = |(compare, any, every): (Compare, &'static str, &'static str)| {
        [(any, false), (every, true)].map(|(name, all)| {
            let signature = Signature::user_defined(Volatility::Immutable);
            Arc::new(ScalarUDF::from(Quantified { name, compare, all, signature }))
        })
    };
    OPERATORS.into_iter().flat_map(both).collect()
}

/// Whether a function is one of these: of a value and an array.
pub fn is_quantified(function: &ScalarUDF) -> bool {
    function.inner().downcast_ref::<Quantified>().is_some()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    name: &'static str,
    compare: Compare,
    all: bool,
    signature: Signature,
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// A value and a list of one type; text that is a list is one.
fn coerce(types: &[DataType]) -> Option<Vec<DataType>> {
    let [value, list] = types else { return None };
    let item = match list {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().clone()
        }
        DataType::Utf8 | DataType::Null => DataType::Null,
        _ => return None,
    };
    let common = match (value, &item) {
        (value, item) if value == item => value.clone(),
        (DataType::Null, item) => item.clone(),
        (value, DataType::Null) => value.clone(),
        (DataType::Utf8, item) => item.clone(),
        (_, DataType::Utf8) => return None,
        (value, item) => super::real::common(value, item).or_else(|| comparison_coercion(value, item))?,
    };
    let common = if common == DataType::Null { DataType::Utf8 } else { common };
    Some(vec![common.clone(), list_of(common)])
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        // An error here would be replaced by DataFusion's own words: it comes with the type.
        Ok(coerce(types).unwrap_or_else(|| types.to_vec()))
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match coerce(types) {
            Some(_) => Ok(DataType::Boolean),
            None => Err(no_such(self.symbol(), &shown(types))),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name, self.return_type(&types)?, true)))
    }

    fn simplify(&self, mut args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let negated = match (self.compare, self.all) {
            (Compare::Equal, false) => false,
            (Compare::NotEqual, true) => true,
            _ => return Ok(ExprSimplifyResult::Original(args)),
        };
        let [value, list] = args.as_mut_slice() else { return Ok(ExprSimplifyResult::Original(args)) };
        let Some(items) = constant_items(list) else { return Ok(ExprSimplifyResult::Original(args)) };
        let value = Box::new(std::mem::take(value));
        Ok(ExprSimplifyResult::Simplified(match items.is_empty() {
            true => Expr::Literal(ScalarValue::Boolean(Some(negated)), None),
            false => Expr::InList(InList { expr: value, list: items, negated }),
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args.args.into_iter().map(|a| a.into_array(rows)).collect::<Result<Vec<_>>>()?;
        let [values, lists] = columns.as_slice() else { return internal_err!("a value and an array") };
        let found = self.compared(values, lists)?;
        match constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?)),
            false => Ok(ColumnarValue::Array(Arc::new(found))),
        }
    }
}

/// The elements of a constant list whose own form tells them apart.
fn constant_items(list: &Expr) -> Option<Vec<Expr>> {
    match list {
        Expr::Literal(ScalarValue::List(list), _) if list.is_valid(0) => {
            let items = list.value(0);
            if matches!(items.data_type(), DataType::Interval(_) | DataType::List(_)) {
                return None;
            }
            let item = |i| ScalarValue::try_from_array(&items, i).ok().map(|item| Expr::Literal(item, None));
            (0..items.len()).map(item).collect()
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "make_array" => {
            let plain = |arg: &Expr| matches!(arg, Expr::Literal(value, _) if !is_nested(&value.data_type()));
            args.iter().all(plain).then(|| args.clone())
        }
        _ => None,
    }
}

fn is_nested(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::List(_) | DataType::Null)
}

/// The types that an error names: the value's and the element's.
fn shown(types: &[DataType]) -> Vec<DataType> {
    let element = |t: &DataType| match t {
        DataType::List(item) => item.data_type().clone(),
        other => other.clone(),
    };
    types.iter().map(element).collect()
}

impl Quantified {
    fn symbol(&self) -> &'static str {
        match self.compare {
            Compare::Equal => "=",
            Compare::NotEqual => "<>",
            Compare::Less => "<",
            Compare::LessOrEqual => "<=",
            Compare::Greater => ">",
            Compare::GreaterOrEqual => ">=",
        }
    }

    fn compared(&self, values: &ArrayRef, lists: &ArrayRef) -> Result<BooleanArray> {
        let lists = lists.as_list::<i32>();
        // Each value beside each element of its row's list.
        let offsets = lists.value_offsets();
        let rows = (0..lists.len()).flat_map(|row| {
            let length = if lists.is_valid(row) { (offsets[row + 1] - offsets[row]) as usize } else { 0 };
            std::iter::repeat_n(row as u32, length)
        });
        let indices = (0..lists.len()).filter(|row| lists.is_valid(*row));
        let indices = indices.flat_map(|row| offsets[row] as u32..offsets[row + 1] as u32);
        let values = take(&comparable(values)?, &rows.collect::<UInt32Array>(), None)?;
        let elements = take(&comparable(lists.values())?, &indices.collect::<UInt32Array>(), None)?;
        let compare = make_comparator(&values, &elements, SortOptions::default())?;
        let mut at = 0;
        let found = (0..lists.len()).map(|row| {
            let length = if lists.is_valid(row) { (offsets[row + 1] - offsets[row]) as usize } else { 0 };
            let pairs = at..at + length;
            at += length;
            lists.is_valid(row).then(|| self.row(pairs, &values, &elements, &compare))?
        });
        Ok(found.collect())
    }

    /// What the comparisons of a row say together.
    fn row(
        &self,
        mut pairs: std::ops::Range<usize>,
        values: &ArrayRef,
        elements: &ArrayRef,
        compare: &dyn Fn(usize, usize) -> Ordering,
    ) -> Option<bool> {
        let known = |i: &usize| values.is_valid(*i) && elements.is_valid(*i);
        let open = pairs.clone().any(|i| !known(&i));
        let decided = pairs.any(|i| known(&i) && self.compare.holds(compare(i, i)) != self.all);
        match decided {
            true => Some(!self.all),
            false if open => None,
            false => Some(self.all),
        }
    }
}

/// A column whose own order is PostgreSQL's: intervals by length, one zero.
fn comparable(column: &ArrayRef) -> Result<ArrayRef> {
    Ok(match column.data_type() {
        DataType::Interval(_) => super::interval::lengths(column),
        DataType::Float32 => {
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(|v| v + 0.0))
        }
        DataType::Float64 => {
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(|v| v + 0.0))
        }
        _ => Arc::clone(column),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::Int64Type;

    #[test]
    fn nulls_leave_answers_open() {
        let of = |op: BinaryOperator, all: bool, value: Option<i64>, list: Option<Vec<Option<i64>>>| {
            let name = name_of(&op, all).expect("an operator");
            let function = functions().into_iter().find(|f| f.name() == name).expect("its function");
            let quantified = function.inner().downcast_ref::<Quantified>().expect("one of these");
            let values: ArrayRef = Arc::new(Int64Array::from(vec![value]));
            let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([list]));
            let found = quantified.compared(&values, &lists).expect("numbers");
            found.is_valid(0).then(|| found.value(0))
        };
        use BinaryOperator::{Eq, Lt, NotEq};
        let list = |items: &[Option<i64>]| Some(items.to_vec());
        assert_eq!(of(Eq, false, Some(1), list(&[Some(1), None])), Some(true));
        assert_eq!(of(Eq, false, Some(2), list(&[Some(1), None])), None);
        assert_eq!(of(Eq, false, None, list(&[])), Some(false));
        assert_eq!(of(Eq, false, Some(1), None), None);
        assert_eq!(of(NotEq, true, Some(2), list(&[Some(1), None])), None);
        assert_eq!(of(NotEq, true, Some(1), list(&[Some(1), None])), Some(false));
        assert_eq!(of(Lt, true, Some(1), list(&[Some(2), Some(3)])), Some(true));
        assert_eq!(of(Lt, false, None, list(&[Some(2)])), None);
    }
}

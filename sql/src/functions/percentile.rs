//! Ordered-set aggregates as functions of the sorted list of their input: `percentile_cont`,
//! `percentile_disc`, `mode`. NULL elements don't count.

use super::error::failure;
use super::scalar::{Function, Kernel};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, UInt32Array, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat, filter, is_not_null, take};
use arrow::datatypes::{DataType, Field, Float64Type};
use datafusion_common::{Result, ScalarValue, internal_err};
use std::sync::Arc;
use weir_catalog::SqlState;

/// `percentile_cont(fraction) WITHIN GROUP (ORDER BY x)` of the list and the fraction.
pub const PERCENTILE_CONT: &str = "weir_percentile_cont";
/// `percentile_disc`.
pub const PERCENTILE_DISC: &str = "weir_percentile_disc";
/// `mode`, of the list alone.
pub const MODE: &str = "weir_mode";

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new(PERCENTILE_CONT, coerce_cont, |t, _| by_fractions(t), Kernel::Columns(continuous)),
        Function::new(PERCENTILE_DISC, coerce_disc, |t, _| by_fractions(t), Kernel::Columns(discrete)),
        Function::new(MODE, |t| Some(t.to_vec()), |t, _| item_type(&t[0]), Kernel::Columns(most_frequent)),
    ]
}

fn item_type(list: &DataType) -> DataType {
    match list {
        DataType::List(item) => item.data_type().clone(),
        other => other.clone(),
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// An element, or a list of them where there is a list of fractions.
fn by_fractions(types: &[DataType]) -> DataType {
    match &types[1] {
        DataType::List(_) => list_of(item_type(&types[0])),
        _ => item_type(&types[0]),
    }
}

fn fraction_type(given: &DataType) -> Option<DataType> {
    match given {
        DataType::List(_) => Some(list_of(DataType::Float64)),
        t if t.is_numeric() || *t == DataType::Null => Some(DataType::Float64),
        _ => None,
    }
}

fn coerce_disc(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [list @ DataType::List(_), fraction] => Some(vec![list.clone(), fraction_type(fraction)?]),
        _ => None,
    }
}

fn coerce_cont(types: &[DataType]) -> Option<Vec<DataType>> {
    let number = item_type(types.first()?).is_numeric();
    Some(vec![list_of(DataType::Float64), coerce_disc(types)?.pop()?]).filter(|_| number)
}

/// The fractions of a row; none if it has none.
fn fractions(column: &ArrayRef, row: usize) -> Result<Option<Vec<Option<f64>>>> {
    if column.is_null(row) {
        return Ok(None);
    }
    let values = match column.data_type() {
        DataType::List(_) => column.as_list::<i32>().value(row),
        _ => column.slice(row, 1),
    };
    let values: Vec<Option<f64>> = values.as_primitive::<Float64Type>().iter().collect();
    match values.iter().flatten().find(|f| !(0.0..=1.0).contains(*f)) {
        Some(f) => {
            let message = format!("percentile value {f} is not between 0 and 1");
            Err(failure(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))
        }
        None => Ok(Some(values)),
    }
}

/// For each row `pick`s a value a fraction out of the elements that are not NULL.
fn picked(
    args: &[ArrayRef],
    output: &DataType,
    pick: impl Fn(&ArrayRef, &[Option<f64>]) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    let lists = args[0].as_list::<i32>();
    let many = matches!(args[1].data_type(), DataType::List(_));
    let item = if many { item_type(output) } else { output.clone() };
    let mut parts = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let elements = lists.is_valid(row).then(|| lists.value(row));
        let elements = elements.map(|e| filter(&e, &is_not_null(&e)?)).transpose()?;
        parts.push(match (elements.filter(|e| !e.is_empty()), fractions(&args[1], row)?) {
            (Some(elements), Some(fractions)) => Some(pick(&elements, &fractions)?),
            _ => None,
        });
    }
    if !many {
        let nothing = new_null_array(&item, 1);
        let parts: Vec<&dyn Array> = parts.iter().map(|p| p.as_ref().unwrap_or(&nothing).as_ref()).collect();
        return Ok(concat(&parts)?);
    }
    let (DataType::List(field), valid) = (output, NullBuffer::from_iter(parts.iter().map(Option::is_some)))
    else {
        return internal_err!("several fractions give a list");
    };
    let nothing = new_null_array(&item, 0);
    let parts: Vec<&dyn Array> = parts.iter().map(|p| p.as_ref().unwrap_or(&nothing).as_ref()).collect();
    let offsets = OffsetBuffer::from_lengths(parts.iter().map(|p| p.len()));
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, concat(&parts)?, Some(valid))?))
}

fn discrete(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    picked(args, output, |elements, fractions| {
        let place = |f: &Option<f64>| f.map(|f| ((f * elements.len() as f64).ceil() as u32).max(1) - 1);
        let places: UInt32Array = fractions.iter().map(place).collect();
        Ok(take(elements, &places, None)?)
    })
}

fn continuous(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    picked(args, output, |elements, fractions| {
        let elements = cast(elements, &DataType::Float64)?;
        let values = elements.as_primitive::<Float64Type>().values();
        let at = |f: f64| {
            let place = f * (values.len() - 1) as f64;
            let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
            if place.fract() == 0.0 { low } else { low + place.fract() * (high - low) }
        };
        let found: Float64Array = fractions.iter().map(|f| f.map(at)).collect();
        Ok(Arc::new(found) as ArrayRef)
    })
}

/// Of several that are equally frequent, the first in order.
fn most_frequent(args: &[ArrayRef], output: &DataType) -> Result<ArrayRef> {
    let lists = args[0].as_list::<i32>();
    let mut modes = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let elements = if lists.is_valid(row) { lists.value(row) } else { new_null_array(output, 0) };
        let mut best: (usize, Option<ScalarValue>) = (0, None);
        let mut run: (usize, Option<ScalarValue>) = (0, None);
        for at in (0..elements.len()).filter(|at| elements.is_valid(*at)) {
            let value = Some(ScalarValue::try_from_array(&elements, at)?);
            run = if run.1 == value { (run.0 + 1, value) } else { (1, value) };
            if run.0 > best.0 {
                best = run.clone();
            }
        }
        modes.push(match best.1 {
            Some(value) => value,
            None => ScalarValue::try_from(output)?,
        });
    }
    ScalarValue::iter_to_array(modes)
}

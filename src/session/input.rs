//! Text to a value: parameters in text format and the lines of COPY, read as casts from text are.

use super::SessionError;
use crate::serve::ServeError;
use arrow::array::{ArrayRef, ListArray, StringArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use std::sync::Arc;
use weir_sql::functions::cast::cast_column;

/// The value that `text` is of the field's type.
pub fn parse_text(field: &Field, text: &str) -> Result<ScalarValue, SessionError> {
    let column = parse_column(field, StringArray::from(vec![text]))?;
    Ok(ScalarValue::try_from_array(&column, 0).map_err(ServeError::from)?)
}

/// The values that texts are of the field's type.
pub fn parse_column(field: &Field, texts: StringArray) -> Result<ArrayRef, SessionError> {
    let texts = Arc::new(texts) as ArrayRef;
    Ok(cast_column(&texts, field).map_err(ServeError::from)?)
}

/// A list of these elements.
pub fn list_value(item: &Arc<Field>, values: Vec<ScalarValue>) -> Result<ScalarValue, SessionError> {
    let lengths = OffsetBuffer::from_lengths([values.len()]);
    let elements = match values.is_empty() {
        true => new_empty_array(item.data_type()),
        false => ScalarValue::iter_to_array(values).map_err(ServeError::from)?,
    };
    let list = ListArray::try_new(Arc::clone(item), lengths, elements, None).map_err(ServeError::from)?;
    Ok(ScalarValue::List(Arc::new(list)))
}

#[cfg(test)]
#[path = "tests/input.rs"]
mod tests;

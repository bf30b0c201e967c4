//! Functions whose result may be many times their argument: what a batch of rows makes together is
//! bounded, for it is made at once, before any limit of a query is asked and without a chance to be
//! cancelled.

use super::error::external;
use crate::error::SqlError;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::kernels::length::length;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::sync::Arc;
use weir_catalog::SqlState;

/// What one value may have, as in PostgreSQL.
const VALUE_BYTES_MAX: u64 = 1 << 30;
/// What the values of a batch may have together, where they are several.
const BATCH_BYTES_MAX: u64 = 256 << 20;

/// The functions of this file.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    let bounded = |inner: Arc<ScalarUDF>, size| Arc::new(ScalarUDF::from(Bounded { inner, size }));
    vec![
        bounded(datafusion_functions::string::repeat(), Size::Repeated),
        bounded(datafusion_functions::unicode::lpad(), Size::Padded),
        bounded(datafusion_functions::unicode::rpad(), Size::Padded),
    ]
}

/// How many bytes a result has, of the first two arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Size {
    /// The first so many times.
    Repeated,
    /// So many characters.
    Padded,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    size: Size,
}

impl Bounded {
    fn check(&self, args: &ScalarFunctionArgs) -> Result<()> {
        let [text, times, ..] = args.args.as_slice() else { return Ok(()) };
        // Of constants one value is made, however many rows there are.
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let (lengths, times) = (Numbers::lengths(text)?, Numbers::of(times)?);
        let mut total = 0u64;
        for row in 0..rows {
            let times = u64::try_from(times.get(row)).unwrap_or(0);
            let bytes = match self.size {
                Size::Repeated => times.saturating_mul(u64::try_from(lengths.get(row)).unwrap_or(0)),
                Size::Padded => times,
            };
            if bytes >= VALUE_BYTES_MAX {
                return Err(external(SqlError::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    "requested length too large",
                )));
            }
            total = total.saturating_add(bytes);
        }
        if rows > 1 && total > BATCH_BYTES_MAX {
            let message =
                format!("out of memory: {} would make {total} bytes of {rows} rows", self.inner.name());
            let hint = "A batch of rows is computed at once; ask for fewer rows or shorter values.";
            return Err(external(SqlError::new(SqlState::OUT_OF_MEMORY, message).hint(hint)));
        }
        Ok(())
    }
}

/// Whole numbers by row; 0 for NULL.
enum Numbers {
    Each(Int64Array),
    All(i64),
}

impl Numbers {
    fn of(value: &ColumnarValue) -> Result<Self> {
        Ok(match value.cast_to(&DataType::Int64, None)? {
            ColumnarValue::Array(array) => Self::Each(array.as_primitive::<Int64Type>().clone()),
            ColumnarValue::Scalar(ScalarValue::Int64(Some(number))) => Self::All(number),
            ColumnarValue::Scalar(_) => Self::All(0),
        })
    }

    /// The lengths of texts, in bytes.
    fn lengths(value: &ColumnarValue) -> Result<Self> {
        match value {
            ColumnarValue::Scalar(text) => {
                Ok(Self::All(text.try_as_str().flatten().map_or(0, |text| text.len() as i64)))
            }
            ColumnarValue::Array(array) => Self::of(&ColumnarValue::Array(length(array)?)),
        }
    }

    fn get(&self, row: usize) -> i64 {
        match self {
            Self::Each(numbers) if numbers.is_null(row) => 0,
            Self::Each(numbers) => numbers.value(row),
            Self::All(number) => *number,
        }
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.check(&args)?;
        self.inner.invoke_with_args(args)
    }
}

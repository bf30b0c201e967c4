//! Random columns of every type that can be stored, for tests of codecs, tables and stores.

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

/// A generator whose seed is printed, so that a failure can be repeated with `WEIR_TEST_SEED`.
pub fn rng() -> StdRng {
    let seed = match std::env::var("WEIR_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => rand::random::<u64>(),
    };
    println!("WEIR_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// A type of each kind, nested ones too.
pub fn all_types() -> Vec<DataType> {
    let item = |t| Arc::new(Field::new("item", t, true));
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8, true),
        Field::new("c", DataType::List(item(DataType::Int64)), true),
    ]);
    vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Decimal128(38, 10),
        DataType::Decimal128(12, 2),
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::Binary,
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::List(item(DataType::Int32)),
        DataType::List(item(DataType::Utf8)),
        DataType::List(item(DataType::List(item(DataType::Boolean)))),
        DataType::Struct(fields.clone()),
        DataType::List(item(DataType::Struct(fields))),
    ]
}

/// A random column: small values and extremes, a third NULL if `nulls`.
pub fn column(rng: &mut StdRng, data_type: &DataType, rows: usize, nulls: bool) -> ArrayRef {
    macro_rules! primitive {
        ($t:ty, $value:expr) => {{
            let values: Vec<Option<<$t as ArrowPrimitiveType>::Native>> =
                (0..rows).map(|_| (!(nulls && rng.random_ratio(1, 3))).then(|| $value)).collect();
            Arc::new(PrimitiveArray::<$t>::from(values).with_data_type(data_type.clone())) as ArrayRef
        }};
    }
    macro_rules! integer {
        ($t:ty, $native:ty) => {
            primitive!(
                $t,
                match rng.random_range(0..8) {
                    0 => <$native>::MIN,
                    1 => <$native>::MAX,
                    2 => rng.random(),
                    _ => rng.random_range(0..5) as $native,
                }
            )
        };
    }
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => Arc::new(BooleanArray::from(
            (0..rows).map(|_| (!(nulls && rng.random_ratio(1, 3))).then(|| rng.random())).collect::<Vec<_>>(),
        )),
        DataType::Int8 => integer!(Int8Type, i8),
        DataType::Int16 => integer!(Int16Type, i16),
        DataType::Int32 => integer!(Int32Type, i32),
        DataType::Int64 => integer!(Int64Type, i64),
        DataType::UInt8 => integer!(UInt8Type, u8),
        DataType::UInt16 => integer!(UInt16Type, u16),
        DataType::UInt32 => integer!(UInt32Type, u32),
        DataType::UInt64 => integer!(UInt64Type, u64),
        DataType::Date32 => integer!(Date32Type, i32),
        DataType::Time64(_) => integer!(Time64MicrosecondType, i64),
        DataType::Timestamp(_, _) => integer!(TimestampMicrosecondType, i64),
        DataType::Decimal128(p, _) => {
            let most = 10i128.pow(u32::from(*p)) - 1;
            primitive!(
                Decimal128Type,
                match rng.random_range(0..6) {
                    0 => most,
                    1 => -most,
                    _ => rng.random_range(-3..3),
                }
            )
        }
        DataType::Float32 => primitive!(Float32Type, float(rng) as f32),
        DataType::Float64 => primitive!(Float64Type, float(rng)),
        DataType::Interval(_) => primitive!(
            IntervalMonthDayNanoType,
            IntervalMonthDayNano::new(rng.random_range(-2..2), rng.random(), rng.random())
        ),
        DataType::Utf8 => Arc::new(StringArray::from_iter(
            (0..rows).map(|_| (!(nulls && rng.random_ratio(1, 3))).then(|| text(rng))),
        )),
        DataType::Binary => Arc::new(BinaryArray::from_iter(
            (0..rows).map(|_| (!(nulls && rng.random_ratio(1, 3))).then(|| bytes(rng))),
        )),
        DataType::List(field) => {
            let lengths: Vec<usize> = (0..rows).map(|_| rng.random_range(0..4)).collect();
            let child = column(rng, field.data_type(), lengths.iter().sum(), nulls);
            let valid = validity(rng, rows, nulls);
            Arc::new(ListArray::new(field.clone(), OffsetBuffer::from_lengths(lengths), child, valid))
        }
        DataType::Struct(fields) => {
            let children = fields.iter().map(|f| column(rng, f.data_type(), rows, nulls)).collect();
            Arc::new(StructArray::new(fields.clone(), children, validity(rng, rows, nulls)))
        }
        other => panic!("{other} can't be stored"),
    }
}

fn validity(rng: &mut StdRng, rows: usize, nulls: bool) -> Option<NullBuffer> {
    nulls.then(|| NullBuffer::from((0..rows).map(|_| !rng.random_ratio(1, 3)).collect::<Vec<_>>()))
}

fn float(rng: &mut StdRng) -> f64 {
    const CORNERS: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, 1e30, -1e-30];
    if rng.random() { CORNERS[rng.random_range(0..CORNERS.len())] } else { rng.random_range(-3.0..3.0) }
}

fn text(rng: &mut StdRng) -> String {
    const LETTERS: [char; 6] = ['\0', '\u{1}', 'a', 'b', 'é', '水'];
    let length = if rng.random_ratio(1, 50) { 300 } else { rng.random_range(0..5) };
    (0..length).map(|_| LETTERS[rng.random_range(0..LETTERS.len())]).collect()
}

fn bytes(rng: &mut StdRng) -> Vec<u8> {
    const BYTES: [u8; 5] = [0, 1, 0xfe, 0xff, b'a'];
    (0..rng.random_range(0..5)).map(|_| BYTES[rng.random_range(0..BYTES.len())]).collect()
}

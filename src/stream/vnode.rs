//! Vnodes: 256 slices of key space, the unit of placement.
//!
//! The hash decides where state lives on disk, so it is our own and never changes:
//!
//! ```text
//!   hash of a row  = fold over the key columns, in order: h = mix(h ^ hash(value)), h0 = SEED
//!   hash(NULL)     = NULL_HASH
//!   hash(integer)  = mix(two's complement, sign-extended to 64 bits); dates, times and
//!                    timestamps as their integers; booleans as 0 and 1
//!   hash(decimal)  = mix(low 64 bits) ^ high 64 bits, of the unscaled value
//!   hash(float)    = mix(bits as f64; -0.0 as 0.0; every NaN as one)
//!   hash(bytes)    = xxh3_64 with seed 0
//!   hash(interval) = mix(months) ^ mix(days << 1) ^ mix(nanoseconds << 2)
//!   hash(list)     = fold over its elements; hash(struct) = fold over its fields
//!   vnode          = top 8 bits of the row's hash
//! ```
//! Golden values are held by a test.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use std::ops::Range;

/// How many vnodes there are.
pub const VNODE_COUNT: usize = 256;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const NULL_HASH: u64 = 0x5851_f42d_4c95_7f2d;

/// A slice of key space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vnode(pub u8);

impl Vnode {
    /// The vnode of rows whose key hashes to `hash`.
    pub fn of_hash(hash: u64) -> Vnode {
        Vnode((hash >> 56) as u8)
    }

    /// The vnode of everything in a state table that is not distributed.
    pub const SINGLE: Vnode = Vnode(0);
}

/// The vnodes of one actor: a contiguous range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnodeSet {
    range: Range<usize>,
}

impl VnodeSet {
    /// All vnodes.
    pub fn all() -> Self {
        Self { range: 0..VNODE_COUNT }
    }

    /// The share of actor `index` among `parallelism`.
    pub fn share(index: usize, parallelism: usize) -> Self {
        assert!(index < parallelism && parallelism <= VNODE_COUNT, "share {index} of {parallelism}");
        Self { range: index * VNODE_COUNT / parallelism..(index + 1) * VNODE_COUNT / parallelism }
    }

    /// Whether `vnode` is in it.
    pub fn contains(&self, vnode: Vnode) -> bool {
        self.range.contains(&usize::from(vnode.0))
    }

    /// The vnodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Vnode> + use<> {
        self.range.clone().map(|v| Vnode(v as u8))
    }

    /// The actor that has `vnode` among `parallelism`.
    pub fn owner(vnode: Vnode, parallelism: usize) -> usize {
        // The inverse of `share`: the greatest index whose range starts at or before the vnode.
        let v = usize::from(vnode.0);
        ((v + 1) * parallelism).div_ceil(VNODE_COUNT) - 1
    }
}

#[inline]
fn mix(mut x: u64) -> u64 {
    // The finalizer of splitmix64 (Steele, Lea, Flood 2014).
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn fold(hashes: &mut [u64], column: &dyn Array, value: impl Fn(usize) -> u64) {
    if column.null_count() == 0 {
        for (i, h) in hashes.iter_mut().enumerate() {
            *h = mix(*h ^ value(i));
        }
    } else {
        for (i, h) in hashes.iter_mut().enumerate() {
            *h = mix(*h ^ if column.is_valid(i) { value(i) } else { NULL_HASH });
        }
    }
}

/// The hash of a float such that values that are equal in SQL hash alike.
fn float_bits(v: f64) -> u64 {
    if v.is_nan() {
        f64::NAN.to_bits()
    } else if v == 0.0 {
        0
    } else {
        v.to_bits()
    }
}

/// Hashes `rows` rows of the key `columns`, into `hashes` (cleared first).
pub fn hash_columns(columns: &[ArrayRef], rows: usize, hashes: &mut Vec<u64>) {
    hashes.clear();
    hashes.resize(rows, SEED);
    for column in columns {
        hash_column(column, hashes);
    }
}

fn hash_column(column: &ArrayRef, hashes: &mut [u64]) {
    macro_rules! integers {
        ($t:ty) => {{
            let values = column.as_primitive::<$t>().values();
            fold(hashes, column, |i| mix(values[i] as i64 as u64))
        }};
    }
    match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean().values();
            fold(hashes, column, |i| mix(u64::from(values.value(i))))
        }
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Date32 => integers!(Date32Type),
        DataType::Time64(TimeUnit::Microsecond) => integers!(Time64MicrosecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => integers!(TimestampMicrosecondType),
        DataType::Decimal128(_, _) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            fold(hashes, column, |i| mix(values[i] as u64) ^ (values[i] >> 64) as u64)
        }
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>().values();
            fold(hashes, column, |i| mix(float_bits(f64::from(values[i]))))
        }
        DataType::Float64 => {
            let values = column.as_primitive::<Float64Type>().values();
            fold(hashes, column, |i| mix(float_bits(values[i])))
        }
        DataType::Utf8 => {
            let values = column.as_string::<i32>();
            fold(hashes, column, |i| xxhash_rust::xxh3::xxh3_64(values.value(i).as_bytes()))
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            fold(hashes, column, |i| xxhash_rust::xxh3::xxh3_64(values.value(i)))
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let values = column.as_primitive::<IntervalMonthDayNanoType>().values();
            fold(hashes, column, |i| {
                let v = values[i];
                mix(v.months as u64) ^ mix((v.days as u64) << 1) ^ mix((v.nanoseconds as u64) << 2)
            })
        }
        DataType::Null => hashes.iter_mut().for_each(|h| *h = mix(*h ^ NULL_HASH)),
        _ => hash_nested(column, hashes),
    }
}

/// Lists and structs: by what they hold. Other types are refused as keys by the planner.
fn hash_nested(column: &ArrayRef, hashes: &mut [u64]) {
    match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let mut elements = Vec::new();
            hash_columns(std::slice::from_ref(list.values()), list.values().len(), &mut elements);
            let offsets = list.value_offsets();
            fold(hashes, column, |i| {
                elements[offsets[i] as usize..offsets[i + 1] as usize].iter().fold(SEED, |h, e| mix(h ^ e))
            })
        }
        DataType::Struct(_) => {
            let mut fields = Vec::new();
            hash_columns(column.as_struct().columns(), column.len(), &mut fields);
            fold(hashes, column, |i| fields[i])
        }
        other => unreachable!("{other} is refused as a key by the planner"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn hashes_never_change() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(0), Some(-1), None, Some(1000)])),
            Arc::new(StringArray::from(vec![Some("a"), Some(""), Some("weir"), None])),
        ];
        let mut hashes = Vec::new();
        hash_columns(&columns, 4, &mut hashes);
        assert_eq!(hashes, GOLDEN);
    }

    const GOLDEN: [u64; 4] = [
        5_305_031_660_245_769_502,
        2_914_100_796_917_313_977,
        16_226_352_855_802_672_149,
        11_544_139_016_306_631_957,
    ];

    #[test]
    fn owner_is_the_inverse_of_share() {
        for parallelism in [1, 2, 3, 4, 7, 100, 256] {
            for index in 0..parallelism {
                for vnode in VnodeSet::share(index, parallelism).iter() {
                    assert_eq!(VnodeSet::owner(vnode, parallelism), index, "{vnode:?} of {parallelism}");
                }
            }
        }
    }
}

//! The two ways in which [`super::groups::Groups`] keeps keys: words, and bytes in an arena. Keys that are
//! handed over are copied as they lie ([`CopiedKeys`]): to make columns of them costs three times as much.

use super::accumulator::kept;
use super::groups::{Lookup, NO_GROUP, Slots, find};
use crate::dataflow::operator::OperatorError;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::HashTable;
use std::ops::Range;
use std::sync::Arc;

/// Keys whose columns fit in a word each: `columns` words a group, then the mask of NULLs.
pub(super) struct WordKeys {
    types: Vec<DataType>,

    words: Vec<u64>,
    scratch: Vec<u64>,
}

impl WordKeys {
    /// Whether keys of these types can be words.
    pub fn supports(types: &[DataType]) -> bool {
        types.len() <= 64
            && types.iter().all(|t| {
                use DataType::{
                    Boolean, Date32, Float32, Float64, Int8, Int16, Int32, Int64, UInt32, UInt64,
                };
                matches!(t, Boolean | Int8 | Int16 | Int32 | Int64 | UInt32 | UInt64)
                    || matches!(t, Date32 | Float32 | Float64)
                    || matches!(t, DataType::Time64(TimeUnit::Microsecond))
                    || matches!(t, DataType::Timestamp(TimeUnit::Microsecond, _))
            })
    }

    pub fn new(types: &[DataType]) -> Self {
        Self { types: types.to_vec(), words: Vec::new(), scratch: Vec::new() }
    }

    fn stride(&self) -> usize {
        self.types.len() + 1
    }

    pub fn find_or_insert(&mut self, columns: &[ArrayRef], slots: &mut Slots<'_>, lookup: &mut Lookup) {
        let mut scratch = std::mem::take(&mut self.scratch);
        pack_all(columns, lookup.hashes.len(), &mut scratch);
        // The common widths are compared as arrays, of a length known to the compiler.
        match self.stride() {
            2 => find_or_insert_words::<2>(&mut self.words, &scratch, slots, lookup),
            3 => find_or_insert_words::<3>(&mut self.words, &scratch, slots, lookup),
            4 => find_or_insert_words::<4>(&mut self.words, &scratch, slots, lookup),
            5 => find_or_insert_words::<5>(&mut self.words, &scratch, slots, lookup),
            stride => find_or_insert_slices(&mut self.words, &scratch, stride, slots, lookup),
        }
        self.scratch = scratch;
    }

    pub fn find(&self, columns: &[ArrayRef], table: &HashTable<u32>, lookup: &mut Lookup) {
        let mut packed = Vec::new();
        pack_all(columns, lookup.hashes.len(), &mut packed);
        let stride = self.stride();
        for (key, hash) in packed.chunks_exact(stride).zip(&lookup.hashes) {
            let group = find(table, *hash, |g| &self.words[g as usize * stride..][..stride] == key);
            lookup.groups.push(group.unwrap_or(NO_GROUP));
        }
    }

    pub fn copied(&self, groups: &[u32]) -> CopiedKeys {
        let stride = self.stride();
        let mut words = Vec::with_capacity(groups.len() * stride);
        groups.iter().for_each(|g| words.extend_from_slice(&self.words[*g as usize * stride..][..stride]));
        CopiedKeys::Words { types: self.types.clone(), words }
    }

    pub fn keep(&mut self, groups: &[u32]) {
        let stride = self.stride();
        let words = |group: &u32| self.words[*group as usize * stride..][..stride].iter().copied();
        self.words = groups.iter().flat_map(words).collect();
        self.scratch = Vec::new();
    }

    pub fn memory(&self) -> usize {
        (self.words.capacity() + self.scratch.capacity()) * 8
    }
}

fn find_or_insert_words<const N: usize>(
    words: &mut Vec<u64>,
    packed: &[u64],
    slots: &mut Slots<'_>,
    lookup: &mut Lookup,
) {
    let (packed, _) = packed.as_chunks::<N>();
    let mut last: Option<(&[u64; N], u32)> = None;
    for (key, hash) in packed.iter().zip(&lookup.hashes) {
        let group = match last {
            // Rows of one key often come together.
            Some((last_key, group)) if last_key == key => group,
            _ => {
                let (known, _) = words.as_chunks::<N>();
                match slots.find(*hash, |g| known[g as usize] == *key) {
                    Some(group) => group,
                    None => insert_words(words, key, slots, *hash),
                }
            }
        };
        last = Some((key, group));
        lookup.groups.push(group);
    }
}

fn find_or_insert_slices(
    words: &mut Vec<u64>,
    packed: &[u64],
    stride: usize,
    slots: &mut Slots<'_>,
    lookup: &mut Lookup,
) {
    for (key, hash) in packed.chunks_exact(stride).zip(&lookup.hashes) {
        let group = match slots.find(*hash, |g| &words[g as usize * stride..][..stride] == key) {
            Some(group) => group,
            None => insert_words(words, key, slots, *hash),
        };
        lookup.groups.push(group);
    }
}

fn insert_words(words: &mut Vec<u64>, key: &[u64], slots: &mut Slots<'_>, hash: u64) -> u32 {
    let (group, beyond) = slots.insert(hash);
    if beyond {
        words.extend_from_slice(key);
    } else {
        words[group as usize * key.len()..][..key.len()].copy_from_slice(key);
    }
    group
}

/// Packs the rows of `columns`, each row its words and the NULL mask.
fn pack_all(columns: &[ArrayRef], rows: usize, packed: &mut Vec<u64>) {
    let stride = columns.len() + 1;
    packed.clear();
    packed.resize(rows * stride, 0);
    for (index, column) in columns.iter().enumerate() {
        pack(column, index, stride, packed);
        if let Some(nulls) = column.nulls().filter(|n| n.null_count() > 0) {
            for row in (0..rows).filter(|row| nulls.is_null(*row)) {
                packed[row * stride + index] = 0;
                packed[row * stride + stride - 1] |= 1 << index;
            }
        }
    }
}

fn pack(column: &ArrayRef, index: usize, stride: usize, packed: &mut [u64]) {
    fn each<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        index: usize,
        stride: usize,
        packed: &mut [u64],
        word: impl Fn(T::Native) -> u64,
    ) {
        let values = column.as_primitive::<T>().values();
        for (row, value) in packed.chunks_exact_mut(stride).zip(values.iter()) {
            row[index] = word(*value);
        }
    }
    match column.data_type() {
        DataType::Boolean => {
            let values = column.as_boolean().values();
            for (row, value) in packed.chunks_exact_mut(stride).zip(values.iter()) {
                row[index] = u64::from(value);
            }
        }
        DataType::Int8 => each::<Int8Type>(column, index, stride, packed, |v| v as u64),
        DataType::Int16 => each::<Int16Type>(column, index, stride, packed, |v| v as u64),
        DataType::Int32 => each::<Int32Type>(column, index, stride, packed, |v| v as u64),
        DataType::Int64 => each::<Int64Type>(column, index, stride, packed, |v| v as u64),
        DataType::UInt32 => each::<UInt32Type>(column, index, stride, packed, u64::from),
        DataType::UInt64 => each::<UInt64Type>(column, index, stride, packed, |v| v),
        DataType::Date32 => each::<Date32Type>(column, index, stride, packed, |v| v as u64),
        DataType::Time64(_) => each::<Time64MicrosecondType>(column, index, stride, packed, |v| v as u64),
        DataType::Timestamp(..) => {
            each::<TimestampMicrosecondType>(column, index, stride, packed, |v| v as u64);
        }
        DataType::Float32 => {
            each::<Float32Type>(column, index, stride, packed, |v| u64::from(normal_f32(v).to_bits()));
        }
        DataType::Float64 => each::<Float64Type>(column, index, stride, packed, |v| normal_f64(v).to_bits()),
        other => unreachable!("{other} is not kept as a word"),
    }
}

/// The columns of keys that lie one after another.
fn unpack_all(types: &[DataType], words: &[u64]) -> Vec<ArrayRef> {
    let stride = types.len() + 1;
    let mask = |key: &[u64]| key[stride - 1];
    let keys = words.chunks_exact(stride);
    let any_null = keys.clone().fold(0, |all, key| all | mask(key));
    let column = |(index, data_type): (usize, &DataType)| {
        let nulls: Option<NullBuffer> = (any_null >> index & 1 == 1)
            .then(|| NullBuffer::from_iter(keys.clone().map(|key| mask(key) >> index & 1 == 0)));
        unpack(data_type, keys.clone().map(|key| key[index]), nulls)
    };
    types.iter().enumerate().map(column).collect()
}

fn unpack(data_type: &DataType, words: impl Iterator<Item = u64>, nulls: Option<NullBuffer>) -> ArrayRef {
    fn array<T: ArrowPrimitiveType>(
        words: impl Iterator<Item = u64>,
        nulls: Option<NullBuffer>,
        data_type: &DataType,
        value: impl Fn(u64) -> T::Native,
    ) -> ArrayRef {
        let values: Vec<T::Native> = words.map(value).collect();
        Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(data_type.clone()))
    }
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::new(words.map(|w| w != 0).collect(), nulls)),
        DataType::Int8 => array::<Int8Type>(words, nulls, data_type, |w| w as i8),
        DataType::Int16 => array::<Int16Type>(words, nulls, data_type, |w| w as i16),
        DataType::Int32 => array::<Int32Type>(words, nulls, data_type, |w| w as i32),
        DataType::Int64 => array::<Int64Type>(words, nulls, data_type, |w| w as i64),
        DataType::UInt32 => array::<UInt32Type>(words, nulls, data_type, |w| w as u32),
        DataType::UInt64 => array::<UInt64Type>(words, nulls, data_type, |w| w),
        DataType::Date32 => array::<Date32Type>(words, nulls, data_type, |w| w as i32),
        DataType::Time64(_) => array::<Time64MicrosecondType>(words, nulls, data_type, |w| w as i64),
        DataType::Timestamp(..) => array::<TimestampMicrosecondType>(words, nulls, data_type, |w| w as i64),
        DataType::Float32 => array::<Float32Type>(words, nulls, data_type, |w| f32::from_bits(w as u32)),
        DataType::Float64 => array::<Float64Type>(words, nulls, data_type, f64::from_bits),
        other => unreachable!("{other} is not kept as a word"),
    }
}

fn normal_f32(v: f32) -> f32 {
    if v.is_nan() { f32::NAN } else { v + 0.0 }
}

fn normal_f64(v: f64) -> f64 {
    if v.is_nan() { f64::NAN } else { v + 0.0 }
}

/// Keys of any type, as arrow-row's bytes one after another in an arena.
pub(super) struct ByteKeys {
    converter: Arc<RowConverter>,

    arena: Vec<u8>,
    /// Where each group's key lies.
    spans: Vec<(usize, u32)>,
    /// Bytes of the arena that belong to removed keys.
    garbage: usize,
    scratch: Rows,
}

/// Less garbage than this is never worth moving the keys.
const GARBAGE_MIN: usize = 1 << 20;

impl ByteKeys {
    pub fn new(types: &[DataType]) -> Result<Self, OperatorError> {
        let converter = RowConverter::new(types.iter().map(|t| SortField::new(t.clone())).collect())?;
        let scratch = converter.empty_rows(0, 0);
        let converter = Arc::new(converter);
        Ok(Self { converter, arena: Vec::new(), spans: Vec::new(), garbage: 0, scratch })
    }

    fn key(&self, group: u32) -> &[u8] {
        let (start, len) = self.spans[group as usize];
        &self.arena[start..start + len as usize]
    }

    pub fn find_or_insert(
        &mut self,
        columns: &[ArrayRef],
        slots: &mut Slots<'_>,
        lookup: &mut Lookup,
    ) -> Result<(), OperatorError> {
        self.scratch.clear();
        self.converter.append(&mut self.scratch, &normalize(columns))?;
        for row in 0..lookup.hashes.len() {
            let key = self.scratch.row(row);
            let hash = lookup.hashes[row];
            let group = match slots.find(hash, |g| self.key(g) == key.data()) {
                Some(group) => group,
                None => {
                    let (group, beyond) = slots.insert(hash);
                    let span = (self.arena.len(), key.data().len() as u32);
                    self.arena.extend_from_slice(key.data());
                    match beyond {
                        true => self.spans.push(span),
                        false => self.spans[group as usize] = span,
                    }
                    group
                }
            };
            lookup.groups.push(group);
        }
        Ok(())
    }

    pub fn find(
        &self,
        columns: &[ArrayRef],
        table: &HashTable<u32>,
        lookup: &mut Lookup,
    ) -> Result<(), OperatorError> {
        let rows = self.converter.convert_columns(&normalize(columns))?;
        for (row, hash) in rows.iter().zip(&lookup.hashes) {
            let group = find(table, *hash, |g| self.key(g) == row.data());
            lookup.groups.push(group.unwrap_or(NO_GROUP));
        }
        Ok(())
    }

    pub fn copied(&self, groups: &[u32]) -> CopiedKeys {
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(groups.len()));
        for group in groups {
            bytes.extend_from_slice(self.key(*group));
            ends.push(bytes.len());
        }
        CopiedKeys::Bytes { converter: Arc::clone(&self.converter), bytes, ends }
    }

    pub fn remove(&mut self, group: u32) {
        self.garbage += self.spans[group as usize].1 as usize;
        self.spans[group as usize].1 = 0;
        if self.garbage > GARBAGE_MIN && self.garbage > self.arena.len() / 2 {
            self.compact();
        }
    }

    pub fn keep(&mut self, groups: &[u32]) {
        self.spans = kept(&self.spans, groups);
        self.compact();
        self.scratch = self.converter.empty_rows(0, 0);
    }

    /// Moves the keys together.
    fn compact(&mut self) {
        let mut arena = Vec::with_capacity(self.spans.iter().map(|span| span.1 as usize).sum());
        for (start, len) in &mut self.spans {
            let key = &self.arena[*start..*start + *len as usize];
            *start = arena.len();
            arena.extend_from_slice(key);
        }
        self.arena = arena;
        self.garbage = 0;
    }

    pub fn memory(&self) -> usize {
        self.arena.capacity() + self.spans.capacity() * size_of::<(usize, u32)>() + self.scratch.size()
    }
}

/// Keys as they lay in their table: cheap to take, and made columns of where there is time.
pub(super) enum CopiedKeys {
    /// Without columns.
    None,
    Words {
        types: Vec<DataType>,
        words: Vec<u64>,
    },
    Bytes {
        converter: Arc<RowConverter>,
        bytes: Vec<u8>,
        ends: Vec<usize>,
    },
}

impl CopiedKeys {
    /// The columns of the keys `range`.
    pub fn columns(&self, range: Range<usize>) -> Result<Vec<ArrayRef>, ArrowError> {
        match self {
            CopiedKeys::None => Ok(Vec::new()),
            CopiedKeys::Words { types, words } => {
                let stride = types.len() + 1;
                Ok(unpack_all(types, &words[range.start * stride..range.end * stride]))
            }
            CopiedKeys::Bytes { converter, bytes, ends } => {
                let parser = converter.parser();
                let start = |key: usize| key.checked_sub(1).map_or(0, |before| ends[before]);
                let key = |key: usize| parser.parse(&bytes[start(key)..ends[key]]);
                converter.convert_rows(range.map(key))
            }
        }
    }
}

/// Floats such that those that are equal in SQL have the same bits.
fn normalize(columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let column = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Float32 => {
                Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(normal_f32))
            }
            DataType::Float64 => {
                Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(normal_f64))
            }
            _ => Arc::clone(column),
        }
    };
    columns.iter().map(column).collect()
}

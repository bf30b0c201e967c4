//! What a range of epochs comes to: the changes as a target takes them.

use crate::stream::ChangeBatch;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::error::ArrowError;
use arrow::row::{Row, RowConverter, SortField};
use hashbrown::HashMap;
use weir_catalog::sink::SinkType;

/// The insertions among `batch`, each as often as its diff says. What an append-only sink delivers;
/// deletions are there only where `force_append_only` lets them be dropped.
pub fn insertions(batch: &ChangeBatch) -> Result<RecordBatch, ArrowError> {
    let Some(diffs) = batch.diffs() else { return Ok(batch.rows().clone()) };
    let mut indices = Vec::with_capacity(diffs.len());
    for (row, diff) in diffs.iter().enumerate().filter(|(_, diff)| **diff > 0) {
        indices.extend(std::iter::repeat_n(row as u32, *diff as usize));
    }
    take_record_batch(batch.rows(), &UInt32Array::from(indices))
}

/// The net change of `batches` per key, in order of key. With [`SinkType::Upsert`] a key is
/// inserted (replaced) or deleted; with [`SinkType::Debezium`] what it was comes before what it is.
///
/// Where several rows of a key are left, the greatest by row order wins.
pub fn by_key(
    batches: &[ChangeBatch],
    key: &[usize],
    sink_type: SinkType,
) -> Result<Option<ChangeBatch>, ArrowError> {
    let Some(first) = batches.first() else { return Ok(None) };
    let rows = concat_batches(&first.schema(), batches.iter().map(ChangeBatch::rows))?;
    let diffs = batches.iter().flat_map(|b| (0..b.num_rows()).map(|row| b.diff(row)));

    let encode = |columns: &[usize]| {
        let fields = columns.iter().map(|c| SortField::new(rows.schema().field(*c).data_type().clone()));
        let arrays: Vec<_> = columns.iter().map(|c| rows.column(*c).clone()).collect();
        RowConverter::new(fields.collect())?.convert_columns(&arrays)
    };
    let keys = encode(key)?;
    let whole = encode(&(0..rows.num_columns()).collect::<Vec<_>>())?;
    let mut net: HashMap<Row<'_>, (u32, i64)> = HashMap::new();
    for (row, diff) in diffs.enumerate() {
        net.entry(whole.row(row)).or_insert((row as u32, 0)).1 += diff;
    }
    let mut left: Vec<(u32, i64)> = net.into_values().filter(|(_, diff)| *diff != 0).collect();
    // Key by key, deletions before insertions, the greatest row last.
    left.sort_unstable_by(|(a, da), (b, db)| {
        let (a, b) = (*a as usize, *b as usize);
        (keys.row(a), *da > 0, whole.row(a)).cmp(&(keys.row(b), *db > 0, whole.row(b)))
    });

    let (mut indices, mut signs) = (Vec::new(), Vec::new());
    for group in left.chunk_by(|a, b| keys.row(a.0 as usize) == keys.row(b.0 as usize)) {
        let deletions = group.partition_point(|(_, diff)| *diff < 0);
        let was = group[..deletions].last();
        let is = group[deletions..].last();
        if let Some((row, _)) = was.filter(|_| is.is_none() || sink_type == SinkType::Debezium) {
            indices.push(*row);
            signs.push(-1);
        }
        if let Some((row, _)) = is {
            indices.push(*row);
            signs.push(1);
        }
    }
    if indices.is_empty() {
        return Ok(None);
    }
    Ok(Some(ChangeBatch::new(take_record_batch(&rows, &UInt32Array::from(indices))?, signs)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int32Array, StringArray};
    use arrow::datatypes::{DataType, Field, Int32Type, Schema};
    use std::sync::Arc;

    fn batch(changes: &[(Option<i32>, &str, i64)]) -> ChangeBatch {
        let schema =
            Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Utf8, true)]);
        let keys: Int32Array = changes.iter().map(|c| c.0).collect();
        let values: StringArray = changes.iter().map(|c| Some(c.1)).collect();
        let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys), Arc::new(values)]).unwrap();
        ChangeBatch::new(rows, changes.iter().map(|c| c.2).collect::<Vec<_>>())
    }

    fn net(batches: &[ChangeBatch], sink_type: SinkType) -> Vec<String> {
        let Some(net) = by_key(batches, &[0], sink_type).unwrap() else { return Vec::new() };
        let (keys, values) = (net.column(0).as_primitive::<Int32Type>(), net.column(1).as_string::<i32>());
        (0..net.num_rows())
            .map(|i| {
                let key = keys.iter().nth(i).flatten().map_or("-".into(), |k| k.to_string());
                format!("{:+} {key} {}", net.diff(i), values.value(i))
            })
            .collect()
    }

    #[test]
    fn a_range_comes_to_its_net_change() {
        let batches = [
            batch(&[(Some(1), "a", 1), (Some(2), "x", 1), (None, "n", 1), (Some(3), "gone", -1)]),
            batch(&[
                (Some(1), "b", 1),
                (Some(1), "a", -1),
                (Some(2), "x", -1),
                (Some(4), "new", 1),
                (Some(4), "old", -1),
            ]),
        ];
        assert_eq!(net(&batches, SinkType::Upsert), ["+1 - n", "+1 1 b", "-1 3 gone", "+1 4 new"]);
        assert_eq!(
            net(&batches, SinkType::Debezium),
            ["+1 - n", "+1 1 b", "-1 3 gone", "-1 4 old", "+1 4 new"]
        );
    }

    #[test]
    fn deletions_that_come_late_and_several_rows_of_a_key_are_no_trouble() {
        let late = [batch(&[(Some(1), "b", 1)]), batch(&[(Some(1), "a", -1)])];
        assert_eq!(net(&late, SinkType::Upsert), ["+1 1 b"]);
        let several = [batch(&[(Some(1), "b", 2), (Some(1), "c", 1), (Some(1), "a", 1)])];
        assert_eq!(net(&several, SinkType::Upsert), ["+1 1 c"]);
        assert_eq!(net(&[batch(&[(Some(1), "a", 1), (Some(1), "a", -1)])], SinkType::Upsert), [""; 0]);
        assert_eq!(net(&[], SinkType::Upsert), [""; 0]);
    }

    #[test]
    fn append_only_repeats_rows_and_drops_deletions() {
        let rows = insertions(&batch(&[(Some(1), "a", 2), (Some(2), "b", -1), (Some(3), "c", 1)])).unwrap();
        assert_eq!(rows.column(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "a", "c"]);
    }
}

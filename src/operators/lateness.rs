//! Lateness: which rows of a split come below its watermark.
//!
//! ```text
//!   time of the rows, in the order of the split    10  12  11  20   9  18
//!   watermark before each (delay 5)                 -   5   7   7  15  15
//!                                                                late
//! ```
//! A split's watermark is the greatest time seen in it, less the declared delay; a row below it is
//! late. So it depends on the split's rows alone which ones are, however they are cut into batches,
//! whichever actor reads them and how often: a reader of the past drops the same ones. A split that
//! turns up when the source has promised something already starts with that promise, its floor.

use arrow::array::TimestampMicrosecondArray;
use arrow::array::{Array, BooleanArray};
use serde::{Deserialize, Serialize};

/// What a split has shown of event time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The greatest time seen.
    time_us: Option<i64>,
    /// What the source had promised when the split turned up.
    floor_us: Option<i64>,
    /// Rows that were late.
    pub late: u64,
}

impl Mark {
    /// Of a split that turns up when the source has promised `floor_us`.
    pub fn from_floor(floor_us: Option<i64>) -> Self {
        Self { floor_us, ..Self::default() }
    }

    /// What the source had promised when the split turned up.
    pub fn floor_us(&self) -> Option<i64> {
        self.floor_us
    }

    /// No row below this comes any more.
    pub fn watermark_us(&self, delay_us: i64) -> Option<i64> {
        self.floor_us.max(self.time_us.map(|time| time.saturating_sub(delay_us)))
    }

    /// Takes up the times of the split's next rows. Returns which of them are in time, if not all
    /// are; a row without a time is.
    pub fn pass(&mut self, times: &TimestampMicrosecondArray, delay_us: i64) -> Option<BooleanArray> {
        let mut late: Vec<usize> = Vec::new();
        let mut watermark = self.watermark_us(delay_us).unwrap_or(i64::MIN);
        let mut greatest = self.time_us.unwrap_or(i64::MIN);
        for (row, time) in times.values().iter().enumerate() {
            if times.is_null(row) {
                continue;
            }
            if *time < watermark {
                late.push(row);
            } else if *time > greatest {
                greatest = *time;
                watermark = watermark.max(time.saturating_sub(delay_us));
            }
        }
        if greatest > i64::MIN {
            self.time_us = Some(greatest);
        }
        self.late += late.len() as u64;
        if late.is_empty() {
            return None;
        }
        let mut in_time = vec![true; times.len()];
        late.into_iter().for_each(|row| in_time[row] = false);
        Some(BooleanArray::from(in_time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(times: &[Option<i64>]) -> TimestampMicrosecondArray {
        times.iter().copied().collect()
    }

    fn late(mark: &mut Mark, rows: &[Option<i64>]) -> Vec<usize> {
        match mark.pass(&times(rows), 5) {
            None => Vec::new(),
            Some(kept) => (0..rows.len()).filter(|row| !kept.value(*row)).collect(),
        }
    }

    #[test]
    fn the_rows_before_decide_whatever_the_batches() {
        let rows = [Some(10), Some(12), None, Some(11), Some(20), Some(9), Some(14), Some(15), Some(18)];
        let mut whole = Mark::default();
        assert_eq!(late(&mut whole, &rows), [5, 6]);
        let mut cut = Mark::default();
        let found: Vec<usize> =
            (0..rows.len()).filter(|row| !late(&mut cut, &rows[*row..=*row]).is_empty()).collect();
        assert_eq!((found, cut), (vec![5, 6], whole));
        assert_eq!((whole.watermark_us(5), whole.late), (Some(15), 2));
    }

    #[test]
    fn a_floor_holds_from_the_first_row() {
        let mut mark = Mark::from_floor(Some(100));
        assert_eq!(late(&mut mark, &[Some(99), Some(100), Some(101)]), [0]);
        assert_eq!(mark.watermark_us(5), Some(100));
        assert_eq!(late(&mut mark, &[Some(200), Some(194), Some(i64::MIN)]), [1, 2]);
        let stored = serde_json::to_string(&mark).unwrap();
        assert_eq!(serde_json::from_str::<Mark>(&stored).unwrap(), mark);
    }

    #[test]
    fn without_times_nothing_is_promised() {
        let mut mark = Mark::default();
        assert_eq!(late(&mut mark, &[None, None]), Vec::<usize>::new());
        assert_eq!(mark.watermark_us(0), None);
    }
}

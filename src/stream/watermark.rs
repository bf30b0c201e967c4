//! Watermark: no more rows below this event time.

/// The watermark of a stream that has ended: no more rows at all.
pub const END_US: i64 = i64::MAX;

/// A promise about one column of a stream: rows that come or go later have a greater or equal value
/// in it, or NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermark {
    /// The ordinal of the timestamp column in the stream's schema.
    pub column: usize,
    /// Microseconds since 1970.
    pub time_us: i64,
}

/// Combines the watermarks of several inputs: the least of all, once every input has one.
#[derive(Clone, Debug)]
pub struct WatermarkMerge {
    inputs: Vec<Option<i64>>,
    sent: Option<i64>,
}

impl WatermarkMerge {
    /// For `inputs` inputs, none of which has promised anything.
    pub fn new(inputs: usize) -> Self {
        Self { inputs: vec![None; inputs], sent: None }
    }

    /// Input `input` promises `time_us`. Returns the combined promise if it moved.
    pub fn advance(&mut self, input: usize, time_us: i64) -> Option<i64> {
        let slot = &mut self.inputs[input];
        *slot = Some(slot.map_or(time_us, |t| t.max(time_us)));
        let least = self.inputs.iter().copied().min().flatten()?;
        if self.sent.is_some_and(|sent| sent >= least) {
            return None;
        }
        self.sent = Some(least);
        Some(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_input_holds_the_others_back() {
        let mut merge = WatermarkMerge::new(2);
        assert_eq!(merge.advance(0, 10), None);
        assert_eq!(merge.advance(1, 5), Some(5));
        assert_eq!(merge.advance(1, 5), None);
        assert_eq!(merge.advance(1, 20), Some(10));
        assert_eq!(merge.advance(0, 7), None);
        assert_eq!(merge.advance(0, 30), Some(20));
    }
}

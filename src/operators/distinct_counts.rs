//! How often [`super::distinct::Distinct`] has each of its values, by filter. Of input that only grows it need
//! only be known whether: a bit.

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// Counts by entry, then filter.
#[derive(Debug)]
pub(super) struct DistinctCounts {
    /// How many filters there are.
    filters: usize,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    Counts(Vec<i64>),
    /// A bit a filter, in whole words an entry.
    Marks(Vec<u64>),
}

impl DistinctCounts {
    /// Of no entries, without filters. `append_only`: a count is 0 or 1, and never falls.
    pub fn new(append_only: bool) -> Self {
        Self {
            filters: 0,
            kept: if append_only { Kept::Marks(Vec::new()) } else { Kept::Counts(Vec::new()) },
        }
    }

    /// One more filter. There are no entries yet.
    pub fn add_filter(&mut self) {
        self.filters += 1;
    }

    fn words(&self) -> usize {
        self.filters.div_ceil(BITS)
    }

    /// Makes room for `entries` entries; new ones count nothing.
    pub fn grow(&mut self, entries: usize) {
        let words = self.words();
        match &mut self.kept {
            Kept::Counts(counts) => counts.resize(entries * self.filters, 0),
            Kept::Marks(marks) => marks.resize(entries * words, 0),
        }
    }

    /// The count of an entry.
    #[inline]
    pub fn get(&self, entry: usize, filter: usize) -> i64 {
        match &self.kept {
            Kept::Counts(counts) => counts[entry * self.filters + filter],
            Kept::Marks(marks) => (marks[entry * self.words() + filter / BITS] >> (filter % BITS) & 1) as i64,
        }
    }

    /// Adds `diff`; returns the count before, and now.
    #[inline]
    pub fn add(&mut self, entry: usize, filter: usize, diff: i64) -> (i64, i64) {
        let words = self.words();
        match &mut self.kept {
            Kept::Counts(counts) => {
                let count = &mut counts[entry * self.filters + filter];
                let before = *count;
                *count += diff;
                (before, *count)
            }
            Kept::Marks(marks) => {
                let word = &mut marks[entry * words + filter / BITS];
                let before = *word >> (filter % BITS) & 1;
                *word |= 1 << (filter % BITS);
                (before as i64, 1)
            }
        }
    }

    /// Takes up a count that was kept elsewhere. Marks add up: a value's may come in several parts.
    pub fn load(&mut self, entry: usize, filter: usize, count: i64) {
        match &mut self.kept {
            Kept::Counts(counts) => counts[entry * self.filters + filter] = count,
            Kept::Marks(_) if count > 0 => drop(self.add(entry, filter, 1)),
            Kept::Marks(_) => {}
        }
    }

    /// Whether an entry counts nothing.
    pub fn is_gone(&self, entry: usize) -> bool {
        (0..self.filters).all(|filter| self.get(entry, filter) == 0)
    }

    /// Those of `entries`, in this order.
    pub fn copied(&self, entries: &[u32]) -> Self {
        fn rows<T: Copy>(all: &[T], width: usize, entries: &[u32]) -> Vec<T> {
            let mut rows = Vec::with_capacity(entries.len() * width);
            entries.iter().for_each(|e| rows.extend_from_slice(&all[*e as usize * width..][..width]));
            rows
        }
        let kept = match &self.kept {
            Kept::Counts(counts) => Kept::Counts(rows(counts, self.filters, entries)),
            Kept::Marks(marks) => Kept::Marks(rows(marks, self.words(), entries)),
        };
        Self { filters: self.filters, kept }
    }

    /// Bytes held, roughly.
    pub fn memory(&self) -> usize {
        match &self.kept {
            Kept::Counts(counts) => counts.capacity() * 8,
            Kept::Marks(marks) => marks.capacity() * 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_counts_say_the_same_of_input_that_grows() {
        // More filters than a word has bits.
        for filters in [1, 3, 64, 65, 130] {
            let both = [false, true].map(|append_only| {
                let mut counts = DistinctCounts::new(append_only);
                (0..filters).for_each(|_| counts.add_filter());
                counts.grow(5);
                let changes = [(0, 0), (4, filters - 1), (4, filters / 2), (0, 0), (2, filters - 1)];
                let turned: Vec<bool> = changes
                    .map(|(entry, filter)| {
                        let (before, now) = counts.add(entry, filter, 1);
                        (before > 0) != (now > 0)
                    })
                    .into();
                let copied = counts.copied(&[4, 1, 0]);
                let there: Vec<bool> = (0..3)
                    .flat_map(|e| (0..filters).map(move |f| (e, f)))
                    .map(|(e, f)| copied.get(e, f) > 0)
                    .collect();
                (turned, there, (0..5).map(|entry| counts.is_gone(entry)).collect::<Vec<_>>())
            });
            assert_eq!(both[0], both[1], "{filters} filters");
            assert_eq!(both[0].2, [false, true, false, true, false]);
        }
    }
}

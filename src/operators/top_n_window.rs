//! The window of a sorted group, and how two of them differ.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A row as bytes that sort as it does.
pub type Row = Arc<[u8]>;

/// Rows of a window, in order, and how many times each lies in it.
pub type Window = Vec<(Row, u64)>;

/// The rows `offset..offset+limit`.
pub fn window(rows: &BTreeMap<Row, i64>, offset: u64, limit: Option<u64>) -> Window {
    let (mut skip, mut room) = (offset, limit.unwrap_or(u64::MAX));
    let mut window = Vec::new();
    for (row, count) in rows {
        let count = (*count).max(0) as u64;
        let skipped = count.min(skip);
        skip -= skipped;
        let taken = (count - skipped).min(room);
        room -= taken;
        if taken > 0 {
            window.push((row.clone(), taken));
        }
        if room == 0 {
            break;
        }
    }
    window
}

/// Rows that occur more or less often than before.
pub fn compare_rows(before: &Window, after: &Window, say: &mut impl FnMut(&Row, i64, u64)) {
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return,
        };
        let was = old.next_if(|_| order.is_le());
        let is = new.next_if(|_| order.is_ge());
        let diff = is.map_or(0, |(_, n)| *n as i64) - was.map_or(0, |(_, n)| *n as i64);
        if let Some((row, _)) = was.or(is).filter(|_| diff != 0) {
            say(row, diff, 0);
        }
    }
}

/// Ranks that another row has than before.
pub fn compare_ranks(before: &Window, after: &Window, offset: u64, say: &mut impl FnMut(&Row, i64, u64)) {
    let ranked = |window: &'_ Window| -> Vec<Row> {
        window.iter().flat_map(|(row, n)| std::iter::repeat_n(row.clone(), *n as usize)).collect()
    };
    let (before, after) = (ranked(before), ranked(after));
    for at in 0..before.len().max(after.len()) {
        let (was, is) = (before.get(at), after.get(at));
        if was == is {
            continue;
        }
        let rank = offset + at as u64 + 1;
        if let Some(row) = was {
            say(row, -1, rank);
        }
        if let Some(row) = is {
            say(row, 1, rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, i64)]) -> BTreeMap<Row, i64> {
        rows.iter().map(|(row, count)| (row.as_bytes().into(), *count)).collect()
    }

    fn said(say: impl FnOnce(&mut dyn FnMut(&Row, i64, u64))) -> Vec<String> {
        let mut lines = Vec::new();
        say(&mut |row, diff, rank| lines.push(format!("{diff:+} {} {rank}", String::from_utf8_lossy(row))));
        lines
    }

    #[test]
    fn a_window_cuts_rows_that_occur_more_than_once() {
        let group = rows(&[("a", 2), ("b", 0), ("c", -1), ("d", 4), ("e", 1)]);
        let sizes = |w: Window| w.into_iter().map(|(row, n)| (row[0] as char, n)).collect::<Vec<_>>();
        assert_eq!(sizes(window(&group, 1, Some(3))), [('a', 1), ('d', 2)]);
        assert_eq!(sizes(window(&group, 0, None)), [('a', 2), ('d', 4), ('e', 1)]);
        assert_eq!(sizes(window(&group, 7, Some(1))), []);
        assert_eq!(sizes(window(&group, 0, Some(0))), []);
    }

    #[test]
    fn windows_differ_by_rows_or_by_ranks() {
        let before = window(&rows(&[("a", 2), ("c", 1)]), 0, None);
        let after = window(&rows(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]), 0, None);
        assert_eq!(said(|mut say| compare_rows(&before, &after, &mut say)), ["-1 a 0", "+1 b 0", "+1 d 0"]);
        let ranks = said(|mut say| compare_ranks(&before, &after, 5, &mut say));
        assert_eq!(ranks, ["-1 a 7", "+1 b 7", "+1 d 9"]);
        assert_eq!(said(|mut say| compare_rows(&before, &before, &mut say)), Vec::<String>::new());
    }
}

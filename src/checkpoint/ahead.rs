//! Ahead: which epochs the target of a sink must not hold, because a restore gave them up; with each savepoint
//! and remote checkpoint as long as nobody has opened the target and looked.
//!
//! ```text
//!   ──────────┤ delivered by an earlier life: ahead ├── delivered since, by who has looked ── epochs ──>
//!          restored                     last given before
//! ```

use crate::stream::Epoch;
use serde::{Deserialize, Serialize};

/// No end.
const ALL: Epoch = Epoch(u64::MAX);

/// Ranges of epochs: what comes after one, up to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Ahead(Vec<(Epoch, Epoch)>);

/// How it is written: an epoch alone has all that comes after it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    After(Epoch),
    Ranges(Vec<(Epoch, Epoch)>),
}

impl From<Written> for Ahead {
    fn from(written: Written) -> Self {
        match written {
            Written::After(epoch) => Ahead::of(epoch),
            Written::Ranges(ranges) => Ahead(ranges),
        }
    }
}

impl From<Ahead> for Written {
    fn from(ahead: Ahead) -> Self {
        match ahead.0[..] {
            [(epoch, ALL)] => Written::After(epoch),
            _ => Written::Ranges(ahead.0),
        }
    }
}

impl Ahead {
    /// Of a sink that goes on from `restored`: whatever comes after it.
    pub fn of(restored: Epoch) -> Self {
        Ahead(vec![(restored, ALL)])
    }

    /// What is in one of both. Ranges within others are left out.
    pub fn or(mut self, other: &Ahead) -> Self {
        for (after, until) in &other.0 {
            if !self.0.iter().any(|(a, u)| a <= after && u >= until) {
                self.0.retain(|(a, u)| !(after <= a && until >= u));
                self.0.push((*after, *until));
            }
        }
        self.0.sort_unstable();
        self
    }

    /// The same, but for what comes after `last`, the last epoch that was given before this life of the
    /// dataflow: what is delivered from now on is delivered by who has looked.
    pub fn until(&self, last: Epoch) -> Self {
        let within = self.0.iter().map(|(after, until)| (*after, *until.min(&last)));
        Ahead(within.filter(|(after, until)| after < until).collect())
    }

    /// If a target that holds `epoch` is ahead: from where to go on at least once.
    pub fn of_target(&self, epoch: Epoch) -> Option<Epoch> {
        let holds = |(after, until): &&(Epoch, Epoch)| *after < epoch && epoch <= *until;
        self.0.iter().find(holds)?;
        // What is given up later is given up with it.
        self.0.iter().map(|(after, _)| *after).min()
    }

    /// Whether there is no such epoch.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(ranges: &[(u64, u64)]) -> Ahead {
        Ahead(ranges.iter().map(|(after, until)| (Epoch(*after), Epoch(*until))).collect())
    }

    #[test]
    fn what_is_delivered_after_somebody_has_looked_is_not_ahead() {
        // A sink went on from 5 when 9 was the last epoch; a savepoint of 20 was made before its target was
        // opened, and is restored.
        let saved = Ahead::of(Epoch(5)).until(Epoch(9));
        let restored = Ahead::of(Epoch(20)).or(&saved);
        let of = |epoch| restored.of_target(Epoch(epoch));
        assert_eq!([of(5), of(6), of(9), of(10), of(20)], [None, Some(Epoch(5)), Some(Epoch(5)), None, None]);
        assert_eq!(of(21), Some(Epoch(5)));
        // Nothing was given up where nothing came after.
        assert!(Ahead::of(Epoch(9)).until(Epoch(9)).is_empty());
    }

    #[test]
    fn the_earliest_start_counts_and_all_is_read_as_it_was_written() {
        let both = Ahead::of(Epoch(12)).or(&Ahead::of(Epoch(7)));
        assert_eq!(both, Ahead::of(Epoch(7)).or(&Ahead::of(Epoch(12))));
        assert_eq!(
            (both.of_target(Epoch(9)), serde_json::to_string(&both).unwrap()),
            (Some(Epoch(7)), "7".into())
        );
        let ranges = both.or(&ahead(&[(2, 4), (8, 9)]));
        assert_eq!(ranges, ahead(&[(2, 4), (7, u64::MAX)]));
        for written in [ranges, ahead(&[(2, 4)]), Ahead::of(Epoch(3)), Ahead::default()] {
            let text = serde_json::to_string(&written).unwrap();
            assert_eq!(serde_json::from_str::<Ahead>(&text).unwrap(), written, "{text}");
        }
    }
}

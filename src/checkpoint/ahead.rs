//! Ahead: which epochs the target of a sink must not hold, because a restore gave them up, and up to which it must
//! hold them, because they were delivered to it; with each savepoint and remote checkpoint as long as nobody has
//! opened the target and looked.
//!
//! ```text
//!   ──────────┤ delivered by an earlier life: ahead ├── delivered since, by who has looked ── epochs ──>
//!          restored                     last given before
//! ```

use crate::stream::Epoch;
use serde::{Deserialize, Serialize};

/// No end.
const ALL: Epoch = Epoch(u64::MAX);

/// What a target must not hold, and what it must.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Ahead {
    /// What it must not hold: what comes after an epoch, up to another.
    ranges: Vec<(Epoch, Epoch)>,
    /// What it must hold at least; zero: it may hold nothing.
    least: Epoch,
}

/// How it is written: an epoch alone has all that comes after it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    After(Epoch),
    Ranges(Vec<(Epoch, Epoch)>),
    Whole { ranges: Vec<(Epoch, Epoch)>, least: Epoch },
}

impl From<Written> for Ahead {
    fn from(written: Written) -> Self {
        match written {
            Written::After(epoch) => Ahead::of(epoch),
            Written::Ranges(ranges) => Ahead { ranges, least: Epoch::ZERO },
            Written::Whole { ranges, least } => Ahead { ranges, least },
        }
    }
}

impl From<Ahead> for Written {
    fn from(Ahead { ranges, least }: Ahead) -> Self {
        match ranges[..] {
            _ if least > Epoch::ZERO => Written::Whole { ranges, least },
            [(epoch, ALL)] => Written::After(epoch),
            _ => Written::Ranges(ranges),
        }
    }
}

impl Ahead {
    /// Of a sink that goes on from `restored`: whatever comes after it.
    pub fn of(restored: Epoch) -> Self {
        Ahead { ranges: vec![(restored, ALL)], least: Epoch::ZERO }
    }

    /// The same, and the target must hold what came up to `epoch`.
    #[must_use]
    pub fn at_least(mut self, epoch: Epoch) -> Self {
        self.least = self.least.max(epoch);
        self
    }

    /// The same, and the target may hold nothing.
    #[must_use]
    pub fn or_nothing(self) -> Self {
        Ahead { least: Epoch::ZERO, ..self }
    }

    /// What the target must hold at least.
    pub fn least(&self) -> Epoch {
        self.least
    }

    /// What is in one of both. Ranges within others are left out.
    pub fn or(mut self, other: &Ahead) -> Self {
        for (after, until) in &other.ranges {
            if !self.ranges.iter().any(|(a, u)| a <= after && u >= until) {
                self.ranges.retain(|(a, u)| !(after <= a && until >= u));
                self.ranges.push((*after, *until));
            }
        }
        self.ranges.sort_unstable();
        self.at_least(other.least)
    }

    /// The same, but for what comes after `last`, the last epoch that was given before this life of the
    /// dataflow: what is delivered from now on is delivered by who has looked.
    pub fn until(&self, last: Epoch) -> Self {
        let within = self.ranges.iter().map(|(after, until)| (*after, *until.min(&last)));
        Ahead { ranges: within.filter(|(after, until)| after < until).collect(), least: self.least }
    }

    /// If a target that holds `epoch` is ahead, or lacks what it held: from where to go on at least once.
    pub fn of_target(&self, epoch: Epoch) -> Option<Epoch> {
        let holds = |(after, until): &&(Epoch, Epoch)| *after < epoch && epoch <= *until;
        if self.least <= epoch {
            self.ranges.iter().find(holds)?;
        }
        // What is given up later is given up with it.
        Some(self.ranges.iter().map(|(after, _)| *after).min().unwrap_or(self.least))
    }

    /// Whether the target may hold whatever it does.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.least == Epoch::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead(ranges: &[(u64, u64)]) -> Ahead {
        let ranges = ranges.iter().map(|(after, until)| (Epoch(*after), Epoch(*until))).collect();
        Ahead { ranges, least: Epoch::ZERO }
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
    fn a_target_that_lacks_what_was_delivered_is_told() {
        let ahead = Ahead::of(Epoch(20)).at_least(Epoch(12)).or(&Ahead::default().at_least(Epoch(7)));
        let of = |epoch| ahead.of_target(Epoch(epoch));
        assert_eq!([of(0), of(11), of(12), of(20)], [Some(Epoch(20)), Some(Epoch(20)), None, None]);
        assert_eq!((of(21), ahead.until(Epoch(20)).least()), (Some(Epoch(20)), Epoch(12)));
        assert!(!ahead.until(Epoch(20)).is_empty());
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
        let least = Ahead::default().at_least(Epoch(9));
        for written in [ranges, ahead(&[(2, 4)]), Ahead::of(Epoch(3)), Ahead::default(), least] {
            let text = serde_json::to_string(&written).unwrap();
            assert_eq!(serde_json::from_str::<Ahead>(&text).unwrap(), written, "{text}");
        }
    }
}

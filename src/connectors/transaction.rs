//! Prepared transactions: their names, which tell whose they are, and what becomes of those that are
//! found in a target.
//!
//! ```text
//!   weir:<database uuid>:<sink>:<generation>:<epoch>:<actor>
//! ```

use crate::stream::Epoch;
use std::fmt;
use std::str::FromStr;
use weir_catalog::ObjectId;

/// What a target calls a prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionName {
    /// The database's uuid.
    pub database: String,
    /// The sink.
    pub sink: ObjectId,
    /// The epoch whose checkpoint commits it.
    pub epoch: Epoch,
    /// The actor whose rows are in it.
    pub actor: u32,
    /// The generation of the server that prepared it.
    pub generation: u64,
}

impl TransactionName {
    /// With what the names of all transactions of a database start.
    pub fn prefix_of_database(database: &str) -> String {
        format!("weir:{database}:")
    }

    /// With what the names of all transactions of a sink start.
    pub fn prefix(database: &str, sink: ObjectId) -> String {
        format!("weir:{database}:{sink}:")
    }
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, sink, epoch, actor, generation } = self;
        write!(f, "weir:{database}:{sink}:{generation}:{}:{actor}", epoch.0)
    }
}

impl FromStr for TransactionName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(':').collect();
        let ["weir", database, sink, generation, epoch, actor] = parts.as_slice() else { return Err(()) };
        let name = Self {
            database: (*database).to_owned(),
            sink: ObjectId(sink.parse().map_err(drop)?),
            epoch: Epoch(epoch.parse().map_err(drop)?),
            actor: actor.parse().map_err(drop)?,
            generation: generation.parse().map_err(drop)?,
        };
        // Nothing that is spelled otherwise is ours: "+7", "007".
        if name.to_string() == text { Ok(name) } else { Err(()) }
    }
}

/// What becomes of a prepared transaction that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A durable checkpoint promises it.
    Commit,
    /// It waits for its checkpoint.
    Keep,
    /// Whoever prepared it has died, and no checkpoint promises it: its rows are made again.
    RollBack,
    /// A newer server's.
    Stranger,
}

/// Decides. `promised` tells whether somebody waits for it, and whether its checkpoint is durable;
/// `began` is the last epoch that was given before this life of the dataflow: an epoch is never given
/// twice, so what is not above it is of a life that is over, the restored epoch included.
pub fn fate(name: &TransactionName, generation: u64, began: Epoch, promised: Option<bool>) -> Fate {
    match promised {
        _ if name.generation > generation => Fate::Stranger,
        Some(true) => Fate::Commit,
        Some(false) if name.generation == generation => Fate::Keep,
        None if name.generation == generation && name.epoch > began => Fate::Keep,
        _ => Fate::RollBack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(generation: u64, epoch: u64) -> TransactionName {
        let database = "6f1c1c4e-0000-4000-8000-000000000000".to_owned();
        TransactionName { database, sink: ObjectId(16_400), generation, epoch: Epoch(epoch), actor: 3 }
    }

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let text = name(2, 77).to_string();
        assert_eq!(text, "weir:6f1c1c4e-0000-4000-8000-000000000000:16400:2:77:3");
        assert_eq!(text.parse(), Ok(name(2, 77)));
        assert!(text.starts_with(&TransactionName::prefix(&name(2, 77).database, ObjectId(16_400))));
        for other in
            ["", "weir:d:1:2:3", "weir:d:1:2:3:4:5", "else:d:1:2:3:4", "weir:d:01:2:3:4", "weir:d:1:-2:3:4"]
        {
            assert_eq!(other.parse::<TransactionName>(), Err(()), "{other}");
        }
    }

    #[test]
    fn only_what_the_dead_left_and_nobody_promised_is_rolled_back() {
        let (ours, began) = (5, Epoch(100));
        for (generation, epoch, promised, expected) in [
            // Promised by a durable checkpoint, whoever prepared it.
            (4, 90, Some(true), Fate::Commit),
            (5, 101, Some(true), Fate::Commit),
            // Ours, and its checkpoint is on its way.
            (5, 101, Some(false), Fate::Keep),
            (5, 101, None, Fate::Keep),
            // Of a dead server, or of an earlier life of this one.
            (4, 90, None, Fate::RollBack),
            (4, 300, None, Fate::RollBack),
            (5, 100, None, Fate::RollBack),
            // Not ours to touch.
            (6, 90, None, Fate::Stranger),
            (6, 90, Some(true), Fate::Stranger),
        ] {
            assert_eq!(
                fate(&name(generation, epoch), ours, began, promised),
                expected,
                "{generation} {epoch}"
            );
        }
    }
}

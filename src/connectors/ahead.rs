//! What is known of the target of a sink until somebody has opened it and looked: which epochs it must not
//! hold ([`Ahead`]).
//!
//! What a restore gave up is in no later checkpoint, so this goes from start to start, and from machine to
//! machine: on the disk from the first checkpoint on that is made before somebody has looked, and with each
//! savepoint and remote checkpoint. Each names when it was made, so that what is delivered later is not
//! taken for what was given up.

use crate::checkpoint::ahead::Ahead;
use crate::state::durable::{in_file, parent, sync_dir, write_atomically};
use crate::stream::Epoch;
use std::io;
use std::path::{Path, PathBuf};
use tracing::warn;

/// What a target must not hold, in the directory of the sink's log.
const FILE: &str = "ahead";
/// What is known of a target as long as nobody has opened it.
#[derive(Debug)]
pub struct Unopened {
    dir: PathBuf,
    /// What it must not hold; none once somebody has looked.
    ahead: Option<Ahead>,
    /// The last epoch that it was found to hold and must not.
    found: Epoch,
    /// The same as it is on the disk.
    noted: Option<Ahead>,
    /// Whether there may be a file of it.
    file: bool,
}

impl Unopened {
    /// What was noted in the directory of a sink's log. Of a note that can't be read nothing is known: then the
    /// target must hold nothing.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE);
        let noted = match std::fs::read(&path) {
            Ok(content) => Some(serde_json::from_slice(&content).unwrap_or_else(|error| {
                warn!(path = %path.display(), %error, "a note is damaged: the target must hold nothing");
                Ahead::of(Epoch::ZERO)
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(in_file(&path)(error)),
        };
        Ok(Self {
            dir: dir.to_owned(),
            ahead: noted.clone(),
            found: Epoch::ZERO,
            file: noted.is_some(),
            noted,
        })
    }

    /// What the target must not hold.
    pub fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref()
    }

    /// What it must not hold, as somebody is to know it who goes on with what there is now; `began` is the last
    /// epoch that was given before this life of the dataflow.
    pub fn to_carry(&self, began: Epoch) -> Option<Ahead> {
        // A server that had another copy of the data directory may have given later ones.
        self.ahead.as_ref().map(|ahead| ahead.until(began.max(self.found))).filter(|ahead| !ahead.is_empty())
    }

    /// The target holds `epoch`, and must not.
    pub fn found(&mut self, epoch: Epoch) {
        self.found = self.found.max(epoch);
    }

    /// The sink goes on, and its target must not hold this either.
    pub fn must_not_hold(&mut self, ahead: &Ahead) {
        self.ahead = Some(self.ahead.take().unwrap_or_default().or(ahead));
    }

    /// The sink goes on with a savepoint: the target must not hold this, whatever was known before.
    pub fn must_only_not_hold(&mut self, ahead: Ahead) {
        self.ahead = Some(ahead);
    }

    /// Keeps it through restarts, once. To be done before there is a newer checkpoint to start from.
    pub fn note(&mut self) -> io::Result<()> {
        let Some(ahead) = self.ahead.clone().filter(|ahead| self.noted.as_ref() != Some(ahead)) else {
            return Ok(());
        };
        (self.noted, self.file) = (None, true);
        note(&self.dir, &ahead)?;
        self.noted = Some(ahead);
        Ok(())
    }

    /// Somebody has looked: the target holds nothing that it must not, or that was settled.
    pub fn opened(&mut self) -> io::Result<()> {
        if self.file {
            match std::fs::remove_file(self.dir.join(FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => sync_dir(&self.dir)?,
            }
        }
        (self.ahead, self.found, self.noted, self.file) = (None, Epoch::ZERO, None, false);
        Ok(())
    }
}

/// Keeps in the directory of a sink's log what its target must not hold.
pub fn note(dir: &Path, ahead: &Ahead) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    write_atomically(&dir.join(FILE), &serde_json::to_vec(ahead)?, "sink_ahead")?;
    sync_dir(parent(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_stays_until_somebody_has_looked() {
        let dir = tempfile::tempdir().unwrap();
        let read = || Unopened::read(dir.path()).unwrap();
        let mut unopened = read();
        unopened.must_not_hold(&Ahead::of(Epoch(7)));
        assert_eq!(read().ahead(), None, "nothing is written while no later checkpoint is made");
        unopened.note().unwrap();
        // As after a restart from a later checkpoint.
        let mut next = read();
        next.must_not_hold(&Ahead::of(Epoch(12)));
        assert_eq!(next.ahead(), Some(&Ahead::of(Epoch(7))));
        next.note().unwrap();
        // Others learn of it up to the last epoch that was given, or that was found.
        let carried = next.to_carry(Epoch(15)).unwrap();
        assert_eq!([15, 16].map(|epoch| carried.of_target(Epoch(epoch))), [Some(Epoch(7)), None]);
        next.found(Epoch(18));
        assert_eq!(next.to_carry(Epoch(15)).unwrap().of_target(Epoch(18)), Some(Epoch(7)));
        next.opened().unwrap();
        assert_eq!(next.to_carry(Epoch(15)), None);
        assert_eq!((next.ahead(), read().ahead()), (None, None));
        // RESTORE: what was known before does not count.
        unopened.must_only_not_hold(Ahead::of(Epoch(20)));
        unopened.note().unwrap();
        assert_eq!(read().ahead(), Some(&Ahead::of(Epoch(20))));
        std::fs::write(dir.path().join(FILE), "2x").unwrap();
        assert_eq!(read().ahead(), Some(&Ahead::of(Epoch::ZERO)), "it is damaged");
    }
}

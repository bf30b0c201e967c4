//! What is known of the target of a sink: until somebody has opened it and looked, which epochs it must not hold,
//! and which it must ([`Ahead`]); from then on, up to where it was delivered to.
//!
//! What a restore gave up is in no later checkpoint, so this goes from start to start, and from machine to
//! machine: on the disk from the first checkpoint on that is made before somebody has looked, and with each
//! savepoint and remote checkpoint. What a life of the dataflow makes is delivered by nobody before somebody
//! has looked in that life, and may be delivered by a later one that goes on from it: each life adds what came
//! after its checkpoint, up to the last epoch that was given before it.

use crate::checkpoint::ahead::Ahead;
use crate::state::durable::{in_file, parent, sync_dir, write_atomically};
use crate::stream::Epoch;
use std::io;
use std::path::{Path, PathBuf};
use tracing::warn;

/// What a target must not hold, in the directory of the sink's log.
const FILE: &str = "ahead";
/// What is known of a target that nobody has opened yet, or from when it was.
#[derive(Debug)]
pub struct Unopened {
    dir: PathBuf,
    /// What it must not hold; none once somebody has looked.
    ahead: Option<Ahead>,
    /// The last epoch that was given before the life of the dataflow that said so last.
    began: Epoch,
    /// The last epoch that it was found to hold and must not.
    found: Epoch,
    /// The last epoch that it is known to hold, as far as somebody has looked; zero: of none.
    held: Epoch,
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
            // A note says itself where it ends.
            began: Epoch(u64::MAX),
            found: Epoch::ZERO,
            held: Epoch::ZERO,
            file: noted.is_some(),
            noted,
        })
    }

    /// What the target must not hold.
    pub fn ahead(&self) -> Option<&Ahead> {
        self.ahead.as_ref()
    }

    /// What it must not hold, as somebody is to know it who goes on with what there is now.
    pub fn to_carry(&self) -> Option<Ahead> {
        // A server that had another copy of the data directory may have given later ones.
        let last = self.began.max(self.found);
        self.ahead.as_ref().map(|ahead| ahead.until(last)).filter(|ahead| !ahead.is_empty())
    }

    /// What it must not hold, and must, as a savepoint of `epoch` has it, which it may be compared with much later.
    pub fn to_save(&self, epoch: Epoch) -> Option<Ahead> {
        let ahead = self.to_carry().unwrap_or_default().at_least(self.held.min(epoch));
        Some(ahead).filter(|ahead| !ahead.is_empty())
    }

    /// Somebody has looked: the target holds `epoch`, and nothing that it must not.
    pub fn holds(&mut self, epoch: Epoch) {
        self.held = epoch;
    }

    /// The target holds `epoch`, and must not.
    pub fn found(&mut self, epoch: Epoch) {
        self.found = self.found.max(epoch);
    }

    /// The sink goes on in a life of the dataflow whose epochs come after `began`, and its target must not hold
    /// this either.
    pub fn must_not_hold(&mut self, ahead: &Ahead, began: Epoch) {
        self.ahead = Some(self.to_carry().unwrap_or_default().or(ahead));
        self.began = began;
    }

    /// The sink goes on with a savepoint: the target must not hold this, whatever was known before.
    pub fn must_only_not_hold(&mut self, ahead: Ahead, began: Epoch) {
        (self.ahead, self.began, self.held) = (Some(ahead), began, Epoch::ZERO);
    }

    /// Keeps it through restarts, once. To be done before there is a newer checkpoint to start from.
    pub fn note(&mut self) -> io::Result<()> {
        let ahead = self.to_carry();
        match &ahead {
            None => self.forget()?,
            Some(ahead) if self.noted.as_ref() == Some(ahead) => {}
            Some(ahead) => {
                (self.noted, self.file) = (None, true);
                note(&self.dir, ahead)?;
            }
        }
        self.noted = ahead;
        Ok(())
    }

    /// Removes what is noted.
    fn forget(&mut self) -> io::Result<()> {
        if self.file {
            match std::fs::remove_file(self.dir.join(FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => sync_dir(&self.dir)?,
            }
        }
        (self.noted, self.file) = (None, false);
        Ok(())
    }

    /// Somebody has looked: the target holds nothing that it must not, or that was settled.
    pub fn opened(&mut self) -> io::Result<()> {
        self.forget()?;
        (self.ahead, self.found) = (None, Epoch::ZERO);
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
        unopened.must_not_hold(&Ahead::of(Epoch(7)), Epoch(9));
        assert_eq!(read().ahead(), None, "nothing is written while no later checkpoint is made");
        unopened.note().unwrap();
        // As after a restart from the checkpoint of 12, which was made before anybody had looked.
        let mut next = read();
        next.must_not_hold(&Ahead::of(Epoch(12)), Epoch(15));
        let of = |ahead: Option<&Ahead>| {
            [7, 8, 9, 10, 12, 13, 15, 16].map(|epoch| ahead.unwrap().of_target(Epoch(epoch)).is_some())
        };
        assert_eq!(of(next.ahead()), [false, true, true, false, false, true, true, true]);
        // So it is in the life after, where what that checkpoint promised may be delivered already, …
        next.note().unwrap();
        // … and with others that go on from what there is: up to the last epoch that was given, or was found.
        let carried = [false, true, true, false, false, true, true, false];
        assert_eq!((of(read().ahead()), of(next.to_carry().as_ref())), (carried, carried));
        next.found(Epoch(18));
        assert_eq!(next.to_carry().unwrap().of_target(Epoch(18)), Some(Epoch(7)));
        next.opened().unwrap();
        assert_eq!((next.to_carry(), next.ahead(), read().ahead()), (None, None, None));
    }

    #[test]
    fn a_savepoint_knows_what_was_delivered() {
        let dir = tempfile::tempdir().unwrap();
        let mut unopened = Unopened::read(dir.path()).unwrap();
        unopened.must_not_hold(&Ahead::of(Epoch(7)), Epoch(9));
        assert_eq!(unopened.to_save(Epoch(20)).unwrap().least(), Epoch::ZERO);
        unopened.opened().unwrap();
        assert_eq!(unopened.to_save(Epoch(20)), None, "nothing was delivered yet");
        unopened.holds(Epoch(18));
        assert_eq!(unopened.to_save(Epoch(20)).unwrap().least(), Epoch(18));
        unopened.holds(Epoch(22));
        assert_eq!(unopened.to_save(Epoch(20)).unwrap().least(), Epoch(20));
        // Through a restore and starts, until somebody has looked.
        unopened.must_only_not_hold(Ahead::of(Epoch(20)).at_least(Epoch(20)), Epoch(25));
        unopened.note().unwrap();
        let next = Unopened::read(dir.path()).unwrap();
        assert_eq!(next.ahead().unwrap().of_target(Epoch::ZERO), Some(Epoch(20)));
        assert_eq!(unopened.to_save(Epoch(30)).unwrap().least(), Epoch(20));
    }

    #[test]
    fn another_life_in_the_same_process_ends_what_was_not_delivered() {
        let dir = tempfile::tempdir().unwrap();
        let mut unopened = Unopened::read(dir.path()).unwrap();
        unopened.must_not_hold(&Ahead::of(Epoch(7)), Epoch(9));
        unopened.must_not_hold(&Ahead::of(Epoch(7)), Epoch(9));
        unopened.must_not_hold(&Ahead::of(Epoch(12)), Epoch(15));
        let of = |epoch| unopened.ahead().unwrap().of_target(Epoch(epoch));
        assert_eq!([of(9), of(11), of(12), of(14)], [Some(Epoch(7)), None, None, Some(Epoch(7))]);
    }

    #[test]
    fn what_was_known_before_a_restore_does_not_count_and_damage_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let read = || Unopened::read(dir.path()).unwrap();
        let mut unopened = read();
        unopened.must_not_hold(&Ahead::of(Epoch(7)), Epoch(9));
        unopened.note().unwrap();
        unopened.must_only_not_hold(Ahead::of(Epoch(20)), Epoch(30));
        unopened.note().unwrap();
        assert_eq!(read().ahead(), Some(&Ahead::of(Epoch(20)).until(Epoch(30))));
        unopened.must_only_not_hold(Ahead::of(Epoch(30)), Epoch(30));
        unopened.note().unwrap();
        assert_eq!(read().ahead(), None, "nothing was given up");
        std::fs::write(dir.path().join(FILE), "2x").unwrap();
        assert_eq!(read().ahead(), Some(&Ahead::of(Epoch::ZERO)), "it is damaged");
    }
}

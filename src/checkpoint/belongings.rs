//! Belongings: what a checkpoint has in a remote storage beside the state, so that it suffices on a machine
//! that has nothing else.
//!
//! ```text
//!   catalog/0000000007-1/1-12.zst    the catalog, once for each version that a checkpoint is made with
//!   sinks/0000000007-1/2-4711.zst    parts of sinks' logs that were promised and not delivered, one behind
//!                                    the other; a part goes there once, whatever checkpoints name it
//! ```
//! They are read and sent by the thread that stores checkpoints, after the state: the data path has no part
//! in it. Of a part whose file is gone nothing is needed: it was delivered meanwhile.
//!
//! **Invariant:** parts come back at their places in files of the same names, so that promises hold as they
//! are.

use super::ahead::Ahead;
use super::download::Part;
use super::manifest::{Manifest, PromisedPart, StateFile, Stored};
use super::remote::{CATALOG, RemoteStorage, SINKS};
use super::transfer::Cancel;
use super::upload::{Uploaded, key};
use crate::failpoint;
use crate::state::durable::{damaged, in_file, parent, sync_dir};
use crate::stream::Epoch;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_catalog::{CatalogSnapshot, ObjectId, codec};

/// What goes with a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Belongings {
    /// The catalog.
    pub catalog: Arc<CatalogSnapshot>,
    /// What its promises name.
    pub promised: Vec<PartOnDisk>,
    /// What targets of sinks must not hold that nobody has opened yet, or has settled.
    pub ahead: Vec<(ObjectId, Ahead)>,
}

/// A part of a sink's log that one of its actors has promised.
#[derive(Clone, Debug)]
pub struct PartOnDisk {
    /// The sink.
    pub sink: ObjectId,
    /// Its actor.
    pub actor: u32,
    /// The epoch that it is of.
    pub epoch: Epoch,
    /// The file.
    pub path: PathBuf,
    /// Where in it the part begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

impl RemoteStorage {
    /// Uploads what is missing of `belongings`, and notes in `manifest` where all of it is. It stays until
    /// the manifest is published or its checkpoint released.
    pub fn upload_belongings(
        &self,
        belongings: &Belongings,
        manifest: &mut Manifest,
        cancel: &Cancel,
    ) -> io::Result<Uploaded> {
        let mut uploaded = Uploaded::default();
        manifest.catalog = Some(self.upload_catalog(manifest.epoch, belongings, &mut uploaded, cancel)?);
        manifest.promised = self.upload_parts(manifest.epoch, belongings, &mut uploaded, cancel)?;
        manifest.ahead = belongings.ahead.clone();
        Ok(uploaded)
    }

    fn upload_catalog(
        &self,
        epoch: Epoch,
        Belongings { catalog, .. }: &Belongings,
        uploaded: &mut Uploaded,
        cancel: &Cancel,
    ) -> io::Result<StateFile> {
        let name = format!("catalog-{}", catalog.version);
        let last = self.state.lock().catalog.clone();
        if let Some(last) = last.filter(|last| last.name == name && self.claim_there(epoch, last)) {
            return Ok(last);
        }
        let content = codec::encode_image(catalog)?;
        let (size, crc32) = (content.len() as u64, crc32fast::hash(&content));
        let mut file = StateFile { name, size, crc32, stored: None };
        let there = self.state.lock().files.get(&key(&file)).cloned();
        file.stored = there.map(|object| Stored { object, at: 0 });
        if !self.claim_there(epoch, &file) {
            let object = self.claim_new(epoch, CATALOG, catalog.version);
            failpoint::hit("storage.before_catalog")?;
            uploaded.bytes += self.objects()?.upload(&object, content.as_slice(), &self.throttle, cancel)?;
            uploaded.objects += 1;
            failpoint::hit("storage.after_catalog")?;
            file.stored = Some(Stored { object, at: 0 });
        }
        self.state.lock().catalog = Some(file.clone());
        Ok(file)
    }

    fn upload_parts(
        &self,
        epoch: Epoch,
        Belongings { promised, .. }: &Belongings,
        uploaded: &mut Uploaded,
        cancel: &Cancel,
    ) -> io::Result<Vec<PromisedPart>> {
        let (mut parts, mut going) = (Vec::new(), Vec::new());
        for part in promised {
            let there = self.state.lock().parts.get(&(part.sink, part.actor, part.epoch)).cloned();
            match there.filter(|file| self.claim_there(epoch, file)) {
                Some(file) => parts.push(part.with(file)),
                None => going.extend(Going::open(part)?),
            }
        }
        if going.is_empty() {
            return Ok(parts);
        }
        let object = self.claim_new(epoch, SINKS, epoch.0);
        failpoint::hit("storage.before_sinks")?;
        let mut content = Joined { going, at: 0 };
        uploaded.bytes += self.objects()?.upload(&object, &mut content, &self.throttle, cancel)?;
        uploaded.objects += 1;
        failpoint::hit("storage.after_sinks")?;
        let mut at = 0;
        let mut state = self.state.lock();
        for Going { part, sum, .. } in content.going {
            let (size, stored) = (part.end - part.start, Some(Stored { object: object.clone(), at }));
            let name = part.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let file = StateFile { name, size, crc32: sum.finalize(), stored };
            at += size;
            state.parts.insert((part.sink, part.actor, part.epoch), file.clone());
            parts.push(part.with(file));
        }
        Ok(parts)
    }

    /// Whether a file is there; then it stays for the checkpoint of `epoch`.
    fn claim_there(&self, epoch: Epoch, file: &StateFile) -> bool {
        let mut state = self.state.lock();
        let Some(Stored { object, .. }) = &file.stored else { return false };
        let there = state.there.contains(object);
        if there {
            state.claimed.entry(epoch).or_default().insert(object.clone());
        }
        there
    }

    /// A name that was never given before, for an object that may be there from now on.
    fn claim_new(&self, epoch: Epoch, folder: &str, number: u64) -> String {
        let mut state = self.state.lock();
        state.named += 1;
        let object = format!("{folder}/{}/{}-{number}{}", self.folder, state.named, self.suffix());
        state.claimed.entry(epoch).or_default().insert(object.clone());
        state.there.insert(object.clone());
        object
    }

    /// The catalog that a checkpoint was made with. An error of the kind `InvalidData` if it is damaged.
    pub fn fetch_catalog(&self, manifest: &Manifest) -> io::Result<CatalogSnapshot> {
        let file = manifest.catalog.as_ref();
        let (file, stored) = file.and_then(|file| Some((file, file.stored.as_ref()?))).ok_or_else(|| {
            let message = format!("the checkpoint of epoch {} names no catalog", manifest.epoch);
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        let damaged = |what: &str| damaged(Path::new(&stored.object), what);
        let mut content = Vec::new();
        let received = self.objects()?.download(&stored.object, &mut content, &Cancel::default());
        received.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => damaged("it is missing in the checkpoint storage"),
            _ => e,
        })?;
        if content.len() as u64 != file.size || crc32fast::hash(&content) != file.crc32 {
            return Err(damaged("its checksum in the checkpoint storage is wrong"));
        }
        let catalog = codec::decode_image(&content).map_err(|e| damaged(&e.to_string()))?;
        match catalog.version == manifest.catalog_version {
            true => Ok(catalog),
            false => Err(damaged(&format!("it is of version {}", catalog.version))),
        }
    }

    /// Puts the parts of sinks' logs that a checkpoint names where they were: in files below `dir_of` their
    /// sinks. An error of the kind `InvalidData` if one is damaged.
    pub fn fetch_parts(&self, manifest: &Manifest, dir_of: &dyn Fn(ObjectId) -> PathBuf) -> io::Result<()> {
        let mut by_object: BTreeMap<&str, Vec<Part>> = BTreeMap::new();
        let mut dirs = Vec::new();
        for PromisedPart { sink, start, file, .. } in &manifest.promised {
            let dir = dir_of(*sink);
            std::fs::create_dir_all(&dir).map_err(in_file(&dir))?;
            let path = dir.join(&file.name);
            let content = File::options().create(true).truncate(false).write(true).open(&path);
            let mut content = content.map_err(in_file(&path))?;
            content.seek(SeekFrom::Start(*start))?;
            let stored = file.stored.as_ref().ok_or_else(|| damaged(&path, "it is stored nowhere"))?;
            by_object.entry(&stored.object).or_default().push(Part::new(path, content, file));
            dirs.push(dir);
        }
        for (object, parts) in by_object {
            self.receive(object, parts)?;
        }
        dirs.iter().try_for_each(|dir| sync_dir(dir).and_then(|()| sync_dir(parent(dir))))
    }
}

impl PartOnDisk {
    fn with(&self, file: StateFile) -> PromisedPart {
        let PartOnDisk { sink, actor, epoch, start, .. } = *self;
        PromisedPart { sink, actor, epoch, start, file }
    }
}

/// A part that goes.
struct Going<'a> {
    part: &'a PartOnDisk,
    content: io::Take<File>,
    sum: crc32fast::Hasher,
}

impl<'a> Going<'a> {
    /// None: it was delivered.
    fn open(part: &'a PartOnDisk) -> io::Result<Option<Self>> {
        let mut file = match File::open(&part.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(in_file(&part.path)(error)),
        };
        file.seek(SeekFrom::Start(part.start))?;
        let content = file.take(part.end - part.start);
        Ok(Some(Self { part, content, sum: crc32fast::Hasher::new() }))
    }
}

/// Parts, one behind the other.
struct Joined<'a> {
    going: Vec<Going<'a>>,
    at: usize,
}

impl Read for Joined<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(Going { part, content, sum }) = self.going.get_mut(self.at) {
            let read = content.read(buffer)?;
            sum.update(&buffer[..read]);
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if content.limit() > 0 {
                return Err(damaged(&part.path, "it ends within what was promised"));
            }
            self.at += 1;
        }
        Ok(0)
    }
}

#[cfg(test)]
#[path = "tests/belongings.rs"]
mod tests;

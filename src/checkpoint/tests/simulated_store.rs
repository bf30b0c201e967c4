//! An object store in memory, for simulations: it outlives the server, and may be away, or lose its
//! answers.

use super::manifest::checked;
use super::record::Record;
use crate::config::{StorageScheme, StorageUrl};
use crate::stream::Epoch;
use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The bucket that is simulated.
pub const BUCKET: &str = "simulated";

/// Where checkpoints go, if they do.
pub const CHECKPOINTS: &str = "s3://simulated/checkpoints";

/// All that is there, by the last part of its place below the database's folder.
fn all() -> Vec<Path> {
    let Some(store) = STORE.with_borrow(Clone::clone) else { return Vec::new() };
    let all = store.list(Some(&Path::from("checkpoints"))).collect::<Vec<_>>().now_or_never();
    all.into_iter().flatten().flatten().map(|object| object.location).collect()
}

/// The records of the log, in order.
fn records() -> Vec<Record> {
    let Some(store) = STORE.with_borrow(Clone::clone) else { return Vec::new() };
    let mut logs = all();
    logs.retain(|path| path.parts().any(|part| part.as_ref() == "log"));
    logs.sort_unstable();
    let record = |path: &Path| {
        let content = store.get(path).now_or_never()?.ok()?.bytes().now_or_never()?.ok()?;
        let line = checked(std::str::from_utf8(&content).ok()?).ok()?.to_owned();
        serde_json::from_str::<Record>(&line).ok()
    };
    logs.iter().filter_map(record).collect()
}

/// The epoch of the newest checkpoint there.
pub fn newest_checkpoint() -> Option<Epoch> {
    records().into_iter().filter_map(|record| record.manifest).map(|manifest| manifest.epoch).max()
}

/// What a checkpoint from `since` on names and is not there.
pub fn missing(since: Epoch) -> Vec<String> {
    let there: Vec<String> = all().iter().map(ToString::to_string).collect();
    let is_there = |object: &str| there.iter().any(|path| path.ends_with(&format!("/{object}")));
    let manifests = records().into_iter().filter_map(|record| record.manifest);
    let named = manifests.filter(|manifest| manifest.epoch >= since);
    named.flat_map(|m| m.objects().map(str::to_owned).collect::<Vec<_>>()).filter(|o| !is_there(o)).collect()
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It fails, and nothing was done.
    Before,
    /// It was done, and the answer is lost.
    After,
}

type Rule = Box<dyn FnMut() -> Fault>;

thread_local! {
    static STORE: RefCell<Option<Arc<InMemory>>> = const { RefCell::new(None) };
    static RULE: RefCell<Option<Rule>> = const { RefCell::new(None) };
}

/// An empty store for this thread; `fault` tells what goes wrong with the next request.
pub fn begin(fault: Rule) {
    STORE.set(Some(Arc::default()));
    RULE.set(Some(fault));
}

/// There is none any more.
pub fn end() {
    STORE.take();
    RULE.take();
}

/// The store at a URL, if it is the simulated one.
pub fn of(url: &StorageUrl) -> Option<Arc<dyn ObjectStore>> {
    if url.scheme != StorageScheme::S3 || url.url.host_str() != Some(BUCKET) {
        return None;
    }
    let store = STORE.with_borrow(Clone::clone)?;
    Some(Arc::new(Faulty(store)))
}

#[derive(Debug)]
struct Faulty(Arc<InMemory>);

fn fault() -> Fault {
    RULE.with_borrow_mut(|rule| rule.as_mut().map_or(Fault::None, |rule| rule()))
}

fn error() -> Error {
    Error::Generic { store: BUCKET, source: "it does not answer".into() }
}

fn before() -> Result<Fault> {
    match fault() {
        Fault::Before => Err(error()),
        fault => Ok(fault),
    }
}

fn after(fault: Fault) -> Result<()> {
    if fault == Fault::After { Err(error()) } else { Ok(()) }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BUCKET)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let fault = before()?;
        let done = self.0.put_opts(location, payload, opts).await?;
        after(fault).map(|()| done)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        before()?;
        self.0.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        after(before()?)?;
        self.0.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = Arc::clone(&self.0);
        locations
            .then(move |location| {
                let store = Arc::clone(&store);
                async move {
                    let fault = before()?;
                    let one = futures::stream::iter([location]).boxed();
                    let done = store.delete_stream(one).next().await.unwrap_or_else(|| Err(error()))?;
                    after(fault).map(|()| done)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match before().and_then(after) {
            Ok(()) => self.0.list(prefix),
            Err(error) => futures::stream::iter([Err(error)]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        after(before()?)?;
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let fault = before()?;
        self.0.copy_opts(from, to, options).await?;
        after(fault)
    }
}

//! Objects: a remote storage below one root, as calls that return when they are done.
//!
//! ```text
//!   caller's thread ── put, create, get, list, delete ──> object_store's client ──> s3, gs, az, hdfs, file
//!                                                         on a runtime of its own
//! ```
//! Requests are tried again with growing pauses by the client itself. Large content goes up in parts
//! ([`PART_BYTES`]), whose sum appears at once. An object whose name ends in `.zst` is compressed.
//! **Invariant:** an error's text never holds what a URL has behind its path.

use super::transfer::{Cancel, Throttle};
use crate::config::{StorageScheme, StorageUrl};
use crate::failpoint;
use crate::state::durable::{in_file, parent, sync_dir, sync_file};
use bytes::Bytes;
#[cfg(test)]
use futures::FutureExt;
use futures::{StreamExt, TryStreamExt};
use hdfs_native_object_store::HdfsObjectStoreBuilder;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{
    BackoffConfig, GetResultPayload, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
    RetryConfig,
};
use std::io::{self, Read, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Bytes of a part; what is smaller goes in one request.
pub const PART_BYTES: usize = 8 << 20;
/// Bytes of a local file that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// The end of the names of compressed objects.
pub const COMPRESSED: &str = ".zst";
/// The level at which they are: speed counts, blocks of the store are compressed already.
const LEVEL: i32 = 1;
/// After which no request is tried again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Where the clients' connections live: apart from those of the server's own clients.
static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("weir-storage")
        .enable_all()
        .build()
        .expect("a process that runs a dataflow can start two more threads")
});

/// What `work` gives.
fn wait<T>(work: impl Future<Output = T>) -> T {
    #[cfg(test)]
    if crate::work::testing::is_simulated() {
        return work.now_or_never().expect("a store in memory answers at once");
    }
    RUNTIME.block_on(work)
}

/// Objects below one root.
#[derive(Clone, Debug)]
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    root: ObjectPath,
    /// Where objects are files of ours: they are to be made durable.
    files: Option<LocalFileSystem>,
}

impl Objects {
    /// Those at a URL, or in the folder `below` (a name) there. Nothing is asked of the storage yet.
    pub fn connect<'a>(
        url: &StorageUrl,
        below: impl Into<Option<&'a str>>,
        retries: usize,
    ) -> io::Result<Self> {
        #[cfg(test)]
        if let Some(store) = super::simulated_store::of(url) {
            let path = ObjectPath::from_url_path(url.url.path()).map_err(|e| invalid(url, &e))?;
            let root = below.into().map_or_else(|| path.clone(), |below| path.clone().join(below));
            return Ok(Self { store, root, files: None });
        }
        let mut files = None;
        let path = ObjectPath::from_url_path(url.url.path()).map_err(|e| invalid(url, &e))?;
        let (store, root): (Arc<dyn ObjectStore>, _) = match url.scheme {
            StorageScheme::File => {
                let dir = url.url.to_file_path().map_err(|()| invalid(url, &"it is no path"))?;
                std::fs::create_dir_all(&dir).map_err(crate::state::durable::in_file(&dir))?;
                let store = LocalFileSystem::new_with_prefix(&dir).map_err(|e| error(&e))?;
                files = Some(store.clone());
                (Arc::new(store), ObjectPath::default())
            }
            StorageScheme::S3 => (Arc::new(s3(url, retries)?), path),
            StorageScheme::Gcs => (Arc::new(gcs(url, retries)?), path),
            StorageScheme::Azure => (Arc::new(azure(url, retries)?), path),
            StorageScheme::Hdfs => (hdfs(url)?, path),
        };
        let root = below.into().map_or_else(|| root.clone(), |below| root.clone().join(below));
        Ok(Self { store, root, files })
    }

    /// Those of any store.
    #[cfg(test)]
    pub fn of(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, root: ObjectPath::default(), files: None }
    }

    /// The names of the folders at a URL.
    pub fn folders(url: &StorageUrl, retries: usize) -> io::Result<Vec<String>> {
        let Self { store, root, .. } = Self::connect(url, None, retries)?;
        let listed = wait(store.list_with_delimiter(Some(&root))).map_err(|e| error(&e))?;
        Ok(listed.common_prefixes.iter().filter_map(|p| Some(p.filename()?.to_owned())).collect())
    }

    fn path(&self, name: &str) -> ObjectPath {
        name.split('/').fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Replaces an object.
    pub fn put(&self, name: &str, content: Bytes) -> io::Result<()> {
        let path = self.path(name);
        wait(self.store.put(&path, PutPayload::from(content))).map_err(|e| error(&e))?;
        self.sync(&path)
    }

    /// Makes an object; an error of the kind `AlreadyExists` if there is one of that name. After any
    /// other error it may be there or not.
    pub fn create(&self, name: &str, content: Bytes) -> io::Result<()> {
        let path = self.path(name);
        let put = self.store.put_opts(&path, PutPayload::from(content), PutMode::Create.into());
        wait(put).map_err(|e| error(&e))?;
        self.sync(&path)
    }

    /// The content of an object, as it was put.
    pub fn get(&self, name: &str) -> io::Result<Bytes> {
        let path = self.path(name);
        wait(async { self.store.get(&path).await?.bytes().await }).map_err(|e| error(&e))
    }

    /// The names of all objects in the folder `prefix`; of all, if that is empty.
    pub fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let path = if prefix.is_empty() { self.root.clone() } else { self.path(prefix) };
        let found = self.store.list(Some(&path)).map_ok(|meta| meta.location).try_collect::<Vec<_>>();
        let found = wait(found).map_err(|e| error(&e))?;
        let name = |path: &ObjectPath| {
            let parts: Vec<String> = path.prefix_match(&self.root)?.map(|p| p.as_ref().to_owned()).collect();
            Some(parts.join("/"))
        };
        Ok(found.iter().filter_map(name).collect())
    }

    /// Removes objects, many with a request where the storage can; that one is not there is no error.
    pub fn delete(&self, names: &[String]) -> io::Result<()> {
        let paths: Vec<_> = names.iter().map(|name| Ok(self.path(name))).collect();
        let mut deleted = self.store.delete_stream(futures::stream::iter(paths).boxed());
        while let Some(outcome) = wait(deleted.next()) {
            match outcome {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(error(&e)),
            }
        }
        Ok(())
    }

    /// Puts what `content` gives; compressed if the name says so. Returns the bytes that were sent.
    pub fn upload(
        &self,
        name: &str,
        content: impl Read,
        throttle: &Throttle,
        cancel: &Cancel,
    ) -> io::Result<u64> {
        match name.ends_with(COMPRESSED) {
            true => self.send(name, zstd::stream::read::Encoder::new(content, LEVEL)?, throttle, cancel),
            false => self.send(name, content, throttle, cancel),
        }
    }

    fn send(
        &self,
        name: &str,
        mut content: impl Read,
        throttle: &Throttle,
        cancel: &Cancel,
    ) -> io::Result<u64> {
        let first = part(&mut content)?;
        if first.len() < PART_BYTES {
            throttle.take(first.len() as u64, cancel)?;
            let bytes = first.len() as u64;
            self.put(name, first)?;
            return Ok(bytes);
        }
        let path = self.path(name);
        let mut upload = wait(self.store.put_multipart(&path)).map_err(|e| error(&e))?;
        let sent = send_parts(upload.as_mut(), first, &mut content, throttle, cancel).and_then(|bytes| {
            wait(upload.complete()).map_err(|e| error(&e))?;
            Ok(bytes)
        });
        if sent.is_err()
            && let Err(abort) = wait(upload.abort())
        {
            tracing::debug!(name, error = %error(&abort), "could not take back the parts of an upload");
        }
        self.sync(&path)?;
        sent
    }

    /// Writes the content of an object to `into`, decompressed. An error of the kind `InvalidData` if it
    /// can't be.
    pub fn download(&self, name: &str, into: &mut dyn Write, cancel: &Cancel) -> io::Result<()> {
        if !name.ends_with(COMPRESSED) {
            return self.receive(name, cancel, &mut |chunk| into.write_all(chunk));
        }
        let mut decoder = zstd::stream::write::Decoder::new(Sink { into, failed: false })?;
        self.receive(name, cancel, &mut |chunk| {
            let written = decoder.write_all(chunk);
            written.map_err(|error| match decoder.get_ref().failed {
                true => error,
                false => io::Error::new(io::ErrorKind::InvalidData, error),
            })
        })?;
        decoder.flush()
    }

    fn receive(
        &self,
        name: &str,
        cancel: &Cancel,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let found = wait(self.store.get(&self.path(name))).map_err(|e| error(&e))?;
        let mut chunks = match found.payload {
            // As a stream it would come in pieces of 8 KB, each by way of another thread.
            GetResultPayload::File(file, path) => return read_pieces((file, &path), cancel, take),
            GetResultPayload::Stream(chunks) => chunks,
        };
        while let Some(chunk) = wait(chunks.next()) {
            cancel.check()?;
            take(&chunk.map_err(|e| error(&e))?)?;
        }
        Ok(())
    }

    /// Makes an object that is a file durable, and its name.
    fn sync(&self, path: &ObjectPath) -> io::Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let path = files.path_to_filesystem(path).map_err(|e| error(&e))?;
        match std::fs::File::open(&path) {
            Ok(file) => sync_file(&file)?,
            // Somebody removed it meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        }
        // The directories above it may be as new as itself.
        let mut dir = parent(&path);
        for _ in 0..self.root.parts_count() + 3 {
            sync_dir(dir)?;
            dir = parent(dir);
        }
        Ok(())
    }
}

/// Hands the content of a file, which is at a path, to `take`.
fn read_pieces(
    (mut file, path): (std::fs::File, &Path),
    cancel: &Cancel,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        cancel.check()?;
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => take(&piece[..length])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(in_file(path)(e)),
        }
    }
}

/// Where decompressed content goes; remembers whether it was this end that failed.
struct Sink<'a> {
    into: &'a mut dyn Write,
    failed: bool,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.into.write(bytes).inspect_err(|_| self.failed = true)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.into.flush()
    }
}

fn send_parts(
    upload: &mut dyn MultipartUpload,
    first: Bytes,
    content: &mut impl Read,
    throttle: &Throttle,
    cancel: &Cancel,
) -> io::Result<u64> {
    let (mut next, mut bytes) = (first, 0);
    while !next.is_empty() {
        throttle.take(next.len() as u64, cancel)?;
        bytes += next.len() as u64;
        wait(upload.put_part(PutPayload::from(next))).map_err(|e| error(&e))?;
        failpoint::hit("storage.between_parts")?;
        next = part(content)?;
    }
    Ok(bytes)
}

/// The next [`PART_BYTES`]; less at the end.
fn part(content: &mut impl Read) -> io::Result<Bytes> {
    let mut part = Vec::new();
    content.take(PART_BYTES as u64).read_to_end(&mut part)?;
    Ok(Bytes::from(part))
}

fn retry(retries: usize) -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: retries, retry_timeout: RETRY_TIMEOUT }
}

/// Sets the options of a URL, which were checked when it was read.
fn configured<B, K: FromStr>(builder: B, url: &StorageUrl, set: impl Fn(B, K, String) -> B) -> B {
    url.options.iter().fold(builder, |builder, (key, value)| match K::from_str(key) {
        Ok(key) => set(builder, key, value.clone()),
        Err(_) => builder,
    })
}

fn s3(url: &StorageUrl, retries: usize) -> io::Result<object_store::aws::AmazonS3> {
    let builder = AmazonS3Builder::from_env().with_url(url.url.as_str()).with_retry(retry(retries));
    configured(builder, url, AmazonS3Builder::with_config).build().map_err(|e| error(&e))
}

fn gcs(url: &StorageUrl, retries: usize) -> io::Result<object_store::gcp::GoogleCloudStorage> {
    let builder = GoogleCloudStorageBuilder::from_env().with_url(url.url.as_str()).with_retry(retry(retries));
    configured(builder, url, GoogleCloudStorageBuilder::with_config).build().map_err(|e| error(&e))
}

fn azure(url: &StorageUrl, retries: usize) -> io::Result<object_store::azure::MicrosoftAzure> {
    let builder = MicrosoftAzureBuilder::from_env().with_url(url.url.as_str()).with_retry(retry(retries));
    configured(builder, url, MicrosoftAzureBuilder::with_config).build().map_err(|e| error(&e))
}

fn hdfs(url: &StorageUrl) -> io::Result<Arc<dyn ObjectStore>> {
    let builder = HdfsObjectStoreBuilder::new()
        .with_url(format!("hdfs://{}", url.url.authority()))
        .with_config(url.options.clone())
        .with_io_runtime(RUNTIME.handle().clone());
    Ok(Arc::new(builder.build().map_err(|e| error(&e))?))
}

fn invalid(url: &StorageUrl, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("can't use \"{}\": {error}", url.url))
}

/// An error of the client, in the words of ours. What its text has of a URL is cut at the question
/// mark: a signature may follow.
fn error(error: &object_store::Error) -> io::Error {
    use object_store::Error;
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } => io::ErrorKind::AlreadyExists,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        Error::NotImplemented { .. } | Error::NotSupported { .. } => io::ErrorKind::Unsupported,
        // What the kernel said of a file.
        Error::Generic { source, .. } => {
            let kind = kind_of(source.as_ref());
            return io::Error::new(kind, without_queries(&source.to_string()));
        }
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, without_queries(&error.to_string()))
}

/// What is behind an error, as far as it says more than that it failed.
fn kind_of(mut error: &(dyn std::error::Error + 'static)) -> io::ErrorKind {
    loop {
        if let Some(found) = error.downcast_ref::<io::Error>() {
            return match found.kind() {
                kind @ (io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::StorageFull
                | io::ErrorKind::NotADirectory) => kind,
                _ => io::ErrorKind::Other,
            };
        }
        match error.source() {
            Some(source) => error = source,
            None => return io::ErrorKind::Other,
        }
    }
}

fn without_queries(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut in_query = false;
    for c in text.chars() {
        in_query = c == '?' || in_query && !(c.is_whitespace() || "\"')>,".contains(c));
        if !in_query {
            kept.push(c);
        }
    }
    kept
}

#[cfg(test)]
#[path = "tests/objects.rs"]
mod tests;

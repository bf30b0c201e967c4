//! `checkpoint.storage`: the URL of an object store, checked before anything connects to it.
//!
//! ```text
//!   local                                        the data directory only
//!   s3://bucket/path?region=eu-central-1&endpoint=…    options as object_store names them
//!   gs://bucket/path   az://container/path   hdfs://host:port/path   file:///path
//! ```
//! **Invariant:** a URL that was accepted holds no secret, so it may be shown, logged and stored:
//! credentials come from the environment of the server.

use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;
use std::str::FromStr;
use url::Url;

/// What is meant by no URL.
const LOCAL: &str = "local";

/// What tells a secret among the options of an object store.
const SECRETS: &[&str] = &[
    "secret",
    "token",
    "sas",
    "password",
    "access_key",
    "account_key",
    "master_key",
    "customer_key",
    "private",
    "credential",
];

/// What speaks to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageScheme {
    /// A directory: a mounted file system, another disk.
    File,
    /// S3 and what is compatible.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// Hadoop's file system.
    Hdfs,
}

/// Where an object store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageUrl {
    /// What speaks to it.
    pub scheme: StorageScheme,
    /// The URL without its options.
    pub url: Url,
    /// Options of the store's client, by the names that object_store gives them.
    pub options: Vec<(String, String)>,
}

impl StorageUrl {
    /// Its text, with its options.
    pub fn to_text(&self) -> String {
        let mut url = self.url.clone();
        if !self.options.is_empty() {
            url.query_pairs_mut().extend_pairs(&self.options);
        }
        url.to_string()
    }

    /// Reads a URL; none is `local`. The error tells what to write instead.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case(LOCAL) {
            return Ok(None);
        }
        let mut url = Url::parse(text).map_err(|error| {
            format!("{error}; write local, or a URL such as \"s3://bucket/path\" or \"file:///path\".")
        })?;
        let scheme = scheme(url.scheme())?;
        if url.password().is_some() || (!url.username().is_empty() && scheme != StorageScheme::Azure) {
            return Err("Credentials come from the environment of the server, not from the URL.".to_owned());
        }
        match (scheme, url.host_str().filter(|host| !host.is_empty())) {
            (StorageScheme::File, Some(host)) => {
                return Err(format!(
                    "A file URL has three slashes and no host: \"file:///{host}{}\".",
                    url.path()
                ));
            }
            (StorageScheme::File, None) if url.path().len() < 2 => {
                return Err("Name a directory: \"file:///path\".".to_owned());
            }
            (StorageScheme::File, _) | (_, Some(_)) => {}
            (_, None) => return Err(format!("Name what to use: \"{}://bucket/path\".", url.scheme())),
        }
        check_path(&url)?;
        let options: Vec<(String, String)> =
            url.query_pairs().map(|(key, value)| (key.to_ascii_lowercase(), value.into_owned())).collect();
        options.iter().try_for_each(|(key, _)| check_option(scheme, key))?;
        url.set_query(None);
        url.set_fragment(None);
        Ok(Some(Self { scheme, url, options }))
    }
}

/// A path whose escapes mean text, and whose parts are names.
fn check_path(url: &Url) -> Result<(), String> {
    let path = url.path();
    let escapes = path.match_indices('%').map(|(at, _)| path.get(at..at + 3).unwrap_or(&path[at..]));
    for escape in escapes {
        if escape.len() < 3 || !escape[1..].bytes().all(|b| b.is_ascii_hexdigit()) || escape == "%00" {
            return Err(format!("\"{escape}\" in a URL is no character; write a percent sign as \"%25\"."));
        }
    }
    match object_store::path::Path::from_url_path(path) {
        Ok(_) => Ok(()),
        Err(object_store::path::Error::NonUnicode { .. }) => {
            Err("Write characters other than ASCII as the bytes of their UTF-8, each as % and two digits."
                .to_owned())
        }
        Err(object_store::path::Error::EmptySegment { .. }) => {
            Err("Between two slashes of a path is a name.".to_owned())
        }
        Err(error) => Err(format!("{error}.")),
    }
}

fn scheme(name: &str) -> Result<StorageScheme, String> {
    Ok(match name {
        "file" => StorageScheme::File,
        "s3" | "s3a" => StorageScheme::S3,
        "gs" => StorageScheme::Gcs,
        "az" | "adl" | "azure" | "abfs" | "abfss" => StorageScheme::Azure,
        "hdfs" => StorageScheme::Hdfs,
        other => {
            return Err(format!("\"{other}\" is none of s3, gs, az, abfss, hdfs and file."));
        }
    })
}

fn check_option(scheme: StorageScheme, key: &str) -> Result<(), String> {
    if SECRETS.iter().any(|secret| key.contains(secret)) {
        return Err(format!(
            "\"{key}\" is secret: it comes from the environment of the server, not from the URL."
        ));
    }
    let known = match scheme {
        StorageScheme::S3 => AmazonS3ConfigKey::from_str(key).is_ok(),
        StorageScheme::Gcs => GoogleConfigKey::from_str(key).is_ok(),
        StorageScheme::Azure => AzureConfigKey::from_str(key).is_ok(),
        // Names of Hadoop's own settings.
        StorageScheme::Hdfs => key.contains('.'),
        StorageScheme::File => false,
    };
    match known {
        true => Ok(()),
        false => Err(format!("\"{key}\" is no option of this kind of storage.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_with_their_options() {
        for local in ["local", "LOCAL", "", "  "] {
            assert_eq!(StorageUrl::parse(local), Ok(None));
        }
        let s3 =
            StorageUrl::parse("s3://bucket/some/path?region=eu-west-1&allow_http=true").unwrap().unwrap();
        assert_eq!((s3.scheme, s3.url.as_str()), (StorageScheme::S3, "s3://bucket/some/path"));
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(s3.options, [option("region", "eu-west-1"), option("allow_http", "true")]);
        for (text, scheme) in [
            ("file:///mnt/checkpoints", StorageScheme::File),
            ("file:///mnt/100%25/%C3%A4/", StorageScheme::File),
            ("gs://bucket", StorageScheme::Gcs),
            ("az://container/path", StorageScheme::Azure),
            ("abfss://container@account.dfs.core.windows.net/path", StorageScheme::Azure),
            ("hdfs://namenode:9000/weir?dfs.ha.namenodes.ns=a", StorageScheme::Hdfs),
        ] {
            assert_eq!(StorageUrl::parse(text).unwrap().unwrap().scheme, scheme, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_or_secret_is_refused() {
        for (text, expected) in [
            ("checkpoints", "relative URL without a base"),
            ("ftp://host/path", "\"ftp\" is none of"),
            ("file://host/path", "\"file:///host/path\""),
            ("file:///", "Name a directory"),
            ("s3:///path", "s3://bucket/path"),
            ("s3://bucket?regoin=x", "\"regoin\" is no option"),
            ("s3://user:pass@bucket/x", "environment"),
            ("s3://key@bucket/x", "environment"),
            ("s3://bucket?aws_secret_access_key=x", "is secret"),
            ("s3://bucket?access_key_id=x", "is secret"),
            ("az://c?sas_token=x", "is secret"),
            ("gs://b?service_account_key=x", "is secret"),
            ("file:///x?y=z", "\"y\" is no option"),
            ("file:///x/%zz", "\"%zz\" in a URL is no character"),
            ("s3://bucket/100%", "\"%\" in a URL is no character"),
            ("file:///x%00", "\"%00\" in a URL is no character"),
            ("file:///x/%ff", "the bytes of their UTF-8"),
            ("s3://bucket/a//b", "Between two slashes"),
        ] {
            let error = StorageUrl::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

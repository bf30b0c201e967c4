//! The settings of one database, typed: what ALTER DATABASE … SET says, or else the server's default.

use super::storage::StorageUrl;
use crate::units::{parse_bytes, parse_duration};
use std::time::Duration;

/// The settings of one database, typed.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseConfig {
    /// `barrier.interval`
    pub barrier_interval: Duration,
    /// `checkpoint.interval`; zero: only on demand.
    pub checkpoint_interval: Duration,
    /// `checkpoint.timeout`
    pub checkpoint_timeout: Duration,
    /// `checkpoint.aligned_timeout`; zero: barriers are always waited for.
    pub checkpoint_aligned_timeout: Duration,
    /// `checkpoint.min_pause`
    pub checkpoint_min_pause: Duration,
    /// `checkpoint.phase`; none: spread.
    pub checkpoint_phase: Option<Duration>,
    /// `checkpoint.max_concurrent`
    pub checkpoint_max_concurrent: usize,
    /// `checkpoint.max_retained`
    pub checkpoint_max_retained: usize,
    /// `checkpoint.tolerable_failures`
    pub checkpoint_tolerable_failures: usize,
    /// `checkpoint.storage` and what goes with it.
    pub storage: StorageSettings,
    /// `restart.*`
    pub restart: RestartSettings,
    /// `sink.log_limit`
    pub sink_log_limit: u64,
    /// `parallelism`, at least one.
    pub parallelism: usize,
}

/// Where checkpoints go beside the local directory, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageSettings {
    /// `checkpoint.storage`; none: they stay local.
    pub url: Option<StorageUrl>,
    /// Whether `checkpoint.compression` is not none.
    pub compress: bool,
    /// `checkpoint.upload_limit`, bytes a second; 0: none.
    pub upload_limit: u64,
    /// `checkpoint.transfers`
    pub transfers: usize,
    /// `checkpoint.storage_retries`
    pub retries: usize,
}

/// How soon and how often a failed dataflow restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartStrategy {
    /// The pause doubles with each failure in a row.
    ExponentialDelay,
    /// The pause stays the same.
    FixedDelay,
    /// The pause stays the same; failures are counted within an interval.
    FailureRate,
}

/// `restart.*`, each field by the setting's name.
#[derive(Clone, Debug, PartialEq)]
pub struct RestartSettings {
    /// `restart.strategy`
    pub strategy: RestartStrategy,
    /// `restart.delay`
    pub delay: Duration,
    /// `restart.max_delay`
    pub max_delay: Duration,
    /// `restart.reset_after`
    pub reset_after: Duration,
    /// `restart.attempts`; 0: no end.
    pub attempts: u32,
    /// `restart.failure_rate_interval`
    pub failure_rate_interval: Duration,
}

/// As many as there are cores, where it is zero.
pub(super) fn or_cores(number: usize) -> usize {
    match number {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        number => number,
    }
}

impl DatabaseConfig {
    /// By the text of each setting.
    pub fn of(value: impl Fn(&'static str) -> String) -> Self {
        let duration = |name| parse_duration(&value(name)).unwrap_or_default();
        let number = |name| value(name).parse::<usize>().unwrap_or_default();
        Self {
            barrier_interval: duration("barrier.interval"),
            checkpoint_interval: duration("checkpoint.interval"),
            checkpoint_timeout: duration("checkpoint.timeout"),
            checkpoint_aligned_timeout: duration("checkpoint.aligned_timeout"),
            checkpoint_min_pause: duration("checkpoint.min_pause"),
            checkpoint_phase: parse_duration(&value("checkpoint.phase")),
            checkpoint_max_concurrent: number("checkpoint.max_concurrent"),
            checkpoint_max_retained: number("checkpoint.max_retained"),
            checkpoint_tolerable_failures: number("checkpoint.tolerable_failures"),
            storage: StorageSettings {
                url: StorageUrl::parse(&value("checkpoint.storage")).unwrap_or_default(),
                compress: value("checkpoint.compression") != "none",
                upload_limit: parse_bytes(&value("checkpoint.upload_limit")).unwrap_or_default(),
                transfers: number("checkpoint.transfers").max(1),
                retries: number("checkpoint.storage_retries"),
            },
            restart: RestartSettings {
                strategy: match value("restart.strategy").as_str() {
                    "fixed_delay" => RestartStrategy::FixedDelay,
                    "failure_rate" => RestartStrategy::FailureRate,
                    _ => RestartStrategy::ExponentialDelay,
                },
                delay: duration("restart.delay"),
                max_delay: duration("restart.max_delay"),
                reset_after: duration("restart.reset_after"),
                attempts: value("restart.attempts").parse().unwrap_or_default(),
                failure_rate_interval: duration("restart.failure_rate_interval"),
            },
            parallelism: or_cores(number("parallelism")),
            sink_log_limit: parse_bytes(&value("sink.log_limit")).unwrap_or(u64::MAX),
        }
    }
}

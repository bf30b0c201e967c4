//! Many files at once, at no more than a rate, until somebody says stop.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often a thread that waits looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Tells those who store a checkpoint that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// From now on [`Cancel::check`] fails.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// An error if it is to end.
    pub fn check(&self) -> io::Result<()> {
        match self.0.load(Ordering::Acquire) {
            true => Err(io::Error::other("the dataflow is ending")),
            false => Ok(()),
        }
    }
}

/// A limit on bytes a second, over all that share it.
#[derive(Debug, Default)]
pub struct Throttle {
    bytes_per_second: AtomicU64,
    /// When what was let through will have gone, at the rate.
    free: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Another limit; 0: none.
    pub fn limit(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Waits until `bytes` may go.
    pub fn take(&self, bytes: u64, cancel: &Cancel) -> io::Result<()> {
        cancel.check()?;
        let Some(until) = self.book(bytes, Instant::now()) else { return Ok(()) };
        loop {
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            std::thread::sleep((until - now).min(LOOK));
            cancel.check()?;
        }
    }

    /// When `bytes` that come `now` may go: after what was let through before them.
    fn book(&self, bytes: u64, now: Instant) -> Option<Instant> {
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let mut free = self.free.lock();
        let from = free.map_or(now, |free| free.max(now));
        *free = Some(from + Duration::from_secs_f64(bytes as f64 / rate as f64));
        Some(from)
    }
}

/// Does `work` for each of `items` on so many threads; the first error ends it, when what was begun is
/// done.
pub fn in_parallel<T: Sync>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let threads = crate::work::threads(threads.min(items.len()));
    if threads <= 1 {
        return items.iter().try_for_each(work);
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = || -> io::Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            work(item).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    let outcomes: Vec<io::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let panicked = || Err(io::Error::other("a transfer's thread panicked"));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    });
    outcomes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_at_the_rate() {
        let throttle = Throttle::default();
        let start = Instant::now();
        assert_eq!(throttle.book(1 << 30, start), None);
        throttle.limit(1000);
        let after = |ms| Some(start + Duration::from_millis(ms));
        assert_eq!(throttle.book(500, start), after(0));
        assert_eq!(throttle.book(2000, start), after(500), "after what went before");
        assert_eq!(throttle.book(1, start + Duration::from_secs(9)), after(9000), "nothing is saved up");
        let cancel = Cancel::default();
        throttle.book(1 << 40, start);
        cancel.cancel();
        assert!(throttle.take(1, &cancel).is_err(), "nobody waits who is to stop");
    }

    #[test]
    fn everything_is_done_once_and_the_first_error_ends_it() {
        let items: Vec<usize> = (0..100).collect();
        for threads in [1, 7] {
            let done = Mutex::new(Vec::new());
            in_parallel(threads, &items, |i| {
                done.lock().push(*i);
                Ok(())
            })
            .unwrap();
            let mut done = done.into_inner();
            done.sort_unstable();
            assert_eq!(done, items);
            let after = AtomicUsize::new(0);
            let failed = in_parallel(threads, &items, |i| {
                after.fetch_add(1, Ordering::Relaxed);
                if *i == 3 { Err(io::Error::other("full")) } else { Ok(()) }
            });
            assert_eq!(failed.unwrap_err().to_string(), "full");
            assert!(after.into_inner() < 100);
        }
    }
}

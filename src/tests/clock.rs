//! A simulation's time: it holds on the thread that began it, and passes when that says so.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

struct Time {
    wall_us: i64,
    monotonic: Duration,
    next: u64,
    sleepers: BTreeMap<(Duration, u64), Waker>,
}

thread_local!(static TIME: RefCell<Option<Time>> = const { RefCell::new(None) });

/// From now on this thread's time is simulated, and starts at `wall_us`.
pub fn begin(wall_us: i64) {
    let time = Time { wall_us, monotonic: Duration::ZERO, next: 0, sleepers: BTreeMap::new() };
    TIME.set(Some(time));
}

/// This thread's time is the machine's again.
pub fn end() {
    TIME.set(None);
}

/// Time passes; who has slept enough wakes.
pub fn pass(duration: Duration) {
    let woken = with(|time| {
        time.wall_us += duration.as_micros() as i64;
        time.monotonic += duration;
        let later = time.sleepers.split_off(&(time.monotonic + Duration::from_nanos(1), 0));
        std::mem::replace(&mut time.sleepers, later)
    });
    woken.into_iter().flat_map(BTreeMap::into_values).for_each(Waker::wake);
}

/// Somebody sets the machine's clock.
pub fn set_clock(by_us: i64) {
    with(|time| time.wall_us += by_us);
}

pub(super) fn now_us() -> Option<i64> {
    with(|time| time.wall_us)
}

pub(super) fn monotonic() -> Option<Duration> {
    with(|time| time.monotonic)
}

fn with<T>(look: impl FnOnce(&mut Time) -> T) -> Option<T> {
    // Absent too where the thread ends.
    TIME.try_with(|time| time.borrow_mut().as_mut().map(look)).ok().flatten()
}

pub(super) struct Sleep {
    until: Duration,
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn until(until: Duration) -> Self {
        Self { until, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (until, number) = (self.until, self.number);
        let number = with(|time| {
            if time.monotonic >= until {
                return None;
            }
            let number = number.unwrap_or(time.next);
            time.next = time.next.max(number + 1);
            time.sleepers.insert((until, number), context.waker().clone());
            Some(number)
        });
        self.number = number.flatten();
        if self.number.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            with(|time| time.sleepers.remove(&(self.until, number)));
        }
    }
}

#[test]
fn sleepers_wake_when_the_time_has_passed() {
    use futures::FutureExt;
    begin(1_000_000);
    let mut sleep = Box::pin(super::sleep(Duration::from_millis(2)));
    assert!(sleep.as_mut().now_or_never().is_none());
    pass(Duration::from_millis(1));
    set_clock(-500_000);
    assert!(sleep.as_mut().now_or_never().is_none());
    pass(Duration::from_millis(1));
    assert!(sleep.as_mut().now_or_never().is_some());
    assert_eq!(super::now_us(), 502_000);
    let before = super::steady_us();
    set_clock(-3_600_000_000);
    pass(Duration::from_millis(1));
    assert_eq!(super::steady_us(), before + 1_000, "nobody sets it");
    end();
}

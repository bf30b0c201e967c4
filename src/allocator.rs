//! How long freed memory stays with the process. To get a page from the system and have it zeroed costs
//! as much as a row is worth, and a checkpoint frees what the next one needs again; so as long as there
//! is room, what is freed is kept.
//!
//! Two allocators are at work: mimalloc for ours, the C library's for RocksDB.

use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t, mi_option_use_numa_nodes};
use std::sync::atomic::{AtomicBool, Ordering};

/// mimalloc's option of that name. The crate names only some; this one stands before another.
const PURGE_DELAY: mi_option_t = mi_option_use_numa_nodes - 1;
/// How long freed memory is kept, in milliseconds: while there is room, and while there is little.
const AMPLE_MS: i64 = 60_000;
const SCARCE_MS: i64 = 50;

/// RocksDB's buffers up to this many bytes come from memory that was freed before. The most that the
/// C library takes.
const REUSED_BYTES: i32 = 32 << 20;
/// How much of it is kept at the end of the C library's heap.
const KEPT_BYTES: i32 = 64 << 20;

static AMPLE: AtomicBool = AtomicBool::new(false);

/// Sets what holds from the start: there is room.
pub fn start() {
    // SAFETY: both calls only set numbers, and may be made at any time.
    #[allow(unsafe_code)]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, REUSED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
    set_ample(true);
}

/// Says whether there is room. When it becomes scarce, what is free goes back to the system.
pub fn set_ample(ample: bool) {
    if AMPLE.swap(ample, Ordering::Relaxed) == ample {
        return;
    }
    // SAFETY: setting the option stores a number; collecting frees nothing that is in use.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set(PURGE_DELAY, if ample { AMPLE_MS } else { SCARCE_MS });
        if !ample {
            mi_collect(true);
            libc::malloc_trim(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

    #[test]
    fn the_option_is_the_delay_of_purges() {
        // Its default, in milliseconds, which no other option has.
        // SAFETY: it only reads a number.
        #[allow(unsafe_code)]
        let default = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1000, "mimalloc's options have moved");
    }
}

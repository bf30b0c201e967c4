//! How many files and connections may be open at once: as many as the system lets us have.
//!
//! A process starts with a low limit (often 1024) and may raise it up to another, far higher one. The
//! state store, connections and the files of a source that is followed count together.

/// Raises the limit as far as it goes. Where that is refused it stays.
pub fn raise_limit() {
    // SAFETY: the structure is plain numbers that the first call fills in and the second reads.
    #[allow(unsafe_code)]
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        raise_limit();
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let limit = unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
            limit
        };
        assert_eq!(limit.rlim_cur, limit.rlim_max);
    }
}

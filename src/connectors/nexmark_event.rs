//! The numbers of the auction benchmark: which event is of which kind, which persons and auctions
//! exist by then, and the draws that everything random is made of.
//!
//! ```text
//!   event number   0  1 2 3  4 … 49 | 50  51 52 53  54 … 99 | 100 …      a cycle is 50 events
//!                  P  A A A  B … B  | P   A  A  A   B  … B  | P          1 person, 3 auctions, 46 bids
//! ```
//! The proportions and hot ratios are those of the Nexmark reference generator. Randomness is a
//! hash of (seed, what is drawn, event number): any column of any event can be made alone, and is
//! the same whatever else is made.

use serde::Deserialize;

/// Events in a cycle.
pub const CYCLE: u64 = 50;
const PERSONS: u64 = 1;
const AUCTIONS: u64 = 3;

const FIRST_PERSON_ID: u64 = 1000;
const FIRST_AUCTION_ID: u64 = 1000;
/// How many auctions are open at a time.
const IN_FLIGHT_AUCTIONS: u64 = 100;
/// How many persons take part at a time.
const ACTIVE_PERSONS: u64 = 1000;
/// Bids and auctions may name persons and auctions that come a little later.
const LEAD: u64 = 10;
/// One in so many auctions, sellers, bidders is hot.
const HOT_EVERY: u64 = 100;

/// 2015-07-15 00:00:00 UTC, in microseconds.
pub const BASE_TIME_US: i64 = 1_436_918_400_000_000;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Kind {
    /// Somebody registers.
    Person,
    /// Something is put up.
    Auction,
    /// Somebody bids.
    Bid,
}

impl Kind {
    /// The positions of this kind in a cycle.
    pub fn positions(self) -> std::ops::Range<u64> {
        match self {
            Kind::Person => 0..PERSONS,
            Kind::Auction => PERSONS..PERSONS + AUCTIONS,
            Kind::Bid => PERSONS + AUCTIONS..CYCLE,
        }
    }
}

/// What a value is drawn for, so that draws are independent of each other.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are the columns'")]
pub enum Purpose {
    BidAuction = 1,
    BidBidder,
    BidPrice,
    BidChannel,
    BidExtra,
    AuctionName,
    AuctionDescription,
    AuctionInitial,
    AuctionReserve,
    AuctionExpires,
    AuctionSeller,
    AuctionCategory,
    AuctionExtra,
    PersonName,
    PersonEmail,
    PersonCard,
    PersonCity,
    PersonState,
    PersonExtra,
}

/// A source of randomness for one purpose.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    key: u64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Draw {
    /// The draws of `seed` for `salt`.
    pub fn new(seed: u64, salt: u64) -> Self {
        Self { key: mix(mix(seed ^ GOLDEN).wrapping_add(salt.wrapping_mul(0xd1b5_4a32_d192_ed03))) }
    }

    /// The random number of `event`.
    #[inline]
    pub fn at(self, event: u64) -> u64 {
        mix(self.key ^ event.wrapping_mul(GOLDEN))
    }
}

/// The `i`th number that follows a draw.
#[inline]
pub fn follow(draw: u64, i: u64) -> u64 {
    mix(draw.wrapping_add((i + 1).wrapping_mul(GOLDEN)))
}

/// A number in `0..n` (n below 2^32) from the high half of a draw.
#[inline]
pub fn below(draw: u64, n: u64) -> u64 {
    ((draw >> 32) * n) >> 32
}

/// The same from the low half, for a second choice from one draw.
#[inline]
pub fn below_low(draw: u64, n: u64) -> u64 {
    ((draw & 0xffff_ffff) * n) >> 32
}

/// What the world is like at an event.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// The seed.
    pub seed: u64,
    /// Event time from one event to the next, in microseconds.
    pub gap_us: i64,
}

impl World {
    /// The draws for `purpose`.
    pub fn draw(&self, purpose: Purpose) -> Draw {
        Draw::new(self.seed, purpose as u64)
    }

    /// The event time.
    #[inline]
    pub fn time_us(&self, event: u64) -> i64 {
        BASE_TIME_US + event as i64 * self.gap_us
    }

    /// The person that `event` is, or the last one before it.
    #[inline]
    pub fn person_id(&self, event: u64) -> u64 {
        FIRST_PERSON_ID + event / CYCLE
    }

    /// The auction that `event` is, or the last one before it (the first, before there is one).
    #[inline]
    pub fn auction_id(&self, event: u64) -> u64 {
        FIRST_AUCTION_ID + last_auction(event)
    }

    /// The auction that a bid is for: half of them for the hot one.
    #[inline]
    pub fn bid_auction(&self, event: u64, draw: u64) -> u64 {
        let last = last_auction(event);
        let base = if draw & 1 != 0 {
            last / HOT_EVERY * HOT_EVERY
        } else {
            let first = last.saturating_sub(IN_FLIGHT_AUCTIONS);
            first + below(draw, last - first + 1 + LEAD)
        };
        FIRST_AUCTION_ID + base
    }

    /// Who bids: three quarters of the bids are the hot bidder's.
    #[inline]
    pub fn bid_bidder(&self, event: u64, draw: u64) -> u64 {
        if draw & 3 != 0 {
            FIRST_PERSON_ID + event / CYCLE / HOT_EVERY * HOT_EVERY + 1
        } else {
            active(event, draw)
        }
    }

    /// Who sells: three quarters of the auctions are the hot seller's.
    #[inline]
    pub fn auction_seller(&self, event: u64, draw: u64) -> u64 {
        if draw & 3 != 0 {
            FIRST_PERSON_ID + event / CYCLE / HOT_EVERY * HOT_EVERY
        } else {
            active(event, draw)
        }
    }

    /// How long an auction is open: on average until as many more as are in flight have begun.
    #[inline]
    pub fn auction_length_us(&self, draw: u64) -> i64 {
        let horizon_ms =
            (IN_FLIGHT_AUCTIONS * CYCLE / AUCTIONS * self.gap_us as u64 / 1000).clamp(1, 1 << 30);
        (1 + below(draw, horizon_ms * 2)) as i64 * 1000
    }
}

#[inline]
fn last_auction(event: u64) -> u64 {
    let (cycle, position) = (event / CYCLE, event % CYCLE);
    if position < PERSONS {
        (cycle * AUCTIONS).saturating_sub(1)
    } else {
        cycle * AUCTIONS + (position - PERSONS).min(AUCTIONS - 1)
    }
}

#[inline]
fn active(event: u64, draw: u64) -> u64 {
    let persons = event / CYCLE + 1;
    let active = persons.min(ACTIVE_PERSONS);
    FIRST_PERSON_ID + persons - active + below(draw, active + LEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_reference() {
        let world = World { seed: 1, gap_us: 10_000 };
        assert_eq!((world.person_id(0), world.person_id(49), world.person_id(50)), (1000, 1000, 1001));
        assert_eq!(
            [1, 2, 3, 4, 49, 50, 51].map(|event| world.auction_id(event)),
            [1000, 1001, 1002, 1002, 1002, 1002, 1003]
        );
        assert_eq!(world.time_us(4), BASE_TIME_US + 40_000);
    }

    #[test]
    fn hot_ones_are_hot() {
        let world = World { seed: 7, gap_us: 10_000 };
        let draw = world.draw(Purpose::BidAuction);
        let event = 1_000_000;
        let hot =
            (0..10_000).filter(|i| world.bid_auction(event, draw.at(*i)).is_multiple_of(HOT_EVERY)).count();
        assert!((4_800..5_400).contains(&hot), "{hot} of 10000 bids are for a hot auction");
        let ids: Vec<u64> = (0..10_000).map(|i| world.bid_auction(event, draw.at(i))).collect();
        let last = world.auction_id(event);
        assert!(ids.iter().all(|id| (last - IN_FLIGHT_AUCTIONS..=last + LEAD).contains(id)));
    }
}

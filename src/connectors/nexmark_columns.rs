//! The columns of the auction benchmark's three streams: each made alone, for a list of events.
//!
//! Values have the shapes of the Nexmark reference generator: sizes, alphabets, hot channels and
//! their URLs. Text is drawn as random bytes for the whole batch, then mapped to letters in one
//! pass.

use super::nexmark_event::{Draw, Kind, Purpose, World, below, below_low, follow};
use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, TimeUnit};
use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use weir_catalog::Column;

const BID: [&str; 7] = ["auction", "bidder", "price", "channel", "url", "datetime", "extra"];
const AUCTION: [&str; 10] = [
    "id",
    "itemname",
    "description",
    "initialbid",
    "reserve",
    "datetime",
    "expires",
    "seller",
    "category",
    "extra",
];
const PERSON: [&str; 8] = ["id", "name", "emailaddress", "creditcard", "city", "state", "datetime", "extra"];

const FIRST_NAMES: [&str; 11] =
    ["peter", "paul", "luke", "john", "saul", "vicky", "kate", "julie", "sarah", "deiter", "walter"];
const LAST_NAMES: [&str; 9] =
    ["shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones", "noris"];
const CITIES: [&str; 10] = [
    "phoenix",
    "los angeles",
    "san francisco",
    "boise",
    "portland",
    "bend",
    "redmond",
    "seattle",
    "kent",
    "cheyenne",
];
const STATES: [&str; 6] = ["az", "ca", "id", "or", "wa", "wy"];
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
const CHANNELS: u64 = 10_000;
const CATEGORIES: u64 = 5;
const FIRST_CATEGORY: u64 = 10;
const CARD_BYTES: usize = 19;

/// The columns of `kind`, as declared by a source that declares none.
pub fn columns(kind: Kind) -> Vec<Column> {
    names(kind)
        .iter()
        .map(|name| {
            let (data_type, sql_type) = match *name {
                "datetime" | "expires" => (DataType::Timestamp(TimeUnit::Microsecond, None), "timestamp"),
                "auction" | "bidder" | "price" | "id" | "initialbid" | "reserve" | "seller" | "category" => {
                    (DataType::Int64, "bigint")
                }
                _ => (DataType::Utf8, "varchar"),
            };
            Column {
                name: (*name).to_owned(),
                data_type,
                sql_type: sql_type.to_owned(),
                nullable: true,
                default: None,
            }
        })
        .collect()
}

/// The names of the columns of `kind`, in order.
pub fn names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Person => &PERSON,
        Kind::Auction => &AUCTION,
        Kind::Bid => &BID,
    }
}

/// The values of the column `name` of `kind` for `events`, all of that kind.
pub fn column(world: &World, kind: Kind, name: &str, events: &[u64]) -> ArrayRef {
    match (kind, name) {
        (_, "datetime") => times(events.iter().map(|e| world.time_us(*e))),
        (Kind::Bid, name) => bid_column(world, name, events),
        (Kind::Auction, name) => auction_column(world, name, events),
        (Kind::Person, name) => person_column(world, name, events),
    }
}

fn bid_column(world: &World, name: &str, events: &[u64]) -> ArrayRef {
    match name {
        "auction" => {
            let draw = world.draw(Purpose::BidAuction);
            numbers(events.iter().map(|e| world.bid_auction(*e, draw.at(*e))))
        }
        "bidder" => {
            let draw = world.draw(Purpose::BidBidder);
            numbers(events.iter().map(|e| world.bid_bidder(*e, draw.at(*e))))
        }
        "price" => prices(world.draw(Purpose::BidPrice), events),
        "channel" => channel_texts(world, events, |channel| &channel.name),
        "url" => channel_texts(world, events, |channel| &channel.url),
        // 100 bytes on average, less four numbers; a fifth more or less.
        _ => letters(world.draw(Purpose::BidExtra), events, |_| (54, 28)),
    }
}

fn auction_column(world: &World, name: &str, events: &[u64]) -> ArrayRef {
    match name {
        "id" => numbers(events.iter().map(|e| world.auction_id(*e))),
        "itemname" => letters(world.draw(Purpose::AuctionName), events, |_| (20, 0)),
        "description" => letters(world.draw(Purpose::AuctionDescription), events, |_| (100, 0)),
        "initialbid" => prices(world.draw(Purpose::AuctionInitial), events),
        "reserve" => {
            let (initial, more) = (world.draw(Purpose::AuctionInitial), world.draw(Purpose::AuctionReserve));
            numbers(events.iter().map(|e| price(initial.at(*e)) + price(more.at(*e))))
        }
        "expires" => {
            let draw = world.draw(Purpose::AuctionExpires);
            times(events.iter().map(|e| world.time_us(*e) + world.auction_length_us(draw.at(*e))))
        }
        "seller" => {
            let draw = world.draw(Purpose::AuctionSeller);
            numbers(events.iter().map(|e| world.auction_seller(*e, draw.at(*e))))
        }
        "category" => {
            let draw = world.draw(Purpose::AuctionCategory);
            numbers(events.iter().map(|e| FIRST_CATEGORY + below(draw.at(*e), CATEGORIES)))
        }
        // 500 bytes on average, less the other columns; a fifth more or less.
        _ => letters(world.draw(Purpose::AuctionExtra), events, |_| (266, 132)),
    }
}

fn person_column(world: &World, name: &str, events: &[u64]) -> ArrayRef {
    let named = world.draw(Purpose::PersonName);
    let housed = world.draw(Purpose::PersonCity);
    match name {
        "id" => numbers(events.iter().map(|e| world.person_id(*e))),
        "name" => texts(events, 14, |e, text| {
            let (first, last) = person_name(named.at(e));
            text.push_str(first);
            text.push(' ');
            text.push_str(last);
        }),
        "emailaddress" => {
            let draw = world.draw(Purpose::PersonEmail);
            texts(events, 17, |e, text| {
                let drawn = draw.at(e);
                push_letters(text, drawn, 7);
                text.push('@');
                push_letters(text, follow(drawn, 9), 5);
                text.push_str(".com");
            })
        }
        "creditcard" => {
            let draw = world.draw(Purpose::PersonCard);
            texts(events, CARD_BYTES, |e, text| {
                let drawn = draw.at(e);
                let block = |i| below(follow(drawn, i), 10_000);
                // Writing to a String does not fail.
                let _ = write!(text, "{:04} {:04} {:04} {:04}", block(0), block(1), block(2), block(3));
            })
        }
        "city" => texts(events, 9, |e, text| text.push_str(city(housed.at(e)))),
        "state" => {
            let draw = world.draw(Purpose::PersonState);
            texts(events, 2, |e, text| text.push_str(STATES[below(draw.at(e), STATES.len() as u64) as usize]))
        }
        // 200 bytes on average, less the other columns; a fifth more or less.
        _ => letters(world.draw(Purpose::PersonExtra), events, |e| {
            let (first, last) = person_name(named.at(e));
            let others = 8 + first.len() + 1 + last.len() + 17 + CARD_BYTES + city(housed.at(e)).len() + 2;
            let wanted = 200 - others;
            let spread = wanted / 5;
            (wanted - spread, 2 * spread)
        }),
    }
}

fn person_name(draw: u64) -> (&'static str, &'static str) {
    (
        FIRST_NAMES[below(draw, FIRST_NAMES.len() as u64) as usize],
        LAST_NAMES[below_low(draw, LAST_NAMES.len() as u64) as usize],
    )
}

fn city(draw: u64) -> &'static str {
    CITIES[below(draw, CITIES.len() as u64) as usize]
}

/// Prices are spread evenly over six orders of magnitude, from 1.00 up, in cents. A table and
/// straight lines between its points stand in for a power a row.
fn price(draw: u64) -> u64 {
    const POINTS: usize = 4096;
    static TABLE: LazyLock<Vec<f64>> =
        LazyLock::new(|| (0..=POINTS).map(|i| 10f64.powf(i as f64 / POINTS as f64 * 6.0) * 100.0).collect());
    let table = &*TABLE;
    let at = (draw >> 52) as usize;
    let part = ((draw >> 20) & 0xffff_ffff) as f64 / 4_294_967_296.0;
    (table[at] + (table[at + 1] - table[at]) * part).round() as u64
}

fn prices(draw: Draw, events: &[u64]) -> ArrayRef {
    numbers(events.iter().map(|e| price(draw.at(*e))))
}

/// A channel that bids come through.
struct Channel {
    name: String,
    url: String,
}

/// The hot channels, then the others.
static CHANNEL_TABLE: LazyLock<Vec<Channel>> = LazyLock::new(|| {
    // Channels are the same for every seed, as in the reference.
    let draw = Draw::new(0, 0);
    let part = |text: &mut String, drawn: u64| {
        let letters = 3 + below(drawn, 2);
        for i in 0..letters {
            let one = follow(drawn, i);
            text.push(if below(one, 13) == 0 { '_' } else { letter(one as u8) as char });
        }
        text.push('/');
    };
    (0..HOT_CHANNELS.len() as u64 + CHANNELS)
        .map(|i| {
            let mut url = "https://www.nexmark.com/".to_owned();
            (0..3).for_each(|p| part(&mut url, draw.at(i * 4 + p)));
            url.push_str("item.htm?query=1");
            let name = match HOT_CHANNELS.get(i as usize) {
                Some(name) => (*name).to_owned(),
                None => {
                    let number = i as u32 - HOT_CHANNELS.len() as u32;
                    if below(draw.at(i * 4 + 3), 10) > 0 {
                        url.push_str(&format!(
                            "&channel_id={}",
                            (number.reverse_bits() as i32).unsigned_abs()
                        ));
                    }
                    format!("channel-{number}")
                }
            };
            Channel { name, url }
        })
        .collect()
});

fn channel_texts(world: &World, events: &[u64], text_of: impl Fn(&Channel) -> &String) -> ArrayRef {
    let table = &*CHANNEL_TABLE;
    let draw = world.draw(Purpose::BidChannel);
    texts(events, 64, |e, text| {
        let drawn = draw.at(e);
        let channel = if drawn & 1 != 0 {
            below(drawn, HOT_CHANNELS.len() as u64)
        } else {
            HOT_CHANNELS.len() as u64 + below(drawn, CHANNELS)
        };
        text.push_str(text_of(&table[channel as usize]));
    })
}

fn numbers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values.map(|v| v as i64)))
}

fn times(values: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_iter_values(values))
}

fn texts(events: &[u64], bytes_a_row: usize, mut push: impl FnMut(u64, &mut String)) -> ArrayRef {
    let mut offsets = Vec::with_capacity(events.len() + 1);
    let mut text = String::with_capacity(events.len() * bytes_a_row);
    offsets.push(0);
    for event in events {
        push(*event, &mut text);
        offsets.push(text.len() as i32);
    }
    text_array(offsets, text.into_bytes())
}

/// Texts of letters; `size` says (least length, how many more at most) of an event's.
fn letters(draw: Draw, events: &[u64], size: impl Fn(u64) -> (usize, usize)) -> ArrayRef {
    let mut offsets = Vec::with_capacity(events.len() + 1);
    let mut bytes: Vec<u8> = Vec::with_capacity(events.len() * 80);
    offsets.push(0);
    for event in events {
        let drawn = draw.at(*event);
        let (least, more) = size(*event);
        let end = bytes.len() + least + below(drawn, more as u64) as usize;
        let mut i = 0;
        while bytes.len() < end {
            bytes.extend_from_slice(&follow(drawn, i).to_le_bytes());
            i += 1;
        }
        bytes.truncate(end);
        offsets.push(end as i32);
    }
    bytes.iter_mut().for_each(|b| *b = letter(*b));
    text_array(offsets, bytes)
}

#[inline]
fn letter(random: u8) -> u8 {
    b'a' + ((u16::from(random) * 26) >> 8) as u8
}

fn push_letters(text: &mut String, drawn: u64, count: usize) {
    text.extend(drawn.to_le_bytes().iter().take(count).map(|b| letter(*b) as char));
}

fn text_array(offsets: Vec<i32>, bytes: Vec<u8>) -> ArrayRef {
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Arc::new(StringArray::new(offsets, Buffer::from_vec(bytes), None))
}

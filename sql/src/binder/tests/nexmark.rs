//! The Nexmark queries as users write them here: each is bound, lowered, and planned anew to the
//! same plan.

use super::fixture::*;
use super::*;

const SOURCES: &str = "
create source person (id bigint, name varchar, email_address varchar, credit_card varchar, city varchar,
    state varchar, date_time timestamp, extra varchar, watermark for date_time as date_time - interval '4 seconds')
    with (connector = 'file', path = 'p') format plain encode csv;
create source auction (id bigint, item_name varchar, description varchar, initial_bid bigint, reserve bigint,
    date_time timestamp, expires timestamp, seller bigint, category bigint, extra varchar,
    watermark for date_time as date_time - interval '4 seconds')
    with (connector = 'file', path = 'a') format plain encode csv;
create source bid (auction bigint, bidder bigint, price bigint, channel varchar, url varchar, date_time timestamp,
    extra varchar, watermark for date_time as date_time - interval '4 seconds')
    with (connector = 'file', path = 'b') format plain encode csv;
select 1";

const QUERIES: [(&str, &str, &str); 20] = [
    ("q0", "select auction, bidder, price, date_time, extra from bid", "bigint, bigint, bigint, timestamp without time zone, character varying"),
    (
        "q1",
        "select auction, bidder, cast(0.908 * price as decimal(23, 3)) as price, date_time, extra from bid",
        "bigint, bigint, numeric(23,3), timestamp without time zone, character varying",
    ),
    ("q2", "select auction, price from bid where mod(auction, 123) = 0", "bigint, bigint"),
    (
        "q3",
        "select p.name, p.city, p.state, a.id from auction as a join person as p on a.seller = p.id
         where a.category = 10 and p.state in ('or', 'id', 'ca')",
        "character varying, character varying, character varying, bigint",
    ),
    (
        "q4",
        "select q.category, avg(q.final) as avg_final from (
           select max(b.price) as final, a.category from auction a join bid b on a.id = b.auction
           where b.date_time between a.date_time and a.expires group by a.id, a.category) q
         group by q.category",
        "bigint, numeric(38,16)",
    ),
    (
        "q5",
        "select n.auction, n.num from (
           select auction, count(*) as num, window_start, window_end
           from hop(bid, date_time, interval '2 seconds', interval '10 seconds')
           group by auction, window_start, window_end) n
         join (
           select max(c.num) as maxn, c.window_start, c.window_end from (
             select auction, count(*) as num, window_start, window_end
             from hop(bid, date_time, interval '2 seconds', interval '10 seconds')
             group by auction, window_start, window_end) c
           group by c.window_start, c.window_end) m
         on n.window_start = m.window_start and n.window_end = m.window_end and n.num >= m.maxn",
        "bigint, bigint",
    ),
    (
        "q7",
        "select b.auction, b.price, b.bidder, b.date_time, b.extra from bid b join (
           select max(price) as maxprice, window_end as wend
           from tumble(bid, date_time, interval '10 seconds') group by window_start, window_end) m
         on b.price = m.maxprice
         where b.date_time between m.wend - interval '10' second and m.wend",
        "bigint, bigint, bigint, timestamp without time zone, character varying",
    ),
    (
        "q8",
        "select p.id, p.name, p.window_start as starttime from (
           select id, name, window_start, window_end from tumble(person, date_time, interval '10 seconds')
           group by id, name, window_start, window_end) p
         join (
           select seller, window_start, window_end from tumble(auction, date_time, interval '10 seconds')
           group by seller, window_start, window_end) a
         on p.id = a.seller and p.window_start = a.window_start and p.window_end = a.window_end",
        "bigint, character varying, timestamp without time zone",
    ),
    (
        "q9",
        "select id, item_name, auction, bidder, price, bid_date_time from (
           select a.*, b.auction, b.bidder, b.price, b.date_time as bid_date_time,
             row_number() over (partition by a.id order by b.price desc, b.date_time asc) as rownum
           from auction a join bid b on a.id = b.auction
           where b.date_time between a.date_time and a.expires) x
         where rownum <= 1",
        "bigint, character varying, bigint, bigint, bigint, timestamp without time zone",
    ),
    (
        "q10",
        "select auction, to_char(date_time, 'YYYY-MM-DD') as dt, to_char(date_time, 'HH24:MI') as hm from bid",
        "bigint, text, text",
    ),
    (
        "q14",
        "select auction, bidder, 0.908 * price as price,
           case when extract(hour from date_time) >= 8 and extract(hour from date_time) <= 18 then 'dayTime'
                when extract(hour from date_time) <= 6 or extract(hour from date_time) >= 20 then 'nightTime'
                else 'otherTime' end as bidtimetype,
           date_time, extra, char_length(extra) - char_length(replace(extra, 'c', '')) as c_counts
         from bid where 0.908 * price > 1000000 and 0.908 * price < 50000000",
        "bigint, bigint, numeric(22,3), text, timestamp without time zone, character varying, integer",
    ),
    (
        "q15",
        "select to_char(date_time, 'YYYY-MM-DD') as day, count(*) as total_bids,
           count(*) filter (where price < 10000) as rank1_bids,
           count(distinct bidder) filter (where price >= 10000 and price < 1000000) as rank2_bidders
         from bid group by to_char(date_time, 'YYYY-MM-DD')",
        "text, bigint, bigint, bigint",
    ),
    (
        "q16",
        "select channel, date_time::date as day, max(to_char(date_time, 'HH24:MI')) as minute, count(*) as total_bids,
           count(distinct auction) filter (where price < 10000) as rank1_auctions
         from bid group by channel, date_time::date",
        "character varying, date, text, bigint, bigint",
    ),
    (
        "q17",
        "select auction, to_char(date_time, 'YYYY-MM-DD') as day, count(*), min(price), max(price), avg(price), sum(price)
         from bid group by auction, to_char(date_time, 'YYYY-MM-DD')",
        "bigint, text, bigint, bigint, bigint, numeric(38,16), numeric(38,0)",
    ),
    (
        "q18",
        "select auction, bidder, price, channel, url, date_time, extra from (
           select *, row_number() over (partition by bidder, auction order by date_time desc) as rank_number from bid) x
         where rank_number <= 1",
        "bigint, bigint, bigint, character varying, character varying, timestamp without time zone, character varying",
    ),
    (
        "q19",
        "select * from (
           select *, row_number() over (partition by auction order by price desc) as rank_number from bid) x
         where rank_number <= 10",
        "bigint, bigint, bigint, character varying, character varying, timestamp without time zone, character varying, bigint",
    ),
    (
        "q20",
        "select b.auction, b.bidder, b.date_time as bid_date_time, a.date_time as auction_date_time, a.category
         from bid b join auction a on b.auction = a.id where a.category = 10",
        "bigint, bigint, timestamp without time zone, timestamp without time zone, bigint",
    ),
    (
        "q21",
        "select auction, bidder, price, channel,
           case when lower(channel) = 'apple' then '0' when lower(channel) = 'google' then '1'
                else (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] end as channel_id
         from bid
         where (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] is not null
            or lower(channel) in ('apple', 'google', 'facebook', 'baidu')",
        "bigint, bigint, bigint, character varying, text",
    ),
    (
        "q22",
        "select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2,
           split_part(url, '/', 6) as dir3 from bid",
        "bigint, bigint, bigint, character varying, text, text, text",
    ),
    (
        "standard windows",
        "select auction, count(*) from table(tumble(table bid, descriptor(date_time), interval '10' second))
         group by auction, window_start",
        "bigint, bigint",
    ),
];

#[test]
fn every_query_is_planned_the_same_again() {
    let mut db = Db::new();
    db.run(SOURCES);
    let mut failed = Vec::new();
    for (name, sql, types) in QUERIES {
        let bound = db.try_bind(&format!("create materialized view v as {sql}"));
        let create = match bound {
            Ok(Bound::Create(create)) => create,
            Ok(other) => panic!("{other:?}"),
            Err(e) => {
                failed.push(format!("{name}: {} {} {:?}", e.state.0, e.message, e.position));
                continue;
            }
        };
        let found: Vec<&str> = create.object.columns().iter().map(|c| c.sql_type.as_str()).collect();
        if found.join(", ") != types {
            failed.push(format!("{name}: {}", found.join(", ")));
        }
        let explained =
            |plan: &crate::plan::StreamPlan| crate::plan::explain::explain(plan, &db.context.catalog);
        let again = replan(&create.object, &db.context).unwrap();
        assert_eq!(explained(create.plan.as_ref().unwrap()), explained(&again), "{name}");
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}

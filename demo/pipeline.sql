-- The demo's pipeline: what a person could type into psql.

-- Three streams of an auction site, generated: people, their auctions, and bids.
CREATE SOURCE person  WITH (connector = 'nexmark', nexmark.table.type = 'Person',  events = :events, rate = :rate);
CREATE SOURCE auction WITH (connector = 'nexmark', nexmark.table.type = 'Auction', events = :events, rate = :rate);
CREATE SOURCE bid     WITH (connector = 'nexmark', nexmark.table.type = 'Bid',     events = :events, rate = :rate);

-- How many bids there are, and what they sum up to.
CREATE MATERIALIZED VIEW bid_totals AS
  SELECT count(*) AS bids, sum(price) AS total, count(DISTINCT datetime) AS moments FROM bid;

-- A join: who sells in category 10.
CREATE MATERIALIZED VIEW sellers AS
  SELECT p.name, p.city, p.state, a.id
  FROM auction a JOIN person p ON a.seller = p.id
  WHERE a.category = 10;

-- A windowed aggregate: bids and turnover of each ten seconds.
CREATE MATERIALIZED VIEW turnover AS
  SELECT window_start, count(*) AS bids, sum(price) AS total, max(price) AS highest
  FROM TUMBLE(bid, datetime, INTERVAL '10 seconds')
  GROUP BY window_start;

-- A top-n: the three highest bids of each auction.
CREATE MATERIALIZED VIEW top_bids AS
  SELECT auction, bidder, price, rank FROM (
    SELECT auction, bidder, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank FROM bid
  ) ranked WHERE rank <= 3;

-- Every bid, exactly once, in JSON files.
CREATE SINK bid_files AS SELECT auction, bidder, price, datetime FROM bid
  WITH (connector = 'file', path = :'files', type = 'append-only', commit_every = 1)
  FORMAT PLAIN ENCODE JSON;

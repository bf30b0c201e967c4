-- Bids by day and minute (the rows; partitioning into files is the sink's).
SELECT auction, bidder, price, datetime, extra, to_char(datetime, 'YYYY-MM-DD') AS dt, to_char(datetime, 'HH24:MI') AS hm
FROM bid

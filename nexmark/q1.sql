-- Currency conversion.
SELECT auction, bidder, CAST(0.908 * price AS numeric(23, 3)) AS price, datetime, extra FROM bid

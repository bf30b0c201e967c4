-- Ten highest bids of each auction.
SELECT auction, bidder, price, channel, url, datetime, extra, rank_number
FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid
) AS ranked
WHERE rank_number <= 10

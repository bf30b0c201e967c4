-- Winning bids: the best bid of each auction while it was open.
SELECT id, itemname, description, initialbid, reserve, datetime, expires, seller, category, extra,
  auction, bidder, price, bid_datetime, bid_extra
FROM (
  SELECT a.id, a.itemname, a.description, a.initialbid, a.reserve, a.datetime, a.expires, a.seller,
    a.category, a.extra, b.auction, b.bidder, b.price, b.datetime AS bid_datetime, b.extra AS bid_extra,
    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.datetime ASC) AS rownum
  FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.datetime BETWEEN a.datetime AND a.expires
) AS ranked
WHERE rownum <= 1

-- Bids with their auction, category 10.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.datetime AS bid_datetime, b.extra AS bid_extra,
  a.itemname, a.description, a.initialbid, a.reserve, a.datetime AS auction_datetime, a.expires,
  a.seller, a.category, a.extra AS auction_extra
FROM bid AS b JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10

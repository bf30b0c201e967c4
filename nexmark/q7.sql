-- Highest bid of each ten seconds.
SELECT b.auction, b.price, b.bidder, b.datetime, b.extra
FROM bid AS b
JOIN (
  SELECT max(price) AS maxprice, window_end AS wend
  FROM TUMBLE(bid, datetime, INTERVAL '10' SECOND)
  GROUP BY window_start, window_end
) AS m
ON b.price = m.maxprice
WHERE b.datetime BETWEEN m.wend - INTERVAL '10' SECOND AND m.wend

-- Hot items: the auctions with the most bids in each sliding window.
SELECT n.auction, n.num
FROM (
  SELECT auction, count(*) AS num, window_start, window_end
  FROM HOP(bid, datetime, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
  GROUP BY auction, window_start, window_end
) AS n
JOIN (
  SELECT max(c.num) AS maxn, c.window_start, c.window_end
  FROM (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM HOP(bid, datetime, INTERVAL '2' SECOND, INTERVAL '10' SECOND)
    GROUP BY auction, window_start, window_end
  ) AS c
  GROUP BY c.window_start, c.window_end
) AS m
ON n.window_start = m.window_start AND n.window_end = m.window_end AND n.num >= m.maxn

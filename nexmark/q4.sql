-- Average closing price per category (join, two levels of aggregation).
SELECT q.category, avg(q.final) AS avg_final
FROM (
  SELECT max(b.price) AS final, a.category
  FROM auction AS a JOIN bid AS b ON a.id = b.auction
  WHERE b.datetime BETWEEN a.datetime AND a.expires
  GROUP BY a.id, a.category
) AS q
GROUP BY q.category

-- Who sells in category 10 in three states (incremental join).
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('or', 'id', 'ca')

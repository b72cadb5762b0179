-- LIMIT and OFFSET, with an order that is total.

-- foreach l: LIMIT 5 | LIMIT 0 | LIMIT 1 | LIMIT 1000 | LIMIT ALL | LIMIT NULL | OFFSET 3 | OFFSET 1000 | LIMIT 4 OFFSET 6 | OFFSET 6 LIMIT 4 | LIMIT 0 OFFSET 5 | FETCH FIRST 3 ROWS ONLY | FETCH FIRST ROW ONLY | OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY | LIMIT 2 + 3 | LIMIT 10 / 2 OFFSET 1 + 1 | LIMIT '4' | LIMIT 2.5 | LIMIT 3.4 OFFSET 1.5 | OFFSET NULL | LIMIT NULL OFFSET NULL | LIMIT 3::bigint | LIMIT (SELECT 3) | LIMIT 9223372036854775807 | LIMIT 9223372036854775807 OFFSET 9223372036854775807
-- foreach q: tenant_id, id, qty FROM orders ORDER BY tenant_id, id | tenant_id, id FROM orders ORDER BY qty DESC NULLS LAST, tenant_id, id | id, tenant_id FROM orders WHERE qty > 0 ORDER BY price, tenant_id, id | sensor, seq FROM readings ORDER BY sensor DESC, seq | name FROM customers ORDER BY email | at FROM events ORDER BY at
SELECT ${q} ${l};
-- foreach l: LIMIT -1 | OFFSET -1 | LIMIT 'x' | LIMIT 1 / 0 | LIMIT 9223372036854775808
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id ${l};
-- foreach l: FETCH FIRST 3 ROWS WITH TIES | FETCH FIRST 7 ROWS WITH TIES | OFFSET 2 FETCH NEXT 4 ROWS WITH TIES | FETCH FIRST 0 ROWS WITH TIES
-- order: 1
SELECT qty FROM orders ORDER BY qty ${l};
-- foreach l: LIMIT 3 | LIMIT 2 OFFSET 1 | OFFSET 4
SELECT DISTINCT status FROM orders ORDER BY status ${l};
-- foreach l: LIMIT 3 | LIMIT 2 OFFSET 1 | OFFSET 4
SELECT DISTINCT qty, paid FROM orders ORDER BY qty, paid ${l};
-- foreach l: LIMIT 3 | LIMIT 2 OFFSET 1 | OFFSET 4
SELECT status, count(*), sum(price) FROM orders GROUP BY status ORDER BY count(*) DESC, status ${l};
-- foreach l: LIMIT 3 | LIMIT 2 OFFSET 1 | OFFSET 4
SELECT tenant_id, max(price) FROM orders GROUP BY tenant_id ORDER BY max(price) DESC NULLS LAST, tenant_id ${l};
-- foreach l: LIMIT 3 | LIMIT 2 OFFSET 1 | OFFSET 4
SELECT o.tenant_id, i.sku FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id ORDER BY o.tenant_id, o.id, i.id ${l};
-- foreach l: LIMIT 3 | LIMIT 2 OFFSET 1 | OFFSET 4
SELECT tenant_id, id FROM orders UNION SELECT tenant_id, id FROM items ORDER BY 1, 2 ${l};
SELECT count(*) FROM (SELECT * FROM orders LIMIT 7) x;
SELECT count(*) FROM (SELECT * FROM orders OFFSET 7) x;
SELECT * FROM (SELECT tenant_id, id FROM orders ORDER BY tenant_id DESC, id LIMIT 5) x ORDER BY id, tenant_id;
SELECT sum(qty) FROM (SELECT qty FROM orders ORDER BY tenant_id, id LIMIT 10) x;
SELECT max(id) FROM (SELECT id FROM orders WHERE tenant_id = 3 ORDER BY id LIMIT 2) x;
SELECT tenant_id, id FROM orders WHERE tenant_id = 3 ORDER BY id LIMIT 2;
SELECT tenant_id, id FROM orders WHERE tenant_id IN (2, 3, 4, 5) ORDER BY id DESC, tenant_id LIMIT 3 OFFSET 1;
SELECT * FROM orders WHERE false ORDER BY tenant_id LIMIT 3;
SELECT count(*) FROM orders LIMIT 1;
SELECT count(*) FROM orders LIMIT 0;
SELECT count(*) FROM orders OFFSET 1;
SELECT 1 FROM orders LIMIT 4;
-- shape
SELECT * FROM orders LIMIT 4;
-- shape
SELECT * FROM orders LIMIT 4 OFFSET 2;
-- shape
SELECT tenant_id FROM orders OFFSET 5;
-- params: 5
-- params: 0
-- params: \N
-- params: -1
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id LIMIT $1;
-- params: 3 | 2
-- params: \N | 30
-- params: 2 | \N
-- params: 2 | 100
-- params: 2 | -2
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id LIMIT $1 OFFSET $2;
-- params: 2 | 3
SELECT tenant_id, id FROM orders WHERE qty > $1 ORDER BY price DESC NULLS LAST, tenant_id, id LIMIT $2;
-- params: 3
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id LIMIT $1 + 1 OFFSET $1 * 2;

-- Tables become relations: the columns that are named, the rows that can matter.
SELECT o.id, i.name FROM orders o JOIN items i ON i.order_id = o.id WHERE o.qty > 5 AND i.n = 1;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t WHERE t.qty > 5
--> cleave_rel_2 (hash_bigint, all): SELECT t.order_id, t.name, t.n FROM public.items t WHERE t.n = 1
--> SELECT o.id, i.name FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.order_id = o.id WHERE o.qty > 5 AND i.n = 1
SELECT count(*) FROM orders, items;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id FROM public.items t
--> SELECT count(*) FROM cleave_rel_1 orders, cleave_rel_2 items
SELECT * FROM orders JOIN items USING (id);
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
--> SELECT * FROM cleave_rel_1 orders JOIN cleave_rel_2 items USING (id)
SELECT * FROM orders NATURAL JOIN items;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
--> SELECT * FROM cleave_rel_1 orders NATURAL JOIN cleave_rel_2 items
SELECT orders.note FROM public.orders WHERE public.orders.qty > 1 AND orders.price < 10;
--> cleave_rel_1 (hash_bigint, all): SELECT t.note, t.qty, t.price FROM public.orders t WHERE t.qty > 1 AND t.price < 10
--> SELECT orders.note FROM cleave_rel_1 orders WHERE orders.qty > 1 AND orders.price < 10
SELECT o1.id FROM orders o1, orders o2 WHERE o1.id = o2.tenant_id;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id FROM public.orders t
--> SELECT o1.id FROM cleave_rel_1 o1, cleave_rel_1 o2 WHERE o1.id = o2.tenant_id
SELECT o1.id FROM orders o1, orders o2 WHERE o1.id = o2.tenant_id AND o2.qty > 3;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.qty FROM public.orders t
--> SELECT o1.id FROM cleave_rel_1 o1, cleave_rel_1 o2 WHERE o1.id = o2.tenant_id AND o2.qty > 3
SELECT o1.id FROM orders o1, orders o2 WHERE o1.id = o2.tenant_id AND o2.qty > 3 AND o1.qty < 3;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t WHERE t.qty < 3
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.qty FROM public.orders t WHERE t.qty > 3
--> SELECT o1.id FROM cleave_rel_1 o1, cleave_rel_2 o2 WHERE o1.id = o2.tenant_id AND o2.qty > 3 AND o1.qty < 3
SELECT * FROM orders LEFT JOIN items i ON i.order_id = orders.id AND i.n > 2 AND orders.qty = 3 WHERE i.name = 'x' AND orders.note = 'y';
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.note = 'y'
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t WHERE t.n > 2
--> SELECT * FROM cleave_rel_1 orders LEFT JOIN cleave_rel_2 i ON i.order_id = orders.id AND i.n > 2 AND orders.qty = 3 WHERE i.name = 'x' AND orders.note = 'y'
SELECT * FROM orders RIGHT JOIN items i ON i.order_id = orders.id AND i.n > 2 AND orders.qty = 3 WHERE i.name = 'x' AND orders.note = 'y';
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.qty = 3
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t WHERE t.name = 'x'
--> SELECT * FROM cleave_rel_1 orders RIGHT JOIN cleave_rel_2 i ON i.order_id = orders.id AND i.n > 2 AND orders.qty = 3 WHERE i.name = 'x' AND orders.note = 'y'
SELECT * FROM orders FULL JOIN items i ON i.order_id = orders.id AND i.n > 2 WHERE i.name = 'x' AND orders.note = 'y';
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
--> SELECT * FROM cleave_rel_1 orders FULL JOIN cleave_rel_2 i ON i.order_id = orders.id AND i.n > 2 WHERE i.name = 'x' AND orders.note = 'y'
SELECT name FROM items WHERE order_id IN (SELECT id FROM orders WHERE qty > 1 AND name = note);
--> cleave_rel_1 (hash_bigint, all): SELECT t.order_id, t.id, t.name FROM public.items t
--> cleave_rel_2 (hash_bigint, all): SELECT t.id, t.note, t.qty FROM public.orders t WHERE t.qty > 1 index [[note]]
--> SELECT name FROM cleave_rel_1 items WHERE order_id IN (SELECT id FROM cleave_rel_2 orders WHERE qty > 1 AND name = note)
SELECT name FROM items i WHERE EXISTS (SELECT FROM orders WHERE id = i.order_id AND i.n = 4);
--> cleave_rel_1 (hash_bigint, all): SELECT t.order_id, t.id, t.name, t.n FROM public.items t
--> cleave_rel_2 (hash_bigint, all): SELECT t.id FROM public.orders t index [[id]]
--> SELECT name FROM cleave_rel_1 i WHERE EXISTS (SELECT FROM cleave_rel_2 orders WHERE id = i.order_id AND i.n = 4)
SELECT (SELECT max(qty) FROM orders o WHERE o.id = i.order_id AND o.price > 1) FROM items i;
--> cleave_rel_1 (hash_bigint, all): SELECT t.order_id FROM public.items t
--> cleave_rel_2 (hash_bigint, all): SELECT t.id, t.qty, t.price FROM public.orders t WHERE t.price > 1 index [[id]]
--> SELECT (SELECT max(qty) FROM cleave_rel_2 o WHERE o.id = i.order_id AND o.price > 1) FROM cleave_rel_1 i
WITH x AS (SELECT note, id FROM orders WHERE qty = 2) SELECT * FROM x JOIN people p ON p.name = x.note WHERE p.age > 3;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.note, t.qty FROM public.orders t WHERE t.qty = 2
--> cleave_rel_2 (hash_text, all): SELECT t.name, t.nick, t.age FROM public.people t WHERE t.age > 3
--> WITH x AS (SELECT note, id FROM cleave_rel_1 orders WHERE qty = 2) SELECT * FROM x JOIN cleave_rel_2 p ON p.name = x.note WHERE p.age > 3
WITH RECURSIVE r (id, n) AS (SELECT id, 1 FROM orders WHERE qty = 1 UNION ALL SELECT i.id, n + 1 FROM r JOIN items i ON i.order_id = r.id) SELECT * FROM r;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t WHERE t.qty = 1
--> cleave_rel_2 (hash_bigint, all): SELECT t.order_id, t.id, t.n FROM public.items t
--> WITH RECURSIVE r(id, n) AS (SELECT id, 1 FROM cleave_rel_1 orders WHERE qty = 1 UNION ALL SELECT i.id, n + 1 FROM r JOIN cleave_rel_2 i ON i.order_id = r.id) SELECT * FROM r
SELECT id FROM orders UNION SELECT order_id FROM items WHERE n = 3 ORDER BY 1 LIMIT 3;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.order_id, t.id, t.n FROM public.items t WHERE t.n = 3
--> SELECT id FROM cleave_rel_1 orders UNION SELECT order_id FROM cleave_rel_2 items WHERE n = 3 ORDER BY 1 LIMIT 3
SELECT id, row_number() OVER (PARTITION BY qty ORDER BY id) FROM orders WHERE note LIKE 'a%';
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.note, t.qty FROM public.orders t WHERE t.note LIKE 'a%'
--> SELECT id, row_number() OVER (PARTITION BY qty ORDER BY id) FROM cleave_rel_1 orders WHERE note LIKE 'a%'
SELECT o.id, x.name FROM orders o, LATERAL (SELECT name FROM items i WHERE i.order_id = o.id ORDER BY n LIMIT 1) x;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.order_id, t.name, t.n FROM public.items t index [[order_id]]
--> SELECT o.id, x.name FROM cleave_rel_1 o, LATERAL (SELECT name FROM cleave_rel_2 i WHERE i.order_id = o.id ORDER BY n LIMIT 1) x
SELECT o FROM orders o;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t exact
--> SELECT o FROM cleave_rel_1 o
SELECT row_to_json(o) FROM orders o WHERE o.note = 'now';
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t exact
--> SELECT row_to_json(o) FROM cleave_rel_1 o WHERE o.note = 'now'
TABLE orders;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> SELECT * FROM cleave_rel_1 orders
SELECT * FROM ONLY orders;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM ONLY public.orders t
--> SELECT * FROM cleave_rel_1 orders
SELECT o.id, small.label FROM orders o JOIN small ON small.tenant = o.qty JOIN notes ON notes.id = o.id;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t
--> cleave_rel_2 (any shard): SELECT t.label, t.tenant FROM public.small t
--> cleave_rel_3 (the default shard): SELECT t.id FROM public.notes t
--> SELECT o.id, small.label FROM cleave_rel_1 o JOIN cleave_rel_2 small ON small.tenant = o.qty JOIN cleave_rel_3 notes ON notes.id = o.id
SELECT o.id FROM orders o JOIN visits v ON v.page = o.note WHERE v.visitor = 3 AND random() < 0.5;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.note FROM public.orders t
--> cleave_rel_2 (hash_text_integer, all): SELECT t.visitor, t.page FROM public.visits t WHERE t.visitor = 3
--> SELECT o.id FROM cleave_rel_1 o JOIN cleave_rel_2 v ON v.page = o.note WHERE v.visitor = 3 AND random() < 0.5
SELECT id, note FROM orders GROUP BY tenant_id, id;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note FROM public.orders t keyed
--> SELECT id, note FROM cleave_rel_1 orders GROUP BY tenant_id, id
SELECT id, sum(qty) FROM orders GROUP BY id;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t
--> SELECT id, sum(qty) FROM cleave_rel_1 orders GROUP BY id
SELECT o.qty FROM orders o WHERE o.id = $1 AND o.qty > $2::int AND now() > '2020-01-01';
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t WHERE t.id = $1 AND t.qty > $2::int AND $3::timestamp with time zone > '2020-01-01'
--> SELECT o.qty FROM cleave_rel_1 o WHERE o.id = $1 AND o.qty > $2::int AND $3::timestamp with time zone > '2020-01-01'
SELECT j.a FROM (orders o JOIN items i ON o.id = i.id) AS j (a, b) WHERE j.b = 1;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
--> SELECT j.a FROM (cleave_rel_1 o JOIN cleave_rel_2 i ON o.id = i.id ) j(a, b) WHERE j.b = 1
SELECT a FROM orders AS o (a, b, c) WHERE b = 1;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> SELECT a FROM cleave_rel_1 o(a, b, c) WHERE b = 1
SELECT o.id FROM orders o JOIN items i ON i.id = o.id WHERE (o.qty = 1 OR o.qty = 2) AND CASE WHEN o.id > 0 THEN o.price / o.id > 1 END;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty, t.price FROM public.orders t WHERE (t.qty = 1 OR t.qty = 2) AND CASE WHEN t.id > 0 THEN (t.price / t.id) > 1 END
--> cleave_rel_2 (hash_bigint, all): SELECT t.id FROM public.items t
--> SELECT o.id FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.id = o.id WHERE (o.qty = 1 OR o.qty = 2) AND CASE WHEN o.id > 0 THEN (o.price / o.id) > 1 END
SELECT o.id FROM orders o CROSS JOIN generate_series(1, o.qty) AS g (n) WHERE g.n > 1 AND qty > 1 AND o.qty > 0;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id, t.qty FROM public.orders t WHERE t.qty > 0
--> SELECT o.id FROM cleave_rel_1 o CROSS JOIN generate_series(1, o.qty) g(n) WHERE g.n > 1 AND qty > 1 AND o.qty > 0
SELECT * FROM (VALUES (1), (2)) v (x) JOIN orders o ON o.qty = v.x;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> SELECT * FROM (VALUES (1), (2)) v(x) JOIN cleave_rel_1 o ON o.qty = v.x
SELECT 1 FROM orders o WHERE o.id = 1 AND 5 = $1;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t WHERE t.id = 1 AND 5 = $1
--> SELECT 1 FROM cleave_rel_1 o WHERE o.id = 1 AND 5 = $1
SELECT * FROM orders o, app.orders WHERE o.id = 1;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.id = 1
--> cleave_rel_2 (the default shard): SELECT t.tenant_id, t.x FROM app.orders t
--> SELECT * FROM cleave_rel_1 o, cleave_rel_2 orders WHERE o.id = 1
SELECT o.id FROM orders o FOR UPDATE;
--> refused 0A000: SELECT ... FOR UPDATE or SHARE of rows on several shards would not lock all that it should
SELECT ctid FROM orders;
--> refused 0A000: the system column ctid has no meaning for rows of several shards
SELECT tableoid::regclass FROM orders;
--> refused 0A000: the statement reads a shard's own catalogue beside rows of several shards
SELECT pg_typeof(o) FROM orders o;
--> refused 0A000: pg_typeof() of a row of orders cannot be told for rows of several shards
SELECT pg_typeof(o.id) FROM orders o;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t exact
--> SELECT pg_typeof(o.id) FROM cleave_rel_1 o
SELECT * FROM orders TABLESAMPLE BERNOULLI (10);
--> refused 0A000: TABLESAMPLE of rows on several shards is not supported
SELECT * FROM orders, pg_class;
--> refused 0A000: the catalogue table pg_catalog.pg_class is read beside rows of several shards
SELECT * FROM orders, nosuch;
--> refused 42P01: relation "nosuch" does not exist
SELECT id FROM orders, public.items, items;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.id FROM public.items t
--> SELECT id FROM cleave_rel_1 orders, cleave_rel_2 items, cleave_rel_2 items
SELECT current_database(), id FROM orders;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t
--> SELECT current_database(), id FROM cleave_rel_1 orders
SELECT nextval('free_seq'), id FROM orders;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
SELECT o.id FROM orders o JOIN items i ON i.order_id = o.id WHERE o.tenant_id = 5 AND i.tenant_id IN (7, $1);
--> cleave_rel_1 (hash_bigint ( 5 )): SELECT t.tenant_id, t.id FROM public.orders t WHERE t.tenant_id = 5
--> cleave_rel_2 (hash_bigint ( 7 ) ( $1 )): SELECT t.tenant_id, t.order_id FROM public.items t WHERE t.tenant_id IN (7, $1)
--> SELECT o.id FROM cleave_rel_1 o JOIN cleave_rel_2 i ON i.order_id = o.id WHERE o.tenant_id = 5 AND i.tenant_id IN (7, $1)
SELECT o.id FROM orders o WHERE o.tenant_id = 5 AND EXISTS (SELECT FROM items i WHERE i.order_id = o.id AND i.tenant_id = 9);
--> cleave_rel_1 (hash_bigint ( 5 )): SELECT t.tenant_id, t.id FROM public.orders t WHERE t.tenant_id = 5
--> cleave_rel_2 (hash_bigint ( 9 )): SELECT t.tenant_id, t.order_id FROM public.items t WHERE t.tenant_id = 9 index [[order_id]]
--> SELECT o.id FROM cleave_rel_1 o WHERE o.tenant_id = 5 AND EXISTS (SELECT FROM cleave_rel_2 i WHERE i.order_id = o.id AND i.tenant_id = 9)
SELECT now()::date, now(), current_date, x.now FROM orders o, (SELECT now()) x, items WHERE current_date > '2020-01-01';
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id FROM public.orders t WHERE $1::timestamp with time zone::pg_catalog.date > '2020-01-01'
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id FROM public.items t WHERE $1::timestamp with time zone::pg_catalog.date > '2020-01-01'
--> SELECT $1::timestamp with time zone::date AS now, $1::timestamp with time zone AS now, $1::timestamp with time zone::pg_catalog.date AS "current_date", x.now FROM cleave_rel_1 o, (SELECT $1::timestamp with time zone AS now) x, cleave_rel_2 items WHERE $1::timestamp with time zone::pg_catalog.date > '2020-01-01'
SELECT o.*, public.small.* FROM orders o, small;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> cleave_rel_2 (any shard): SELECT t.id, t.label, t.tenant FROM public.small t
--> SELECT o.*, small.* FROM cleave_rel_1 o, cleave_rel_2 small
SELECT count(o.*) FROM orders o, small;
--> cleave_rel_1 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t exact
--> cleave_rel_2 (any shard): SELECT t.id FROM public.small t
--> SELECT count(o.*) FROM cleave_rel_1 o, cleave_rel_2 small
-- Subqueries that aggregate are worked out by the shards.
SELECT x.note, p.age FROM (SELECT note, count(*) AS n, sum(qty) FROM orders WHERE qty > 1 GROUP BY note) x JOIN people p ON p.nick = x.note WHERE x.n > 3;
--> cleave_rel_1 (hash_bigint, all): SELECT t.note, t.qty FROM public.orders t WHERE t.qty > 1
--> cleave_rel_2 (hash_text, all): SELECT t.nick, t.age FROM public.people t
--> SELECT x.note, p.age FROM (SELECT note, count(*) AS n, sum(qty) FROM cleave_rel_1 orders WHERE qty > 1 GROUP BY note) x JOIN cleave_rel_2 p ON p.nick = x.note WHERE x.n > 3
SELECT x.n, o.id FROM (SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id) x JOIN orders o ON o.id = x.n;
--> cleave_rel_1 (hash_bigint, all): SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id
--> cleave_rel_2 (hash_bigint, all): SELECT t.id FROM public.orders t
--> SELECT x.n, o.id FROM (SELECT * FROM cleave_rel_1) x JOIN cleave_rel_2 o ON o.id = x.n
WITH t AS (SELECT tenant_id, max(id) AS m FROM items GROUP BY tenant_id HAVING count(*) > 1), u AS (SELECT max(m) FROM t) SELECT * FROM t, u, orders o WHERE o.id = t.m;
--> cleave_rel_1 (hash_bigint, all): SELECT tenant_id, max(id) AS m FROM items GROUP BY tenant_id HAVING count(*) > 1
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
--> WITH t AS (SELECT * FROM cleave_rel_1), u AS (SELECT max(m) FROM t) SELECT * FROM t, u, cleave_rel_2 o WHERE o.id = t.m
SELECT max(qty), now() FROM orders UNION ALL SELECT min(n), now() FROM items WHERE id < 5 ORDER BY 1;
--> cleave_rel_1 (hash_bigint, all): SELECT max(qty) AS c1 FROM orders
--> cleave_rel_2 (hash_bigint, all): SELECT min(n) AS c1 FROM items WHERE id < 5
--> SELECT pg_catalog.max(cleave_rel_1.c1) AS max, $1::timestamp with time zone AS now FROM cleave_rel_1 UNION ALL SELECT pg_catalog.min(cleave_rel_2.c1) AS min, $1::timestamp with time zone AS now FROM cleave_rel_2 ORDER BY 1
SELECT * FROM (SELECT count(*), count(*) FROM orders) x (a, b) JOIN items i ON i.n = x.a;
--> cleave_rel_1 (hash_bigint, all): SELECT count(*) AS c1 FROM orders
--> cleave_rel_2 (hash_bigint, all): SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
--> SELECT * FROM (SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count, COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count FROM cleave_rel_1) x(a, b) JOIN cleave_rel_2 i ON i.n = x.a
SELECT id, (SELECT count(*) FROM items i WHERE i.order_id = o.id) FROM orders o;
--> cleave_rel_1 (hash_bigint, all): SELECT t.id FROM public.orders t
--> cleave_rel_2 (hash_bigint, all): SELECT t.order_id, t.id FROM public.items t index [[order_id]]
--> SELECT id, (SELECT count(*) FROM cleave_rel_2 i WHERE i.order_id = o.id) FROM cleave_rel_1 o
SELECT id FROM orders o WHERE id = (SELECT max(order_id) FROM items);
--> cleave_rel_1 (hash_bigint, all): SELECT max(order_id) AS c1 FROM items
--> cleave_rel_2 (hash_bigint, all): SELECT t.id FROM public.orders t
--> SELECT id FROM cleave_rel_2 o WHERE id = (SELECT pg_catalog.max(cleave_rel_1.c1) AS max FROM cleave_rel_1)

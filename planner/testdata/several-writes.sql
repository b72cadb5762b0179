-- Rows for several shards.
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (2, 2), (3, 3);
--> several shards [INSERT]
-->   operation: insert
-->   rows: 3
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (1, 1)
-->   first key: (1)
-->   why: the rows have different shard keys
INSERT INTO orders VALUES ($1, $2, $3), ($4, 5, DEFAULT) RETURNING *;
--> one shard, key ($1), ($4) [INSERT, rows]
INSERT INTO orders AS o (tenant_id, id) VALUES (1, 1), (2, 2) ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note RETURNING o.id;
--> several shards [INSERT, rows]
-->   operation: insert
-->   rows: 2
-->   shard text: INSERT INTO orders AS o (tenant_id, id) VALUES (1, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note RETURNING o.id, "o"."tenant_id"
-->   first key: (1)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (2, 2) ON CONFLICT (tenant_id, id) DO UPDATE SET tenant_id = 3;
--> refused 0A000: ON CONFLICT DO UPDATE cannot change the shard key column tenant_id of table orders
-->   hint: Delete the row and insert it with the new key.
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (2 + 2, 2), (length('abc'), 3);
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: any shard: SELECT length('abc')::bigint
-->   rows: 3
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (1, 1)
-->   first key: (1)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES ((SELECT max(tenant_id) + 1 FROM orders), 1), (5, (SELECT count(*) FROM items));
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: several shards (gather): SELECT (SELECT max(tenant_id) + 1 FROM orders)::bigint, (SELECT count(*) FROM items)
-->   rows: 2
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (<computed 1>::bigint, 1)
-->   first key: (<computed 1>)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id, note) VALUES (1, 1, now()::text), (2, 2, CURRENT_TIMESTAMP(3)::text), (3, 3, current_date::text);
--> several shards [INSERT]
-->   operation: insert
-->   rows: 3
-->   shard text: INSERT INTO orders (tenant_id, id, note) VALUES (1, 1, $1::timestamptz::text)
-->   first key: (1)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (DEFAULT, 2);
--> refused 0A000: the shard key column tenant_id of table orders gets its default on a shard, so its shard is not known before it runs
-->   hint: Give the value, or let the router make it: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT cleave.next_id().
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (NULL, 2);
--> refused 23502: null value in column "tenant_id" of relation "orders" violates not-null constraint
INSERT INTO people VALUES (lower('X'), upper('y'), 1 + 1);
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: any shard: SELECT lower('X')::pg_catalog.text
-->   rows: 1
-->   shard text: INSERT INTO people VALUES (<computed 1>::text, upper('y'), 1 + 1)
-->   first key: (<computed 1>)
-->   why: the rows have different shard keys
INSERT INTO bills (tenant, note) VALUES (1, 'a'), (2, 'b'), (3, 'c') RETURNING id;
--> several shards [INSERT, rows]
-->   text: INSERT INTO bills (tenant, note, "id", "nr") VALUES (1, 'a', $1::bigint, $2::bigint), (2, 'b', $3::bigint, $4::bigint), (3, 'c', $5::bigint, $6::bigint) RETURNING id
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   $3 = nextval public.bills_id_seq
-->   $4 = next_id
-->   $5 = nextval public.bills_id_seq
-->   $6 = next_id
-->   simple: INSERT INTO bills (tenant, note, "id", "nr") VALUES (1, 'a', '100'::bigint, '101'::bigint), (2, 'b', '102'::bigint, '103'::bigint), (3, 'c', '104'::bigint, '105'::bigint) RETURNING id
-->   operation: insert
-->   rows: 3
-->   shard text: INSERT INTO bills (tenant, note, "id", "nr") VALUES (1, 'a', <made 1>::bigint, <made 2>::bigint) RETURNING id
-->   first key: (1)
-->   why: the rows have different shard keys
INSERT INTO tickets (name) VALUES ('a'), ('b'), ('c') RETURNING *;
--> one shard, key ($1::bigint), ($2::bigint), ($3::bigint) [INSERT, rows]
-->   text: INSERT INTO tickets (name, "id") VALUES ('a', $1::bigint), ('b', $2::bigint), ('c', $3::bigint) RETURNING *
-->   $1 = nextval public.tickets_id_seq
-->   $2 = nextval public.tickets_id_seq
-->   $3 = nextval public.tickets_id_seq
-->   simple: INSERT INTO tickets (name, "id") VALUES ('a', '100'::bigint), ('b', '101'::bigint), ('c', '102'::bigint) RETURNING *
INSERT INTO users (name) VALUES ('a'), ('b');
--> one shard, key ($1::bigint), ($2::bigint) [INSERT]
-->   text: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ('a', $1::bigint), ('b', $2::bigint)
-->   $1 = nextval public.users_id_seq
-->   $2 = nextval public.users_id_seq
-->   simple: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ('a', '100'::bigint), ('b', '101'::bigint)
INSERT INTO files (path) VALUES ('a'), ('b');
--> one shard, key ($1::uuid), ($2::uuid) [INSERT]
-->   text: INSERT INTO files (path, "id") VALUES ('a', $1::uuid), ('b', $2::uuid)
-->   $1 = uuidv7
-->   $2 = uuidv7
-->   simple: INSERT INTO files (path, "id") VALUES ('a', '100'::uuid), ('b', '101'::uuid)
INSERT INTO bills (tenant, note) VALUES (1 + 1, 'a'), (2, 'b');
--> one shard shard-2, key (2), (2) [INSERT]
-->   text: INSERT INTO bills (tenant, note, "id", "nr") VALUES (1 + 1, 'a', $1::bigint, $2::bigint), (2, 'b', $3::bigint, $4::bigint)
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   $3 = nextval public.bills_id_seq
-->   $4 = next_id
-->   simple: INSERT INTO bills (tenant, note, "id", "nr") VALUES (1 + 1, 'a', '100'::bigint, '101'::bigint), (2, 'b', '102'::bigint, '103'::bigint)
INSERT INTO tags VALUES ('a' || 'b', 1);
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: any shard: SELECT ('a' || 'b')::varchar
-->   rows: 1
-->   shard text: INSERT INTO tags VALUES (<computed 1>::character varying, 1)
-->   first key: (<computed 1>)
-->   why: the rows have different shard keys
INSERT INTO orders (VALUES (1, 1), (2, 2), (3, 3));
--> several shards [INSERT]
-->   operation: insert
-->   rows: 3
-->   shard text: INSERT INTO orders (VALUES (1, 1))
-->   first key: (1)
-->   why: the rows have different shard keys
WITH s AS (SELECT label FROM small) INSERT INTO orders (tenant_id, id, note) VALUES (1, 1, (SELECT label FROM s LIMIT 1)), (2, 2, 'x'), (3, 3, 'y');
--> several shards [INSERT]
-->   operation: insert
-->   rows: 3
-->   shard text: WITH s AS (SELECT label FROM small) INSERT INTO orders (tenant_id, id, note) VALUES (1, 1, (SELECT label FROM s LIMIT 1))
-->   first key: (1)
-->   why: the rows have different shard keys
-- INSERT ... SELECT.
INSERT INTO items (tenant_id, order_id) SELECT tenant_id, id FROM orders;
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO items (tenant_id, order_id) SELECT tenant_id, id FROM orders
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard inserts what it selects
INSERT INTO items (tenant_id, order_id) SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id RETURNING *;
--> several shards [INSERT, rows]
-->   operation: modify
-->   shard text: INSERT INTO items (tenant_id, order_id) SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id RETURNING *
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard inserts what it selects
INSERT INTO items (tenant_id, order_id) SELECT id, tenant_id FROM orders;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT id, tenant_id FROM orders
-->   shard text: INSERT INTO items (tenant_id, order_id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO items (tenant_id, order_id) SELECT tenant_id, id FROM orders ORDER BY id LIMIT 10;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT tenant_id, id FROM orders ORDER BY id LIMIT 10
-->   shard text: INSERT INTO items (tenant_id, order_id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders SELECT tenant_id, id + 100, note, qty, price FROM orders ON CONFLICT DO NOTHING RETURNING id;
--> several shards [INSERT, rows]
-->   operation: modify
-->   shard text: INSERT INTO orders SELECT tenant_id, id + 100, note, qty, price FROM orders ON CONFLICT DO NOTHING RETURNING id
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard inserts what it selects
INSERT INTO people (name, age) SELECT nick, max(age) FROM people GROUP BY nick;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (gather): SELECT nick, max(age) FROM people GROUP BY nick
-->   shard text: INSERT INTO people (name, age) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO bills (tenant, note) SELECT tenant_id, note FROM orders;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT tenant_id, note FROM orders
-->   made: nextval
-->   made: next_id
-->   shard text: INSERT INTO bills (tenant, note, id, nr) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO tickets (name) SELECT note FROM orders;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT note FROM orders
-->   made: nextval
-->   shard text: INSERT INTO tickets (name, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) SELECT g, g FROM generate_series(1, 10) g;
--> several shards [INSERT]
-->   operation: insert
-->   source: any shard: SELECT g, g FROM generate_series(1, 10) g
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) SELECT id, id FROM notes;
--> several shards [INSERT]
-->   operation: insert
-->   source: default shard: SELECT id, id FROM notes
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
WITH n AS (SELECT id FROM notes) INSERT INTO orders (tenant_id, id) SELECT id, id FROM n;
--> several shards [INSERT]
-->   operation: insert
-->   source: default shard: WITH n AS (SELECT id FROM notes) SELECT id, id FROM n
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO notes SELECT id, note FROM orders;
--> several shards [INSERT]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id, note FROM orders
-->   shard text: INSERT INTO notes SELECT * FROM <relation 0> cleave_rel_0_
-->   shards: shard-0
-->   why: rows of other shards are read first
INSERT INTO notes (id) VALUES ((SELECT max(id) FROM orders));
--> several shards [INSERT]
-->   operation: modify
-->   read 0: several shards (gather): SELECT max(id) FROM orders
-->   shard text: INSERT INTO notes (id) VALUES ((SELECT * FROM <relation 0> cleave_rel_0_))
-->   shards: shard-0
-->   why: rows of other shards are read first
-- UPDATE and DELETE.
UPDATE orders SET note = 'x';
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET note = 'x'
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET note = 'x' WHERE tenant_id IN (1, 2, 3) RETURNING *;
--> several shards [UPDATE, rows]
-->   operation: modify
-->   shard text: UPDATE orders SET note = 'x' WHERE tenant_id IN (1, 2, 3) RETURNING *
-->   shards: shard-0, shard-2
-->   why: rows of several shards change
DELETE FROM orders;
--> several shards [DELETE]
-->   operation: modify
-->   shard text: DELETE FROM orders
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders WHERE note = $1 RETURNING tenant_id, id;
--> several shards [DELETE, rows]
-->   operation: modify
-->   shard text: DELETE FROM orders WHERE note = $1 RETURNING tenant_id, id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET note = now()::text WHERE id = 3;
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET note = $1::timestamp with time zone::text WHERE id = 3
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders o SET note = i.name FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id;
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders o SET note = i.name FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders o SET note = i.name FROM items i WHERE i.order_id = o.id;
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT order_id, id, name FROM items
-->   shard text: UPDATE orders o SET note = i.name FROM <relation 0> i WHERE i.order_id = o.id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET note = s.label FROM small s WHERE s.id = orders.id;
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET note = s.label FROM small s WHERE s.id = orders.id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders WHERE id IN (SELECT order_id FROM items WHERE n = 3);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT order_id FROM items WHERE n = 3
-->   shard text: DELETE FROM orders WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders WHERE id IN (SELECT id FROM orders ORDER BY price LIMIT 10);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id FROM orders ORDER BY price LIMIT 10
-->   shard text: DELETE FROM orders WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id);
--> several shards [DELETE]
-->   operation: modify
-->   shard text: DELETE FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT order_id, id FROM items
-->   shard text: DELETE FROM orders o WHERE EXISTS (SELECT 1 FROM <relation 0> i WHERE i.order_id = o.id)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET price = (SELECT avg(price) FROM orders);
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (gather): SELECT avg(price) FROM orders
-->   shard text: UPDATE orders SET price = (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders o SET qty = (SELECT count(*) FROM orders p WHERE p.note = o.note);
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT note FROM orders
-->   shard text: UPDATE orders o SET qty = (SELECT count(*) FROM <relation 0> p WHERE p.note = o.note)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
WITH doomed AS (SELECT id FROM orders WHERE qty = 0 LIMIT 10) DELETE FROM orders USING doomed WHERE orders.id = doomed.id;
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id FROM orders WHERE qty = 0 LIMIT 10
-->   shard text: WITH doomed AS (SELECT * FROM <relation 0> cleave_rel_0_) DELETE FROM orders USING doomed WHERE orders.id = doomed.id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
WITH d AS (DELETE FROM orders RETURNING *) INSERT INTO items SELECT tenant_id, id FROM d;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (modify): WITH d AS (DELETE FROM orders RETURNING *) SELECT tenant_id, id FROM d
-->   shard text: INSERT INTO items (tenant_id, order_id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
DELETE FROM orders WHERE ctid = '(0,1)';
--> refused 0A000: the system column ctid has no meaning for rows of several shards
-->   hint: Name the rows by their key.
DELETE FROM orders WHERE id IN (SELECT id FROM notes);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: default shard: SELECT id FROM notes
-->   shard text: DELETE FROM orders WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM notes WHERE id IN (SELECT id FROM orders);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id FROM orders
-->   shard text: DELETE FROM notes WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0
-->   why: rows of other shards are read first
UPDATE notes SET body = o.note FROM orders o WHERE o.id = notes.id;
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id, note FROM orders
-->   shard text: UPDATE notes SET body = o.note FROM <relation 0> o WHERE o.id = notes.id
-->   shards: shard-0
-->   why: rows of other shards are read first
UPDATE orders SET note = s.label FROM (SELECT label FROM small LIMIT 1) s;
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: any shard: SELECT label FROM small LIMIT 1
-->   shard text: UPDATE orders SET note = s.label FROM (SELECT * FROM <relation 0> cleave_rel_0_) s
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET price = random();
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET price = random()
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
-- The shard key changes.
UPDATE orders SET tenant_id = 7 WHERE tenant_id = 5 AND id = 1;
--> several shards [UPDATE]
-->   operation: modify
-->   lock: SELECT orders.ctid::pg_catalog.text, 7::bigint, orders.tenant_id::bigint FROM orders WHERE tenant_id = 5 AND id = 1 FOR UPDATE OF orders
-->   stay: UPDATE orders SET tenant_id = 7 WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND tenant_id = 5 AND id = 1
-->   take: DELETE FROM orders WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND tenant_id = 5 AND id = 1 RETURNING 7, orders.id, orders.note, orders.qty, orders.price, 7::bigint
-->   put: INSERT INTO orders (tenant_id, id, note, qty, price) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_
-->   shards: shard-0
-->   why: rows of several shards change
UPDATE orders SET tenant_id = tenant_id + 1, note = DEFAULT WHERE id = $1 RETURNING *;
--> several shards [UPDATE, rows]
-->   operation: modify
-->   lock: SELECT orders.ctid::pg_catalog.text, (tenant_id + 1)::bigint, orders.tenant_id::bigint FROM orders WHERE id = $1 FOR UPDATE OF orders
-->   stay: UPDATE orders SET tenant_id = tenant_id + 1, note = DEFAULT WHERE orders.ctid = ANY($3::pg_catalog.tid[]) AND id = $1 RETURNING *
-->   take: DELETE FROM orders WHERE orders.ctid = ANY($3::pg_catalog.tid[]) AND id = $1 RETURNING tenant_id + 1, orders.id, orders.qty, orders.price, (tenant_id + 1)::bigint
-->   put: INSERT INTO orders (tenant_id, id, qty, price) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING *
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET tenant_id = random();
--> refused 0A000: the new value of the shard key column tenant_id is computed by a volatile function
-->   hint: Compute the value first and pass it as a parameter.
UPDATE orders o SET tenant_id = i.order_id FROM items i WHERE i.tenant_id = o.tenant_id;
--> several shards [UPDATE]
-->   operation: modify
-->   lock: SELECT o.ctid::pg_catalog.text, i.order_id::bigint, o.tenant_id::bigint FROM orders o, items i WHERE i.tenant_id = o.tenant_id FOR UPDATE OF o
-->   stay: UPDATE orders o SET tenant_id = i.order_id FROM items i WHERE o.ctid = ANY($2::pg_catalog.tid[]) AND i.tenant_id = o.tenant_id
-->   take: DELETE FROM orders o USING items i WHERE o.ctid = ANY($2::pg_catalog.tid[]) AND i.tenant_id = o.tenant_id RETURNING i.order_id, o.id, o.note, o.qty, o.price, i.order_id::bigint
-->   put: INSERT INTO orders AS o (tenant_id, id, note, qty, price) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
-- Reference tables.
INSERT INTO small VALUES (1, 'a'), (2, 'b') RETURNING id;
--> several shards [INSERT, rows]
-->   operation: modify
-->   shard text: INSERT INTO small VALUES (1, 'a'), (2, 'b') RETURNING id, small.id, small.label, small.tenant
-->   other shards: INSERT INTO small (id, label, tenant) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO small VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET label = excluded.label;
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO small VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET label = excluded.label RETURNING small.id, small.label, small.tenant
-->   other shards: INSERT INTO small (id, label, tenant) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ ON CONFLICT (id) DO UPDATE SET label = excluded.label, tenant = excluded.tenant RETURNING small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO small SELECT id, note FROM orders;
--> several shards [INSERT]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id, note FROM orders
-->   shard text: INSERT INTO small SELECT * FROM <relation 0> cleave_rel_0_ RETURNING small.id, small.label, small.tenant
-->   other shards: INSERT INTO small (id, label, tenant) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
UPDATE small SET label = 'x' WHERE id = 3 RETURNING label;
--> several shards [UPDATE, rows]
-->   operation: modify
-->   shard text: UPDATE small SET label = 'x' WHERE id = 3 RETURNING label, small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
UPDATE small SET label = random()::text;
--> refused 0A000: a volatile function in a statement that changes the reference table small could give another value on each shard
-->   hint: Compute the value first and pass it as a parameter.
DELETE FROM small WHERE id IN (SELECT id FROM orders);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id FROM orders
-->   shard text: DELETE FROM small WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
DELETE FROM small;
--> several shards [DELETE]
-->   operation: modify
-->   shard text: DELETE FROM small
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
-- MERGE.
MERGE INTO orders o USING items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN UPDATE SET note = i.name WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (i.tenant_id, i.order_id);
--> several shards [MERGE]
-->   operation: modify
-->   shard text: MERGE INTO orders o USING items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN UPDATE SET note = i.name WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (i.tenant_id, i.order_id)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
MERGE INTO orders o USING items i ON o.id = i.order_id WHEN MATCHED THEN DELETE;
--> several shards [MERGE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT * FROM items i
-->   shard text: MERGE INTO orders o USING <relation 0> i ON o.id = i.order_id WHEN MATCHED THEN DELETE
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
MERGE INTO orders o USING (VALUES (1, 2, 'x'), (3, 4, 'y')) v(t, i, n) ON v.t = o.tenant_id AND id = v.i WHEN MATCHED THEN UPDATE SET note = v.n WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (t, v.i, now()::text);
--> one shard shard-0, key (1), (3), (1), (3) [MERGE]
MERGE INTO orders o USING small s ON o.tenant_id = s.id WHEN MATCHED AND EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id) THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = 'none';
--> several shards [MERGE]
-->   operation: modify
-->   read 0: any shard: SELECT * FROM small s
-->   read 1: several shards (scatter): SELECT tenant_id, id FROM items
-->   split: read 0 by (id)
-->   shard text: MERGE INTO orders o USING <relation 0> s ON o.tenant_id = s.id WHEN MATCHED AND EXISTS (SELECT 1 FROM <relation 1> i WHERE i.tenant_id = o.tenant_id) THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET note = 'none'
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
WITH s AS (SELECT order_id FROM items LIMIT 3) MERGE INTO orders o USING s ON o.tenant_id = s.order_id WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (s.order_id, 1);
--> several shards [MERGE]
-->   operation: modify
-->   read 0: several shards (gather): WITH s AS (SELECT order_id FROM items LIMIT 3) SELECT * FROM s
-->   split: read 0 by (order_id)
-->   shard text: MERGE INTO orders o USING <relation 0> s ON o.tenant_id = s.order_id WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (s.order_id, 1)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
WITH s AS (SELECT order_id FROM items LIMIT 3) MERGE INTO orders o USING s ON o.tenant_id = s.order_id WHEN MATCHED AND o.id IN (SELECT order_id FROM s) THEN DELETE;
--> refused 0A000: MERGE into orders concerns several shards, and a WITH query is read beside its source
-->   hint: Use INSERT ... ON CONFLICT, UPDATE and DELETE, or join the source on the shard key.
MERGE INTO orders o USING unnest($1::bigint[]) u(k) ON o.tenant_id = k WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (u.k + 1, 1);
--> refused 0A000: MERGE into orders concerns several shards, and it inserts rows whose shard key is not that of the source's row
-->   hint: Use INSERT ... ON CONFLICT, UPDATE and DELETE, or join the source on the shard key.
MERGE INTO orders o USING unnest($1::bigint[]) u(k) ON o.tenant_id = k OR o.id = 1 WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (u.k, 1);
--> refused 0A000: MERGE into orders concerns several shards, and ON does not join the shard key with columns of the source
-->   hint: Use INSERT ... ON CONFLICT, UPDATE and DELETE, or join the source on the shard key.
MERGE INTO orders o USING unnest($1::bigint[]) u(k) ON o.tenant_id > k WHEN MATCHED THEN UPDATE SET note = 'x';
--> several shards [MERGE]
-->   operation: modify
-->   read 0: any shard: SELECT * FROM unnest($1::bigint[]) u(k)
-->   shard text: MERGE INTO orders o USING <relation 0> u ON o.tenant_id > k WHEN MATCHED THEN UPDATE SET note = 'x'
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change

-- WITH queries that change rows: each is a statement of its own, run first.

WITH gone AS (DELETE FROM orders WHERE qty = 0 RETURNING tenant_id, id, note) INSERT INTO items (tenant_id, id, name) SELECT tenant_id, id, note FROM gone;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (modify): WITH gone AS (DELETE FROM orders WHERE qty = 0 RETURNING tenant_id, id, note) SELECT tenant_id, id, note FROM gone
-->   shard text: INSERT INTO items (tenant_id, id, name) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys

WITH gone AS (DELETE FROM orders WHERE qty = 0 RETURNING *) SELECT count(*), max(note) FROM gone;
--> several shards [SELECT, rows]
-->   operation: modify
-->   read 0: several shards (modify): DELETE FROM orders WHERE qty = 0 RETURNING *
-->   shard text: WITH gone AS (SELECT * FROM <relation 0> cleave_rel_0_) SELECT count(*), max(note) FROM gone
-->   shards: any shard
-->   why: WITH queries change rows first

WITH a AS (UPDATE orders SET qty = 1 WHERE qty = 0 RETURNING id), b AS (DELETE FROM items WHERE n = 3) SELECT id FROM a ORDER BY id;
--> several shards [SELECT, rows]
-->   operation: modify
-->   read 0: several shards (modify): UPDATE orders SET qty = 1 WHERE qty = 0 RETURNING id
-->   read 1: several shards (modify): DELETE FROM items WHERE n = 3
-->   shard text: WITH a AS (SELECT * FROM <relation 0> cleave_rel_0_), b AS (SELECT * FROM <relation 1> cleave_rel_1_) SELECT id FROM a ORDER BY id
-->   shards: any shard
-->   why: WITH queries change rows first

WITH new AS (INSERT INTO bills (tenant, note) VALUES (1, 'x'), (2, 'y') RETURNING id, nr) SELECT * FROM new;
--> several shards [SELECT, rows]
-->   text: WITH new AS (INSERT INTO bills (tenant, note, "id", "nr") VALUES (1, 'x', $1::bigint, $2::bigint), (2, 'y', $3::bigint, $4::bigint) RETURNING id, nr) SELECT * FROM new
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   $3 = nextval public.bills_id_seq
-->   $4 = next_id
-->   simple: WITH new AS (INSERT INTO bills (tenant, note, "id", "nr") VALUES (1, 'x', '100'::bigint, '101'::bigint), (2, 'y', '102'::bigint, '103'::bigint) RETURNING id, nr) SELECT * FROM new
-->   operation: modify
-->   read 0: one shard: INSERT INTO bills (tenant, note, id, nr)  VALUES (1, 'x', $1::bigint, $2::bigint), (2, 'y', $3::bigint, $4::bigint) RETURNING id, nr
-->   shard text: WITH new AS (SELECT * FROM <relation 0> cleave_rel_0_) SELECT * FROM new
-->   shards: any shard
-->   why: WITH queries change rows first

WITH old AS (SELECT tenant_id FROM items WHERE n > 5), gone AS (DELETE FROM orders o USING old WHERE o.id = old.tenant_id RETURNING o.id) UPDATE docs SET body = 'x' WHERE body IN (SELECT id::text FROM gone);
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT tenant_id FROM items WHERE n > 5
-->   read 1: several shards (modify): WITH old AS (SELECT tenant_id FROM items WHERE n > 5) DELETE FROM orders o USING old WHERE o.id = old.tenant_id RETURNING o.id
-->   shard text: WITH old AS (SELECT * FROM <relation 0> cleave_rel_0_), gone AS (SELECT * FROM <relation 1> cleave_rel_1_) UPDATE docs SET body = 'x' WHERE body IN (SELECT id::text FROM gone)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change

WITH gone AS (DELETE FROM orders RETURNING id) SELECT count(*) FROM gone, orders;
--> refused 0A000: table orders is changed by a WITH query and named again in a statement over several shards, where the rest could see the change
-->   hint: Run the WITH query as a statement of its own, in one transaction.

WITH a AS (DELETE FROM orders RETURNING id), b AS (DELETE FROM items i USING a WHERE a.id = i.id) SELECT 1;
--> refused 0A000: a WITH query that changes rows reads what another one returned, in a statement over several shards
-->   hint: Run the first one as a statement of its own, in one transaction.

WITH a AS (UPDATE orders SET qty = 1 RETURNING id), b AS (DELETE FROM orders) SELECT * FROM a;
--> refused 0A000: table orders is changed by a WITH query and named again in a statement over several shards, where the rest could see the change
-->   hint: Run the WITH query as a statement of its own, in one transaction.
UPDATE events SET day = at AT TIME ZONE 'UTC';
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE events SET day = at AT TIME ZONE 'UTC'
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change

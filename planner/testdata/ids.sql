-- Values that the router makes. bills: tenant (shard key), id from a sequence, note, nr from next_id();
-- users: id GENERATED ALWAYS, the shard key; tickets: BY DEFAULT, the shard key; files: uuidv7(), the shard key.

SELECT cleave.next_id();
--> any shard [SELECT, read only, rows]
-->   text: SELECT $1::bigint AS "next_id"
-->   $1 = next_id
-->   simple: SELECT '100'::bigint AS "next_id"
SELECT cleave.next_id() AS a, cleave.next_id() + 1, 'x';
--> any shard [SELECT, read only, rows]
-->   text: SELECT $1::bigint AS a, $2::bigint + 1, 'x'
-->   $1 = next_id
-->   $2 = next_id
-->   simple: SELECT '100'::bigint AS a, '101'::bigint + 1, 'x'
SELECT nextval('free_seq');
--> any shard [SELECT, read only, rows]
-->   text: SELECT $1::bigint AS "nextval"
-->   $1 = nextval public.free_seq
-->   simple: SELECT '100'::bigint AS "nextval"
SELECT nextval('public.free_seq'::regclass), pg_catalog.nextval('"free_seq"') AS b, currval('free_seq'), lastval();
--> any shard [SELECT, read only, rows]
-->   text: SELECT $1::bigint AS "nextval", $2::bigint AS b, $3::bigint AS "currval", $4::bigint AS "lastval"
-->   $1 = nextval public.free_seq
-->   $2 = nextval public.free_seq
-->   $3 = currval public.free_seq
-->   $4 = lastval
-->   simple: SELECT '100'::bigint AS "nextval", '101'::bigint AS b, '102'::bigint AS "currval", '103'::bigint AS "lastval"
SELECT setval('free_seq', 42);
--> any shard [SELECT, read only, rows]
-->   text: SELECT $1::bigint AS "setval"
-->   $1 = setval public.free_seq 42 $0 true
-->   simple: SELECT '100'::bigint AS "setval"
SELECT setval('free_seq', -1, false), setval('free_seq', $1);
--> any shard [SELECT, read only, rows]
-->   text: SELECT $2::bigint AS "setval", COALESCE($3::bigint, $1::bigint) AS "setval"
-->   $2 = setval public.free_seq -1 $0 false
-->   $3 = setval public.free_seq 0 $1 true
-->   simple: SELECT '100'::bigint AS "setval", COALESCE('101'::bigint, $1::bigint) AS "setval"
SELECT uuidv7();
--> any shard [SELECT, read only, rows]
-->   text: SELECT $1::uuid AS "uuidv7"
-->   $1 = uuidv7
-->   simple: SELECT '100'::uuid AS "uuidv7"
SELECT nextval('own_seq');
--> default shard [SELECT, rows]
SELECT nextval('free_seq') FROM orders WHERE tenant_id = 5;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
SELECT nextval('free_seq') FROM generate_series(1, 3);
--> any shard [SELECT, read only, rows]
-->   text: SELECT "nextval" FROM (VALUES ($1::bigint), ($2::bigint), ($3::bigint)) AS ids("nextval")
-->   $1 = nextval public.free_seq
-->   $2 = nextval public.free_seq
-->   $3 = nextval public.free_seq
-->   simple: SELECT "nextval" FROM (VALUES ('100'::bigint), ('101'::bigint), ('102'::bigint)) AS ids("nextval")
SELECT cleave.next_id() AS "Id" FROM pg_catalog.generate_series(1, 2) AS g;
--> any shard [SELECT, read only, rows]
-->   text: SELECT "Id" FROM (VALUES ($1::bigint), ($2::bigint)) AS ids("Id")
-->   $1 = next_id
-->   $2 = next_id
-->   simple: SELECT "Id" FROM (VALUES ('100'::bigint), ('101'::bigint)) AS ids("Id")
SELECT nextval('free_seq') FROM generate_series(1, 3) WHERE random() < 0.5;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
SELECT nextval('free_seq') FROM generate_series(1, 20000);
--> refused 0A000: one statement takes at most 10000 values
-->   hint: Take them in several statements.
SELECT nextval('free_seq') FROM generate_series(3, 1);
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
SELECT CASE WHEN true THEN nextval('free_seq') END;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
SELECT currval('free_seq') FROM notes;
--> refused 0A000: currval() of the sequence free_seq is evaluated by the router: in VALUES of an INSERT and in SELECT without FROM only
-->   hint: Read it in a statement of its own, and pass the value: SELECT currval('free_seq').
SELECT nextval($1);
--> any shard [SELECT, read only, rows]
-->   text: SELECT CASE WHEN $1::text IS NOT NULL THEN $2::bigint END AS "nextval"
-->   $2 = nextval
-->   simple: SELECT CASE WHEN $1::text IS NOT NULL THEN '100'::bigint END AS "nextval"
SELECT * FROM cleave.next_id();
--> refused 0A000: cleave.next_id() is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT cleave.next_id() FROM generate_series(1, 10).
SELECT (SELECT cleave.next_id());
--> refused 0A000: cleave.next_id() is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT cleave.next_id() FROM generate_series(1, 10).

-- columns that are left out
INSERT INTO bills (tenant) VALUES (5);
--> one shard shard-0, key (5) [INSERT]
-->   text: INSERT INTO bills (tenant, "id", "nr") VALUES (5, $1::bigint, $2::bigint)
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   simple: INSERT INTO bills (tenant, "id", "nr") VALUES (5, '100'::bigint, '101'::bigint)
INSERT INTO bills (tenant, note) VALUES ($1, $2) RETURNING id;
--> one shard, key ($1) [INSERT, rows]
-->   text: INSERT INTO bills (tenant, note, "id", "nr") VALUES ($1, $2, $3::bigint, $4::bigint) RETURNING id
-->   $3 = nextval public.bills_id_seq
-->   $4 = next_id
-->   simple: INSERT INTO bills (tenant, note, "id", "nr") VALUES ($1, $2, '100'::bigint, '101'::bigint) RETURNING id
INSERT INTO bills (tenant) (VALUES (5));
--> one shard shard-0, key (5) [INSERT]
-->   text: INSERT INTO bills (tenant, "id", "nr") (VALUES (5, $1::bigint, $2::bigint))
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   simple: INSERT INTO bills (tenant, "id", "nr") (VALUES (5, '100'::bigint, '101'::bigint))
INSERT INTO bills ((VALUES (5), (5)));
--> one shard shard-0, key (5), (5) [INSERT]
-->   text: INSERT INTO bills ("tenant", "id", "nr") ((VALUES (5, $1::bigint, $2::bigint), (5, $3::bigint, $4::bigint)))
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   $3 = nextval public.bills_id_seq
-->   $4 = next_id
-->   simple: INSERT INTO bills ("tenant", "id", "nr") ((VALUES (5, '100'::bigint, '101'::bigint), (5, '102'::bigint, '103'::bigint)))
INSERT INTO bills VALUES (5);
--> one shard shard-0, key (5) [INSERT]
-->   text: INSERT INTO bills ("tenant", "id", "nr") VALUES (5, $1::bigint, $2::bigint)
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   simple: INSERT INTO bills ("tenant", "id", "nr") VALUES (5, '100'::bigint, '101'::bigint)
INSERT INTO bills VALUES (5, DEFAULT, 'x', DEFAULT), (5, 7, 'y', DEFAULT);
--> one shard shard-0, key (5), (5) [INSERT]
-->   text: INSERT INTO bills VALUES (5, $1::bigint, 'x', $2::bigint), (5, 7, 'y', $3::bigint)
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   $3 = next_id
-->   simple: INSERT INTO bills VALUES (5, '100'::bigint, 'x', '101'::bigint), (5, 7, 'y', '102'::bigint)
INSERT INTO bills AS b (note, tenant) VALUES ('a', 5), ('b', 5) ON CONFLICT DO NOTHING RETURNING b.*;
--> one shard shard-0, key (5), (5) [INSERT, rows]
-->   text: INSERT INTO bills AS b (note, tenant, "id", "nr") VALUES ('a', 5, $1::bigint, $2::bigint), ('b', 5, $3::bigint, $4::bigint) ON CONFLICT DO NOTHING RETURNING b.*
-->   $1 = nextval public.bills_id_seq
-->   $2 = next_id
-->   $3 = nextval public.bills_id_seq
-->   $4 = next_id
-->   simple: INSERT INTO bills AS b (note, tenant, "id", "nr") VALUES ('a', 5, '100'::bigint, '101'::bigint), ('b', 5, '102'::bigint, '103'::bigint) ON CONFLICT DO NOTHING RETURNING b.*
INSERT INTO bills (tenant, id, nr) VALUES (5, 1, 2);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO bills (tenant, id, nr) VALUES (5, nextval('free_seq'), cleave.next_id());
--> one shard shard-0, key (5) [INSERT]
-->   text: INSERT INTO bills (tenant, id, nr) VALUES (5, $1::bigint, $2::bigint)
-->   $1 = nextval public.free_seq
-->   $2 = next_id
-->   simple: INSERT INTO bills (tenant, id, nr) VALUES (5, '100'::bigint, '101'::bigint)
INSERT INTO bills (nr, tenant, id) VALUES (nextval('free_seq'), 5, nextval('free_seq'));
--> one shard shard-0, key (5) [INSERT]
-->   text: INSERT INTO bills (nr, tenant, id) VALUES ($2::bigint, 5, $1::bigint)
-->   $1 = nextval public.free_seq
-->   $2 = nextval public.free_seq
-->   simple: INSERT INTO bills (nr, tenant, id) VALUES ('101'::bigint, 5, '100'::bigint)
INSERT INTO bills (tenant, id) VALUES (cleave.next_id(), lastval());
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO bills (tenant, id, "nr") VALUES ($1::bigint, $2::bigint, $3::bigint)
-->   $1 = next_id
-->   $2 = lastval
-->   $3 = next_id
-->   simple: INSERT INTO bills (tenant, id, "nr") VALUES ('100'::bigint, '101'::bigint, '102'::bigint)
INSERT INTO bills DEFAULT VALUES;
--> refused 0A000: INSERT into bills gives no value for its shard key column tenant
-->   hint: Name the column tenant in the INSERT and give its value.
INSERT INTO bills (tenant, note) SELECT tenant_id, note FROM orders WHERE tenant_id = 5;
--> several shards [INSERT]
-->   operation: insert
-->   source: one shard: SELECT tenant_id, note FROM orders WHERE tenant_id = 5
-->   made: nextval
-->   made: next_id
-->   shard text: INSERT INTO bills (tenant, note, id, nr) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO bills (id, tenant, note, nr) SELECT nextval('free_seq'), tenant_id, note, cleave.next_id() FROM orders WHERE tenant_id = 5 ORDER BY orders.id LIMIT 10;
--> several shards [INSERT]
-->   operation: insert
-->   source: one shard: SELECT tenant_id, note FROM orders WHERE tenant_id = 5 ORDER BY orders.id LIMIT 10
-->   made: nextval
-->   made: next_id
-->   shard text: INSERT INTO bills (tenant, note, id, nr) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) SELECT tenant, nextval('public.free_seq'::regclass) AS id FROM bills ON CONFLICT DO NOTHING RETURNING id;
--> several shards [INSERT, rows]
-->   operation: insert
-->   source: several shards (scatter): SELECT tenant FROM bills
-->   made: nextval
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT * FROM <relation 0> cleave_rel_0_ ON CONFLICT DO NOTHING RETURNING id, orders.tenant_id
-->   why: the rows have different shard keys
INSERT INTO orders (id, tenant_id, note) SELECT nextval('free_seq'), b.tenant, b.note FROM bills b GROUP BY 2, 3;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
INSERT INTO orders (id, tenant_id) SELECT nextval('free_seq') + 1, tenant FROM bills;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
WITH b AS (INSERT INTO orders (id, tenant_id) SELECT nextval('free_seq'), tenant FROM bills RETURNING *) SELECT count(*) FROM b;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
WITH d AS (DELETE FROM orders WHERE qty = 1 RETURNING *) INSERT INTO bills (id, tenant) SELECT nextval('free_seq'), tenant_id FROM d;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (modify): WITH d AS (DELETE FROM orders WHERE qty = 1 RETURNING *) SELECT tenant_id FROM d
-->   made: next_id
-->   made: nextval
-->   shard text: INSERT INTO bills (tenant, nr, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO bills SELECT nextval('free_seq'), tenant_id FROM orders;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT tenant_id FROM orders
-->   made: next_id
-->   made: nextval
-->   shard text: INSERT INTO bills (id, nr, tenant) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO bills (nr, tenant, id) SELECT nextval('free_seq'), o.* FROM orders o;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT o.* FROM orders o
-->   made: nextval
-->   shard text: INSERT INTO bills (tenant, id, nr) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders (id, tenant_id) SELECT DISTINCT nextval('free_seq'), tenant FROM bills;
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT nextval('free_seq') FROM generate_series(1, 10).
INSERT INTO bills (tenant, id, nr) SELECT tenant_id, id, 1 FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO bills (tenant, id, note) VALUES (5, 1);
--> one shard shard-0, key (5) [INSERT]
WITH b AS (INSERT INTO bills (tenant) VALUES (5) RETURNING id) INSERT INTO orders (tenant_id, id) VALUES (5, cleave.next_id());
--> one shard shard-0, key (5), (5) [INSERT]
-->   text: WITH b AS (INSERT INTO bills (tenant, "id", "nr") VALUES (5, $2::bigint, $3::bigint) RETURNING id) INSERT INTO orders (tenant_id, id) VALUES (5, $1::bigint)
-->   $1 = next_id
-->   $2 = nextval public.bills_id_seq
-->   $3 = next_id
-->   simple: WITH b AS (INSERT INTO bills (tenant, "id", "nr") VALUES (5, '101'::bigint, '102'::bigint) RETURNING id) INSERT INTO orders (tenant_id, id) VALUES (5, '100'::bigint)

-- the shard key itself
INSERT INTO users (name) VALUES ('a') RETURNING id;
--> one shard, key ($1::bigint) [INSERT, rows]
-->   text: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ('a', $1::bigint) RETURNING id
-->   $1 = nextval public.users_id_seq
-->   simple: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ('a', '100'::bigint) RETURNING id
INSERT INTO users (name) VALUES ($1), ($2);
--> one shard, key ($3::bigint), ($4::bigint) [INSERT]
-->   text: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ($1, $3::bigint), ($2, $4::bigint)
-->   $3 = nextval public.users_id_seq
-->   $4 = nextval public.users_id_seq
-->   simple: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ($1, '100'::bigint), ($2, '101'::bigint)
INSERT INTO users DEFAULT VALUES;
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO users ("id") OVERRIDING SYSTEM VALUE VALUES ($1::bigint)
-->   $1 = nextval public.users_id_seq
-->   simple: INSERT INTO users ("id") OVERRIDING SYSTEM VALUE VALUES ('100'::bigint)
INSERT INTO users VALUES (DEFAULT, 'a');
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO users OVERRIDING SYSTEM VALUE VALUES ($1::bigint, 'a')
-->   $1 = nextval public.users_id_seq
-->   simple: INSERT INTO users OVERRIDING SYSTEM VALUE VALUES ('100'::bigint, 'a')
INSERT INTO users (id, name) VALUES (5, 'a');
--> refused 428C9: cannot insert a non-DEFAULT value into column "id"
-->   hint: Use OVERRIDING SYSTEM VALUE to override.
INSERT INTO users (id, name) OVERRIDING SYSTEM VALUE VALUES (5, 'a');
--> one shard shard-0, key (5) [INSERT]
INSERT INTO users (id, name) OVERRIDING USER VALUE VALUES (5, 'a');
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO users (id, name) OVERRIDING SYSTEM VALUE VALUES ($1::bigint, 'a')
-->   $1 = nextval public.users_id_seq
-->   simple: INSERT INTO users (id, name) OVERRIDING SYSTEM VALUE VALUES ('100'::bigint, 'a')
INSERT INTO users (id, name) OVERRIDING USER VALUE VALUES ($1, 'a');
--> refused 0A000: OVERRIDING USER VALUE ignores the value given for column id, which is a parameter
-->   hint: Leave the column out.
INSERT INTO tickets (id, name) VALUES (5, 'a');
--> one shard shard-0, key (5) [INSERT]
INSERT INTO tickets (id, name) OVERRIDING USER VALUE VALUES (5, 'a');
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO tickets (id, name)  VALUES ($1::bigint, 'a')
-->   $1 = nextval public.tickets_id_seq
-->   simple: INSERT INTO tickets (id, name)  VALUES ('100'::bigint, 'a')
INSERT INTO tickets (name) VALUES ('a');
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO tickets (name, "id") VALUES ('a', $1::bigint)
-->   $1 = nextval public.tickets_id_seq
-->   simple: INSERT INTO tickets (name, "id") VALUES ('a', '100'::bigint)
INSERT INTO files (path) VALUES ('/a');
--> one shard, key ($1::uuid) [INSERT]
-->   text: INSERT INTO files (path, "id") VALUES ('/a', $1::uuid)
-->   $1 = uuidv7
-->   simple: INSERT INTO files (path, "id") VALUES ('/a', '100'::uuid)
INSERT INTO files (id, path) VALUES (gen_random_uuid(), '/a');
--> one shard, key ($1::uuid) [INSERT]
-->   text: INSERT INTO files (id, path) VALUES ($1::uuid, '/a')
-->   $1 = gen_random_uuid
-->   simple: INSERT INTO files (id, path) VALUES ('100'::uuid, '/a')
INSERT INTO docs (id, body) VALUES (gen_random_uuid(), 'x');
--> one shard, key ($1::uuid) [INSERT]
-->   text: INSERT INTO docs (id, body) VALUES ($1::uuid, 'x')
-->   $1 = gen_random_uuid
-->   simple: INSERT INTO docs (id, body) VALUES ('100'::uuid, 'x')
INSERT INTO docs (id, body) VALUES (gen_random_uuid(), 'x'), (uuidv7(), 'y');
--> one shard, key ($1::uuid), ($2::uuid) [INSERT]
-->   text: INSERT INTO docs (id, body) VALUES ($1::uuid, 'x'), ($2::uuid, 'y')
-->   $1 = gen_random_uuid
-->   $2 = uuidv7
-->   simple: INSERT INTO docs (id, body) VALUES ('100'::uuid, 'x'), ('101'::uuid, 'y')
INSERT INTO orders (tenant_id, id) VALUES (cleave.next_id(), 1);
--> one shard, key ($1::bigint) [INSERT]
-->   text: INSERT INTO orders (tenant_id, id) VALUES ($1::bigint, 1)
-->   $1 = next_id
-->   simple: INSERT INTO orders (tenant_id, id) VALUES ('100'::bigint, 1)
UPDATE users SET id = 5 WHERE id = 6;
--> refused 428C9: column "id" can only be updated to DEFAULT
UPDATE bills SET (nr, note) = (DEFAULT, 'x') WHERE tenant = 5;
--> refused 0A000: column nr gets its values from the router, and SET ... = DEFAULT would need one for each row
-->   hint: Give the value.
UPDATE bills SET nr = DEFAULT WHERE tenant = 5;
--> refused 0A000: column nr gets its values from the router, and SET ... = DEFAULT would need one for each row
-->   hint: Give the value.
UPDATE bills SET nr = cleave.next_id() WHERE tenant = 5;
--> refused 0A000: cleave.next_id() is evaluated by the router, once for each row: in VALUES of an INSERT, by itself in the list of an INSERT ... SELECT into a sharded or reference table (without DISTINCT, UNION or ORDER BY of it), and in SELECT without FROM
-->   hint: Take the values first, as many as there are rows, and pass them: SELECT cleave.next_id() FROM generate_series(1, 10).
EXPLAIN (ROUTE) INSERT INTO users (name) VALUES ('a');
--> explain [EXPLAIN, read only, rows]
-->   | plan: one shard
-->   | shard: decided by the key that the router makes
-->   | keyspace: hash_bigint
-->   | shard key: ($1::bigint)
-->   | tables: users (sharded)
-->   | text: INSERT INTO users (name, "id") OVERRIDING SYSTEM VALUE VALUES ('a', $1::bigint)
MERGE INTO bills b USING orders o ON b.tenant = o.tenant_id AND o.tenant_id = 5 WHEN NOT MATCHED THEN INSERT (tenant) VALUES (5);
--> refused 0A000: the router makes the values of column id, and does not see the rows that MERGE inserts
-->   hint: Let the source have the values, taken before (SELECT nextval(...) FROM generate_series(1, 10)), or use INSERT ... VALUES ... ON CONFLICT.

-- definitions
CREATE TABLE t (a bigint, b serial, c BIGSERIAL UNIQUE, PRIMARY KEY (a, b)) WITH (cleave.shard_key = 'a');
--> refused 0A000: UNIQUE (c) of table t does not include the shard key column a, so two shards could hold equal rows
-->   hint: Add a to it.
CREATE TABLE t (a bigserial PRIMARY KEY, b text) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true}, create public.t_a_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of t.a [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint PRIMARY KEY NOT NULL DEFAULT cleave_internal.nextval('public.t_a_seq'), b text)
CREATE TABLE t (a smallint GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5) PRIMARY KEY, b text) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true}, create public.t_a_seq smallint first 10 start 10 by 5 in 1..32767 cache 0 cycle false of t.a identity [CREATE TABLE]
-->   text: CREATE TABLE t (a smallint NOT NULL DEFAULT cleave_internal.nextval('public.t_a_seq', 'always') PRIMARY KEY, b text)
CREATE TABLE t (a int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, b text DEFAULT 'x') WITH (cleave.reference);
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:reference Keyspace: ShardKey:[] IfNotExists:false InPath:true}, create public.t_a_seq integer first 1 start 1 by 1 in 1..2147483647 cache 0 cycle false of t.a identity [CREATE TABLE]
-->   text: CREATE TABLE t (a int NOT NULL DEFAULT cleave_internal.nextval('public.t_a_seq', 'by default') PRIMARY KEY, b text DEFAULT 'x')
CREATE TABLE t (a text GENERATED ALWAYS AS IDENTITY) WITH (cleave.reference);
--> refused 22023: identity column type must be smallint, integer, or bigint
CREATE TABLE t (a bigint DEFAULT cleave.next_id(), b uuid DEFAULT uuidv7(), c bigint DEFAULT nextval('free_seq'::regclass)) WITH (cleave.shard_key = 'a');
--> schema change create table, all shards, creates {TableName:{Schema:public Name:t} Kind:sharded Keyspace: ShardKey:[a] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint DEFAULT cleave_internal.next_id() NOT NULL, b uuid DEFAULT cleave_internal.uuidv7(), c bigint DEFAULT cleave_internal.nextval('public.free_seq'))
CREATE TABLE t (a bigint, b bigint DEFAULT nextval('own_seq')) WITH (cleave.shard_key = 'a');
--> refused 0A000: the default calls nextval() of a sequence that is not the cluster's: each shard would count by itself
-->   hint: Make the sequence through the router (CREATE SEQUENCE), and let the default be nextval('name') alone.
CREATE TABLE t (a bigint, b text DEFAULT 'A' || nextval('free_seq')) WITH (cleave.shard_key = 'a');
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, which does not see where views, defaults and conditions are
-->   hint: A column's default can be nextval('free_seq') by itself.
CREATE TABLE t (a serial PRIMARY KEY, b bigint GENERATED ALWAYS AS IDENTITY);
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
CREATE TABLE t (a bigint DEFAULT nextval('free_seq'), b bigint DEFAULT cleave.nextval('public.free_seq', 'always'));
--> schema change create table, creates {TableName:{Schema:public Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
-->   text: CREATE TABLE t (a bigint DEFAULT cleave_internal.nextval('public.free_seq'), b bigint DEFAULT cleave_internal.nextval('public.free_seq', 'always'))
ALTER TABLE orders ADD COLUMN nr bigserial;
--> schema change alter table, all shards, alters [{public orders}], create public.orders_nr_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of orders.nr [ALTER TABLE]
-->   text: ALTER TABLE orders ADD COLUMN nr bigint NOT NULL DEFAULT cleave_internal.nextval('public.orders_nr_seq')
ALTER TABLE orders ALTER COLUMN id SET DEFAULT nextval('free_seq');
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
-->   text: ALTER TABLE orders ALTER COLUMN id SET DEFAULT cleave_internal.nextval('public.free_seq')
ALTER TABLE orders ALTER COLUMN id SET DEFAULT cleave.next_id();
--> schema change alter table, all shards, alters [{public orders}] [ALTER TABLE]
-->   text: ALTER TABLE orders ALTER COLUMN id SET DEFAULT cleave_internal.next_id()
ALTER TABLE users ALTER COLUMN id DROP DEFAULT;
--> refused 42601: column "id" of relation "users" is an identity column
-->   hint: Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.
ALTER TABLE users ALTER COLUMN id RESTART WITH 7;
--> schema change alter table, alters [{public users}], restart public.users_id_seq bigint first 7 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of users.id identity, on the map only [ALTER TABLE]
ALTER TABLE users ALTER COLUMN id SET GENERATED BY DEFAULT SET MAXVALUE 9 SET CYCLE;
--> schema change alter table, all shards, alters [{public users}], alter public.users_id_seq bigint first 1 start 1 by 1 in 1..9 cache 0 cycle true of users.id identity [ALTER TABLE]
-->   text: ALTER TABLE users ALTER COLUMN id SET DEFAULT cleave_internal.nextval('public.users_id_seq', 'by default')
ALTER TABLE users ALTER COLUMN id SET INCREMENT 2, ALTER COLUMN id RESTART;
--> refused 0A000: changes of an identity column together with other changes of the table are not supported
-->   hint: Use one ALTER TABLE for each.
ALTER TABLE orders ALTER COLUMN id SET CYCLE;
--> refused 55000: column "id" of relation "orders" is not an identity column
ALTER TABLE orders ALTER COLUMN nothing SET CYCLE;
--> refused 42703: column "nothing" of relation "orders" does not exist
ALTER TABLE users ALTER COLUMN id DROP IDENTITY;
--> schema change alter table, all shards, alters [{public users}], drop public.users_id_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of users.id identity [ALTER TABLE]
-->   text: ALTER TABLE users ALTER COLUMN id DROP DEFAULT
ALTER TABLE orders ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY;
--> refused 55000: column "id" of relation "orders" must be declared NOT NULL before identity can be added
ALTER TABLE bills ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY;
--> refused 55000: column "id" of relation "bills" already has a default value
CREATE SEQUENCE s;
--> schema change create sequence, create public.s bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [CREATE SEQUENCE]
CREATE SEQUENCE IF NOT EXISTS app.s AS smallint INCREMENT BY -2 CACHE 5 CYCLE OWNED BY NONE;
--> schema change create sequence, create app.s smallint first -1 start -1 by -2 in -32768..-1 cache 5 cycle true, on the map only [CREATE SEQUENCE]
CREATE SEQUENCE s MINVALUE 5 MAXVALUE 5;
--> refused 22023: MINVALUE (5) must be less than MAXVALUE (5)
CREATE SEQUENCE s INCREMENT 0;
--> refused 22023: INCREMENT must not be zero
CREATE SEQUENCE s START 0;
--> refused 22023: START value (0) cannot be less than MINVALUE (1)
CREATE SEQUENCE s AS smallint MAXVALUE 40000;
--> refused 22023: MAXVALUE (40000) is out of range for sequence data type smallint
CREATE SEQUENCE s CACHE 0;
--> refused 22023: CACHE (0) must be greater than zero
CREATE SEQUENCE s OWNED BY bills.note;
--> schema change create sequence, create public.s bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of bills.note, on the map only [CREATE SEQUENCE]
CREATE SEQUENCE s OWNED BY bills.nothing;
--> refused 42703: column "nothing" of relation "bills" does not exist
CREATE SEQUENCE s START 1 START 2;
--> refused 42601: conflicting or redundant options
CREATE TEMP SEQUENCE s;
--> refused 0A000: temporary objects other than tables and views are not supported: they live in one session of one shard
-->   hint: Make one that lasts, and drop it afterwards.
ALTER SEQUENCE free_seq RESTART WITH 1000 INCREMENT BY 10;
--> schema change alter sequence, restart public.free_seq bigint first 1000 start 1 by 10 in 1..9223372036854775807 cache 0 cycle false, on the map only [ALTER SEQUENCE]
ALTER SEQUENCE free_seq RESTART;
--> schema change alter sequence, restart public.free_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [ALTER SEQUENCE]
ALTER SEQUENCE free_seq MAXVALUE 100 NO CYCLE;
--> schema change alter sequence, alter public.free_seq bigint first 1 start 1 by 1 in 1..100 cache 0 cycle false, on the map only [ALTER SEQUENCE]
ALTER SEQUENCE free_seq RENAME TO other_seq;
--> schema change alter sequence, alter public.other_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [ALTER SEQUENCE]
ALTER SEQUENCE bills_id_seq RENAME TO other_seq;
--> refused 0A000: the default of column id of table bills names the sequence bills_id_seq
-->   hint: Drop that default first, and set it again with the new name.
ALTER SEQUENCE free_seq SET SCHEMA app;
--> schema change alter sequence, alter app.free_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [ALTER SEQUENCE]
ALTER SEQUENCE own_seq RESTART;
--> schema change alter sequence, all shards [ALTER SEQUENCE]
-->   elsewhere: ALTER SEQUENCE IF EXISTS own_seq RESTART
DROP SEQUENCE free_seq;
--> schema change drop sequence, drop public.free_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [DROP SEQUENCE]
DROP SEQUENCE bills_id_seq;
--> refused 2BP01: cannot drop sequence bills_id_seq because other objects depend on it
-->   hint: drop the default first: ALTER TABLE bills ALTER COLUMN id DROP DEFAULT
DROP SEQUENCE users_id_seq;
--> refused 2BP01: cannot drop sequence users_id_seq because column id of table users requires it
-->   hint: You can drop column id of table users instead.
DROP SEQUENCE IF EXISTS free_seq, own_seq;
--> schema change drop sequence, drop public.free_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false, on the map only [DROP SEQUENCE]
DROP SCHEMA public;
--> refused 2BP01: cannot drop schema public because other objects depend on it
-->   hint: Use DROP ... CASCADE to drop the dependent objects too.
TRUNCATE bills RESTART IDENTITY;
--> schema change truncate, all shards, truncates [{public bills}], restart public.bills_id_seq bigint first 1 start 1 by 1 in 1..9223372036854775807 cache 0 cycle false of bills.id [TRUNCATE TABLE]
SELECT * FROM cleave.sequences;
--> router tables [SELECT, read only, rows]

-- INSERT ... SELECT into a reference table: the rows are read once, and given their values
INSERT INTO kinds (label) SELECT i::text FROM generate_series(1, 4) i;
--> several shards [INSERT]
-->   operation: modify
-->   read 0: any shard: SELECT i::text FROM generate_series(1, 4) i
-->   made: id by nextval
-->   shard text: INSERT INTO kinds (label, id) SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   other shards: INSERT INTO kinds (id, label) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO kinds (label) SELECT note FROM orders ORDER BY 1 LIMIT 3 RETURNING id;
--> several shards [INSERT, rows]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT note FROM orders ORDER BY 1 LIMIT 3
-->   made: id by nextval
-->   shard text: INSERT INTO kinds (label, id) SELECT * FROM <relation 0> cleave_rel_0_ RETURNING id, kinds.id, kinds.label
-->   other shards: INSERT INTO kinds (id, label) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO kinds SELECT nextval('free_seq'), note FROM orders;
--> several shards [INSERT]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT note FROM orders
-->   made: id by nextval
-->   shard text: INSERT INTO kinds (label, id) SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   other shards: INSERT INTO kinds (id, label) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO kinds (id, label) SELECT 1, label FROM kinds ON CONFLICT (id) DO UPDATE SET label = excluded.label;
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO kinds (id, label) SELECT 1, label FROM kinds ON CONFLICT (id) DO UPDATE SET label = excluded.label RETURNING kinds.id, kinds.label
-->   other shards: INSERT INTO kinds (id, label) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ ON CONFLICT (id) DO UPDATE SET label = excluded.label RETURNING kinds.id, kinds.label
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
WITH w AS (SELECT label FROM kinds) INSERT INTO kinds (label) SELECT label FROM w;
--> several shards [INSERT]
-->   operation: modify
-->   read 0: any shard: WITH w AS (SELECT label FROM kinds) SELECT label FROM w
-->   made: id by nextval
-->   shard text: INSERT INTO kinds (label, id) SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   other shards: INSERT INTO kinds (id, label) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
WITH w AS (INSERT INTO kinds (label) SELECT 'a' RETURNING id) SELECT * FROM w;
--> several shards [SELECT, rows]
-->   operation: modify
-->   read 0: several shards (modify): INSERT INTO kinds (label)  SELECT 'a' RETURNING id
-->   shard text: WITH w AS (SELECT * FROM <relation 0> cleave_rel_0_) SELECT * FROM w
-->   shards: any shard
-->   why: WITH queries change rows first
INSERT INTO kinds SELECT 5;
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO kinds SELECT 5 RETURNING kinds.id, kinds.label
-->   other shards: INSERT INTO kinds (id, label) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING kinds.id, kinds.label
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO users (name) SELECT note FROM orders;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT note FROM orders
-->   made: nextval
-->   shard text: INSERT INTO users (name, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO users SELECT id FROM orders;
--> refused 428C9: cannot insert a non-DEFAULT value into column "id"
-->   hint: Use OVERRIDING SYSTEM VALUE to override.

-- a parameter names the sequence
SELECT nextval($1), currval($1::regclass) + 1 AS next, $2::int;
--> any shard [SELECT, read only, rows]
-->   text: SELECT CASE WHEN $1::text IS NOT NULL THEN $3::bigint END AS "nextval", CASE WHEN $1::text IS NOT NULL THEN $4::bigint END + 1 AS next, $2::int
-->   $3 = nextval
-->   $4 = currval
-->   simple: SELECT CASE WHEN $1::text IS NOT NULL THEN '100'::bigint END AS "nextval", CASE WHEN $1::text IS NOT NULL THEN '101'::bigint END + 1 AS next, $2::int
SELECT nextval($1) FROM notes;
--> refused 0A000: the name of a sequence has to be a literal, or a parameter of type text in SELECT without FROM and in VALUES: the router has to know which one it is
-->   hint: Write nextval('name').
INSERT INTO notes (id) VALUES (nextval($1));
--> default shard [INSERT]
-->   text: INSERT INTO notes (id) VALUES (CASE WHEN $1::text IS NOT NULL THEN $2::bigint END)
-->   $2 = nextval
-->   simple: INSERT INTO notes (id) VALUES (CASE WHEN $1::text IS NOT NULL THEN '100'::bigint END)
SELECT (SELECT nextval($1));
--> refused 0A000: the name of a sequence has to be a literal, or a parameter of type text in SELECT without FROM and in VALUES: the router has to know which one it is
-->   hint: Write nextval('name').
SELECT nextval($1::int);
--> refused 0A000: the name of a sequence has to be a literal, or a parameter of type text in SELECT without FROM and in VALUES: the router has to know which one it is
-->   hint: Write nextval('name').

-- setval() behind rows that a client brought along
SELECT setval('free_seq', (SELECT max(id) FROM bills));
--> any shard [SELECT, read only, rows]
-->   text: SELECT "setval" FROM pg_catalog.unnest($1::bigint[]) AS set_values("setval")
-->   $1 = setvals public.free_seq
-->   simple: SELECT "setval" FROM pg_catalog.unnest('100'::bigint[]) AS set_values("setval")
SELECT setval('free_seq', coalesce(max(id), 1), max(id) IS NOT NULL) AS at FROM bills WHERE tenant = 5;
--> any shard [SELECT, read only, rows]
-->   text: SELECT "at" FROM pg_catalog.unnest($1::bigint[]) AS set_values("at")
-->   $1 = setvals public.free_seq
-->   simple: SELECT "at" FROM pg_catalog.unnest('100'::bigint[]) AS set_values("at")
SELECT pg_catalog.setval(pg_get_serial_sequence('bills', 'id'), '7', 'true') FROM notes;
--> any shard [SELECT, read only, rows]
-->   text: SELECT "setval" FROM pg_catalog.unnest($1::bigint[]) AS set_values("setval")
-->   $1 = setvals public.bills_id_seq
-->   simple: SELECT "setval" FROM pg_catalog.unnest('100'::bigint[]) AS set_values("setval")
SELECT setval('free_seq', max(id)), 1 FROM bills;
--> refused 0A000: setval() of a sequence of the cluster stands by itself in a SELECT, or takes a number or a parameter, and true or false
-->   hint: Write SELECT setval('name', max(id)) FROM t, without parameters, GROUP BY, ORDER BY, DISTINCT, LIMIT, WITH and other columns.
SELECT setval('free_seq', max(id)) FROM bills GROUP BY tenant;
--> refused 0A000: setval() of a sequence of the cluster stands by itself in a SELECT, or takes a number or a parameter, and true or false
-->   hint: Write SELECT setval('name', max(id)) FROM t, without parameters, GROUP BY, ORDER BY, DISTINCT, LIMIT, WITH and other columns.
SELECT setval('free_seq', max(id)) FROM bills WHERE tenant = $1;
--> refused 0A000: setval() of a sequence of the cluster stands by itself in a SELECT, or takes a number or a parameter, and true or false
-->   hint: Write SELECT setval('name', max(id)) FROM t, without parameters, GROUP BY, ORDER BY, DISTINCT, LIMIT, WITH and other columns.
INSERT INTO notes SELECT setval('free_seq', max(id)) FROM bills;
--> refused 0A000: setval() of a sequence of the cluster stands by itself in a SELECT, or takes a number or a parameter, and true or false
-->   hint: Write SELECT setval('name', max(id)) FROM t, without parameters, GROUP BY, ORDER BY, DISTINCT, LIMIT, WITH and other columns.

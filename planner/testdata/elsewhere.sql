-- No table, the catalogue, whole tables, functions.
SELECT 1;
--> any shard [SELECT, read only, rows]
SELECT now(), version();
--> any shard [SELECT, read only, rows]
SELECT $1::text;
--> any shard [SELECT, read only, rows]
SELECT * FROM small;
--> any shard [SELECT, read only, rows]
SELECT * FROM small WHERE id = 5 FOR SHARE;
--> default shard [SELECT, rows]
SELECT * FROM small WHERE id = 5 FOR UPDATE;
--> several shards [SELECT, rows]
-->   operation: modify
-->   shard text: SELECT *, small.ctid::pg_catalog.text FROM small WHERE id = 5 FOR UPDATE
-->   other shards: the same rows of public.small FOR UPDATE
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of small are locked on every shard
SELECT label FROM small FOR UPDATE SKIP LOCKED;
--> refused 0A000: SKIP LOCKED of rows of the reference table small, of which each shard has a copy, is not supported
-->   hint: Use NOWAIT, or keep the rows in a table that is not a reference table.

SELECT label FROM small s JOIN notes n ON n.id = s.id ORDER BY label LIMIT 1 FOR NO KEY UPDATE OF s NOWAIT;
--> several shards [SELECT, rows]
-->   operation: modify
-->   shard text: SELECT label, s.ctid::pg_catalog.text FROM small s JOIN notes n ON n.id = s.id ORDER BY label LIMIT 1 FOR NO KEY UPDATE OF s NOWAIT
-->   other shards: the same rows of public.small FOR NO KEY UPDATE NOWAIT
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of small are locked on every shard
SELECT * FROM (SELECT * FROM small) s FOR UPDATE;
--> refused 0A000: rows of the reference table small would be locked FOR UPDATE on every shard, which is not supported in a subquery, view or writing statement
-->   hint: Lock them in a statement of its own: SELECT ... FROM small ... FOR UPDATE.
UPDATE notes SET note = 'x' WHERE id IN (SELECT id FROM small FOR UPDATE);
--> refused 0A000: rows of the reference table small would be locked FOR UPDATE on every shard, which is not supported in a subquery, view or writing statement
-->   hint: Lock them in a statement of its own: SELECT ... FROM small ... FOR UPDATE.
UPDATE small SET label = 'x' WHERE id IN (SELECT id FROM small FOR UPDATE);
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (modify): SELECT id FROM small FOR UPDATE
-->   shard text: UPDATE small SET label = 'x' WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_) RETURNING small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
SELECT * FROM notes;
--> default shard [SELECT, read only, rows]
SELECT * FROM nosuch;
--> default shard [SELECT, read only, rows]
SELECT name FROM pg_prepared_statements;
--> default shard [SELECT, read only, rows]
-->   text: SELECT name FROM (SELECT * FROM pg_catalog.json_to_recordset($1::json) AS cleave_s(name text, statement text, prepare_time timestamptz, parameter_types regtype[], from_sql boolean, generic_plans bigint, custom_plans bigint)) AS pg_prepared_statements
-->   $1 = pg_prepared_statements
-->   simple: SELECT name FROM (SELECT * FROM pg_catalog.json_to_recordset('100'::json) AS cleave_s(name text, statement text, prepare_time timestamptz, parameter_types regtype[], from_sql boolean, generic_plans bigint, custom_plans bigint)) AS pg_prepared_statements
SELECT * FROM pg_catalog.pg_cursors c;
--> refused 0A000: pg_cursors shows the cursors of a shard's conversation, which sessions share
-->   hint: SELECT * FROM cleave.sessions shows what sessions do.
SELECT count(*) FROM pg_prepared_statement();
--> refused 0A000: pg_prepared_statement shows the statements of a shard's conversation, which sessions share
-->   hint: SELECT * FROM cleave.sessions shows what sessions do.
SELECT * FROM pg_class;
--> default shard [SELECT, read only, rows]
-->   text: SELECT * FROM (SELECT * FROM pg_catalog.pg_class WHERE relnamespace IS DISTINCT FROM (SELECT cleave_n.oid FROM pg_catalog.pg_namespace AS cleave_n WHERE cleave_n.nspname = 'cleave_internal')) AS pg_class
SELECT * FROM pg_catalog.pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace;
--> default shard [SELECT, read only, rows]
-->   text: SELECT * FROM (SELECT * FROM pg_catalog.pg_class WHERE relnamespace IS DISTINCT FROM (SELECT cleave_n.oid FROM pg_catalog.pg_namespace AS cleave_n WHERE cleave_n.nspname = 'cleave_internal')) c JOIN (SELECT * FROM pg_catalog.pg_namespace WHERE nspname <> 'cleave_internal') n ON n.oid = c.relnamespace
SELECT * FROM information_schema.tables;
--> default shard [SELECT, read only, rows]
-->   text: SELECT * FROM (SELECT CAST(CASE WHEN table_catalog IS NOT NULL THEN 'cleave' END AS information_schema.sql_identifier) AS table_catalog, table_schema, table_name, table_type, self_referencing_column_name, reference_generation, CAST(CASE WHEN user_defined_type_catalog IS NOT NULL THEN 'cleave' END AS information_schema.sql_identifier) AS user_defined_type_catalog, user_defined_type_schema, user_defined_type_name, is_insertable_into, is_typed, commit_action FROM information_schema.tables WHERE table_schema IS DISTINCT FROM 'cleave_internal') AS tables
SELECT 'orders'::regclass;
--> default shard [SELECT, read only, rows]
SELECT pg_relation_size('orders');
--> default shard [SELECT, read only, rows]
SELECT nextval('s');
--> default shard [SELECT, rows]
SELECT currval('s'), lastval();
--> default shard [SELECT, read only, rows]
-->   text: SELECT currval('s'), $1::bigint AS "lastval"
-->   $1 = lastval
-->   simple: SELECT currval('s'), '100'::bigint AS "lastval"
SELECT nextval('s') FROM orders WHERE tenant_id = 5;
--> refused 0A000: nextval() in a statement on the sharded table orders would count on each shard by itself
-->   hint: Get the value in a statement of its own: SELECT nextval(...).
SELECT pg_sleep(1);
--> any shard [SELECT, read only, rows]
SELECT current_setting('x'), current_user, pg_backend_pid();
--> any shard [SELECT, read only, rows]
-->   text: SELECT current_setting('x'), current_user, (SELECT $1::integer AS pg_backend_pid)
-->   $1 = pg_backend_pid
-->   simple: SELECT current_setting('x'), current_user, (SELECT '100'::integer AS pg_backend_pid)
SELECT inet_client_addr(), host(inet_server_addr()) AS host;
--> any shard [SELECT, read only, rows]
-->   text: SELECT (SELECT $1::inet AS inet_client_addr), host((SELECT $2::inet AS inet_server_addr)) AS host
-->   $1 = inet_client_addr
-->   $2 = inet_server_addr
-->   simple: SELECT (SELECT '100'::inet AS inet_client_addr), host((SELECT '101'::inet AS inet_server_addr)) AS host
INSERT INTO orders (tenant_id, note) VALUES (5, inet_client_addr()::text);
--> one shard shard-0, key (5) [INSERT]
-->   text: INSERT INTO orders (tenant_id, note) VALUES (5, (SELECT $1::inet AS inet_client_addr)::text)
-->   $1 = inet_client_addr
-->   simple: INSERT INTO orders (tenant_id, note) VALUES (5, (SELECT '100'::inet AS inet_client_addr)::text)
VALUES (1), (2);
--> any shard [SELECT, read only, rows]
SELECT * FROM generate_series(1, 3);
--> any shard [SELECT, read only, rows]
SELECT 'orders'::regclass::oid, count(*) FROM orders;
--> refused 0A000: an object's OID in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT pg_advisory_lock(1), count(*) FROM orders;
--> refused 0A000: pg_advisory_lock() in a statement on the table orders would run on its shards: all advisory locks and notifications are the default shard's
-->   hint: Call it in a statement of its own.
SELECT * FROM orders WHERE tenant_id = 5 AND myfunction(note);
--> refused 0A000: function myfunction() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
SELECT myfunction();
--> refused 0A000: function myfunction() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
SELECT app.f();
--> refused 0A000: function app.f() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
SELECT pg_catalog.lower('A');
--> any shard [SELECT, read only, rows]
SELECT count(*) FROM orders WHERE tenant_id = 5 AND lower(note) = 'x' AND jsonb_build_object('a', 1) IS NOT NULL;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT query_to_xml('SELECT * FROM orders', true, true, '');
--> refused 0A000: query_to_xml() runs a query given as text
-->   hint: Call it on the shard that you mean, directly.
SELECT table_to_xml('orders', true, true, '');
--> refused 0A000: table_to_xml() reads a table named in a text
-->   hint: Call it on the shard that you mean, directly.
SELECT database_to_xml(true, true, '');
--> refused 0A000: database_to_xml() reads the tables of one shard
-->   hint: Call it on the shard that you mean, directly.
SELECT lo_create(0);
--> default shard [SELECT, rows]
SELECT * FROM dblink('x', 'y') AS t(a int);
--> refused 0A000: function dblink() is not one of PostgreSQL's own, nor known to read no table: it could read rows that other shards have
-->   hint: Create it through the router, IMMUTABLE if it is so, or with a body that names no table, and without EXECUTE, set_config() and the like; or write its expression into the statement.
SELECT pg_read_file('x');
--> refused 0A000: pg_read_file() reads a server's files
-->   hint: Call it on the shard that you mean, directly.
SELECT pg_advisory_lock(1);
--> default shard [SELECT, rows]
SELECT pg_try_advisory_xact_lock(1) FROM orders WHERE tenant_id = 5;
--> refused 0A000: pg_try_advisory_xact_lock() in a statement on the table orders would run on its shards: all advisory locks and notifications are the default shard's
-->   hint: Call it in a statement of its own.
SELECT pg_notify('a', 'b');
--> default shard [SELECT, rows]
SELECT txid_current();
--> refused 0A000: txid_current() belongs to one shard
-->   hint: Call it on the shard that you mean, directly.
SELECT pg_export_snapshot();
--> any shard [SELECT, read only, rows]
-->   text: SELECT (SELECT $1::text AS pg_export_snapshot)
-->   $1 = pg_export_snapshot
-->   simple: SELECT (SELECT '100'::text AS pg_export_snapshot)
SELECT pg_terminate_backend(1);
--> any shard [SELECT, read only, rows]
-->   text: SELECT (SELECT position(('|' || CAST(pg_catalog.int4up(1) AS text) || '|') in $1::text) > 0 AS pg_terminate_backend)
-->   $1 = pg_terminate_backend
-->   simple: SELECT (SELECT position(('|' || CAST(pg_catalog.int4up(1) AS text) || '|') in '100'::text) > 0 AS pg_terminate_backend)
SELECT ts_stat('SELECT 1');
--> refused 0A000: ts_stat() runs a query given as text
-->   hint: Call it on the shard that you mean, directly.
SELECT ts_rewrite('a'::tsquery, 'SELECT t, s FROM x');
--> refused 0A000: ts_rewrite() with two arguments runs a query given as text
-->   hint: Use the form with three arguments.
SELECT note OPERATOR(app.+) 'x' FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM otherdb.public.orders WHERE tenant_id = 5;
--> refused 0A000: table names with a database in front are not supported
-->   hint: Leave out the database name.
SELECT * FROM cleave_internal.guards;
--> refused 42501: permission denied for schema cleave_internal
-->   hint: read the shard map through the schema cleave, for example SELECT * FROM cleave.tables
--path app public
SELECT * FROM orders WHERE tenant_id = 5;
--> default shard [SELECT, read only, rows]
SELECT * FROM public.orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM items WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
CREATE TABLE t (a int);
--> schema change create table, creates {TableName:{Schema:app Name:t} Kind:whole Keyspace: ShardKey:[] IfNotExists:false InPath:true} [CREATE TABLE]
--path nosuch
SELECT * FROM orders WHERE tenant_id = 5;
--> default shard [SELECT, read only, rows]
--path public
-- The schema cleave.
SELECT * FROM cleave.shards;
--> router tables [SELECT, read only, rows]
SELECT s.name, count(*) FROM cleave.shards s JOIN cleave.ranges r ON r.shard = s.name GROUP BY 1;
--> router tables [SELECT, read only, rows]
SELECT * FROM cleave.shards, notes;
--> refused 0A000: table cleave.shards is answered by the router and cannot be joined with notes
-->   hint: Read it in a statement of its own.
SELECT * FROM cleave.shards, orders WHERE tenant_id = 5;
--> refused 0A000: table cleave.shards is answered by the router and cannot be joined with orders
-->   hint: Read it in a statement of its own.
SELECT * FROM cleave.shards WHERE name = $1;
--> router tables [SELECT, read only, rows]
DELETE FROM cleave.pins;
--> refused 42501: cleave.pins is read-only
-->   hint: the functions of the schema change it: cleave.create_keyspace, cleave.distribute, cleave.pin
INSERT INTO cleave.shards VALUES (1);
--> refused 42501: cleave.shards is read-only
-->   hint: the functions of the schema change it: cleave.create_keyspace, cleave.distribute, cleave.pin
UPDATE cleave.shards SET x = 1;
--> refused 42501: cleave.shards is read-only
-->   hint: the functions of the schema change it: cleave.create_keyspace, cleave.distribute, cleave.pin
SELECT cleave.pin('hash_bigint', 5, 'shard-1');
--> router function {Function:pin Args:[{Name: Text:hash_bigint Null:false Param:0 Array:[]} {Name: Text:5 Null:false Param:0 Array:[]} {Name: Text:shard-1 Null:false Param:0 Array:[]}] Column:pin} [SELECT, rows]
SELECT cleave.pin(keyspace => 'hash_bigint', key => $1, shard => 'shard-1') AS done;
--> router function {Function:pin Args:[{Name:keyspace Text:hash_bigint Null:false Param:0 Array:[]} {Name:key Text: Null:false Param:1 Array:[]} {Name:shard Text:shard-1 Null:false Param:0 Array:[]}] Column:done} [SELECT, rows]
SELECT cleave.create_keyspace('k', 'range', ARRAY['bigint'], boundaries => ARRAY['10', '20']::text[]);
--> router function {Function:create_keyspace Args:[{Name: Text:k Null:false Param:0 Array:[]} {Name: Text:range Null:false Param:0 Array:[]} {Name: Text: Null:false Param:0 Array:[{Name: Text:bigint Null:false Param:0 Array:[]}]} {Name:boundaries Text: Null:false Param:0 Array:[{Name: Text:10 Null:false Param:0 Array:[]} {Name: Text:20 Null:false Param:0 Array:[]}]}] Column:create_keyspace} [SELECT, rows]
SELECT * FROM cleave.shard_of('hash_bigint', -5);
--> router function {Function:shard_of Args:[{Name: Text:hash_bigint Null:false Param:0 Array:[]} {Name: Text:-5 Null:false Param:0 Array:[]}] Column:shard_of} [SELECT, rows]
SELECT * FROM cleave.shard_of('hash_bigint', 5) AS x;
--> router function {Function:shard_of Args:[{Name: Text:hash_bigint Null:false Param:0 Array:[]} {Name: Text:5 Null:false Param:0 Array:[]}] Column:x} [SELECT, rows]
SELECT cleave.distribute('orders'::regclass, 'tenant_id');
--> router function {Function:distribute Args:[{Name: Text:orders Null:false Param:0 Array:[]} {Name: Text:tenant_id Null:false Param:0 Array:[]}] Column:distribute} [SELECT, rows]
SELECT cleave.pin('a', NULL, true);
--> router function {Function:pin Args:[{Name: Text:a Null:false Param:0 Array:[]} {Name: Text: Null:true Param:0 Array:[]} {Name: Text:true Null:false Param:0 Array:[]}] Column:pin} [SELECT, rows]
SELECT cleave.pin('a', 1 + 1, 'b');
--> refused 0A000: cleave.pin() takes literals, parameters and ARRAY[...] of them only
-->   hint: Compute the value first.
SELECT cleave.pin('a', 1, 'b') FROM orders WHERE tenant_id = 5;
--> refused 0A000: cleave.pin can only be called by itself: SELECT cleave.pin(...)
SELECT cleave.shard_of('a', 1), 2;
--> refused 0A000: cleave.shard_of can only be called by itself: SELECT cleave.shard_of(...)
DROP TABLE cleave.shards;
--> refused 42501: schema "cleave" belongs to the router
-->   hint: create your objects in another schema
-- EXPLAIN.
EXPLAIN SELECT * FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [EXPLAIN, read only, rows]
EXPLAIN ANALYZE UPDATE orders SET note = 'x' WHERE tenant_id = 5;
--> one shard shard-0, key (5) [EXPLAIN, rows]
EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM notes;
--> default shard [EXPLAIN, read only, rows]
EXPLAIN SELECT * FROM orders;
--> several shards [EXPLAIN, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = 5;
--> explain [EXPLAIN, read only, rows]
-->   | plan: one shard
-->   | shard: shard-0
-->   | keyspace: hash_bigint
-->   | range: (,-6148914691236517206)
-->   | epoch: 1
-->   | shard key: (5)
-->   | tables: orders (sharded)
-->   | text: SELECT * FROM orders WHERE tenant_id = 5
EXPLAIN (ROUTE) SELECT * FROM orders WHERE tenant_id = $1;
--> explain [EXPLAIN, read only, rows]
-->   | plan: one shard
-->   | shard: decided by the parameters
-->   | keyspace: hash_bigint
-->   | shard key: ($1)
-->   | tables: orders (sharded)
-->   | text: SELECT * FROM orders WHERE tenant_id = $1
EXPLAIN (ROUTE, ANALYZE) SELECT * FROM orders WHERE tenant_id IN (5, 5);
--> explain [EXPLAIN, read only, rows]
-->   | plan: one shard
-->   | shard: shard-0
-->   | keyspace: hash_bigint
-->   | range: (,-6148914691236517206)
-->   | epoch: 1
-->   | shard key: (5), (5)
-->   | tables: orders (sharded)
-->   | text: SELECT * FROM orders WHERE tenant_id IN (5, 5)
EXPLAIN (ROUTE) SELECT * FROM orders;
--> explain [EXPLAIN, read only, rows]
-->   | plan: several shards
-->   | operation: scatter
-->   | shards: shard-0, shard-1, shard-2
-->   | shard text: SELECT * FROM orders
-->   | tables: orders (sharded)
EXPLAIN (ROUTE) INSERT INTO orders VALUES (1), (2), (3), (4), (5);
--> explain [EXPLAIN, read only, rows]
-->   | plan: several shards
-->   | operation: insert
-->   | rows: 5
-->   | shard text: INSERT INTO orders VALUES (1)
-->   | first key: (1)
-->   | why: the rows have different shard keys
-->   | tables: orders (sharded)
EXPLAIN (ROUTE) SELECT * FROM notes;
--> explain [EXPLAIN, read only, rows]
-->   | plan: default shard
-->   | shard: shard-0
-->   | tables: notes (whole)
-->   | text: SELECT * FROM notes
EXPLAIN (ROUTE) SELECT * FROM small;
--> explain [EXPLAIN, read only, rows]
-->   | plan: any shard
-->   | shard: the transaction's, else any
-->   | tables: small (reference)
-->   | text: SELECT * FROM small
EXPLAIN (ROUTE) CREATE TABLE t AS SELECT 1;
--> explain [EXPLAIN, read only, rows]
-->   | plan: schema change
-->   | operation: create table as
-->   | shard: shard-0
-->   | text: CREATE TABLE t AS SELECT 1
EXPLAIN (ROUTE) DELETE FROM orders WHERE tenant_id = NULL;
--> explain [EXPLAIN, read only, rows]
-->   | plan: one shard
-->   | shard: shard-0
-->   | keyspace: hash_bigint
-->   | shard key: none can match
-->   | tables: orders (sharded)
-->   | text: DELETE FROM orders WHERE tenant_id = NULL
EXPLAIN (VERBOSE, COSTS OFF) EXECUTE p (1, 'a(b', (2 + 3));
--> execute {Name:p Text: OIDs:[] Types:[] Args:[1 'a(b' (2 + 3)] At:[41 44 51] Explain:EXPLAIN (VERBOSE, COSTS OFF) } [EXECUTE]
EXPLAIN CREATE TABLE t AS EXECUTE p;
--> refused 0A000: EXPLAIN of this statement is not supported
-->   hint: Explain the query itself, or use EXPLAIN (ROUTE).
EXPLAIN CREATE TABLE t AS SELECT 1;
--> refused 0A000: EXPLAIN of this statement is not supported
-->   hint: Explain the query itself, or use EXPLAIN (ROUTE).
SELECT pg_listening_channels();
--> refused 0A000: pg_listening_channels() is not supported: the router listens for its sessions, a shard's session to nothing of theirs
-->   hint: Keep the names in the client; LISTEN may be said again, and UNLISTEN * ends all.
CREATE TABLE zz (a int PRIMARY KEY, b oid DEFAULT lo_create(0)) WITH (cleave.shard_key = 'a');
--> refused 0A000: lo_create() is about large objects, which are on the default shard
-->   hint: Call it on the shard that you mean, directly.
CREATE TABLE zz (a int PRIMARY KEY CHECK (lo_get(a::oid) IS NULL)) WITH (cleave.reference = true);
--> refused 0A000: lo_get() is about large objects, which are on the default shard
-->   hint: Call it on the shard that you mean, directly.
CREATE INDEX ii ON orders (lo_get(1));
--> refused 0A000: lo_get() is about large objects, which are on the default shard
-->   hint: Call it on the shard that you mean, directly.
SELECT lo_get(1) FROM orders;
--> refused 0A000: lo_get() in a statement on the table orders: large objects are on the default shard
-->   hint: Call it in a statement of its own, with the OID of the object.
SELECT lo_get(id::oid) FROM countries;
--> default shard [SELECT, rows]
INSERT INTO orders SELECT 1, 2 WHERE lo_unlink(3) = 1;
--> refused 0A000: lo_unlink() in a statement on the table orders: large objects are on the default shard
-->   hint: Call it in a statement of its own, with the OID of the object.
DO $$ BEGIN PERFORM lo_unlink(3); END $$;
--> block [DO]
CREATE VIEW vv AS SELECT lo_get(1);
--> refused 0A000: lo_get() is about large objects, which are on the default shard
-->   hint: Call it on the shard that you mean, directly.
CREATE TABLE yy AS SELECT lo_get(1) AS b;
--> refused 0A000: lo_get() is about large objects, which are on the default shard
-->   hint: Call it on the shard that you mean, directly.
ALTER TABLE orders ADD CHECK (lo_get(1) IS NULL);
--> refused 0A000: lo_get() is about large objects, which are on the default shard
-->   hint: Call it on the shard that you mean, directly.

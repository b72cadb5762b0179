-- Transactions.
BEGIN;
--> transaction {Op:begin Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [BEGIN, read only]
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
--> transaction {Op:begin Name: Chain:false ReadOnly:true Session:false Setting:false Local:false} [BEGIN, read only]
START TRANSACTION READ WRITE;
--> transaction {Op:begin Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [START TRANSACTION, read only]
COMMIT;
--> transaction {Op:commit Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [COMMIT, read only]
END;
--> transaction {Op:commit Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [COMMIT, read only]
ROLLBACK AND CHAIN;
--> transaction {Op:rollback Name: Chain:true ReadOnly:false Session:false Setting:false Local:false} [ROLLBACK, read only]
ABORT;
--> transaction {Op:rollback Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [ROLLBACK, read only]
SAVEPOINT a;
--> transaction {Op:savepoint Name:a Chain:false ReadOnly:false Session:false Setting:false Local:false} [SAVEPOINT, read only]
RELEASE a;
--> transaction {Op:release Name:a Chain:false ReadOnly:false Session:false Setting:false Local:false} [RELEASE, read only]
ROLLBACK TO a;
--> transaction {Op:rollback to Name:a Chain:false ReadOnly:false Session:false Setting:false Local:false} [ROLLBACK, read only]
PREPARE TRANSACTION 'x';
--> refused 0A000: two-phase commit belongs to the router: PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED are not supported
-->   hint: Use COMMIT.
COMMIT PREPARED 'x';
--> refused 0A000: two-phase commit belongs to the router: PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED are not supported
-->   hint: Use COMMIT.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
--> transaction {Op:set Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [SET, read only]
SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY;
--> transaction {Op:set Name: Chain:false ReadOnly:true Session:true Setting:false Local:false} [SET, read only]
SET TRANSACTION SNAPSHOT 'x';
--> transaction {Op:snapshot Name:x Chain:false ReadOnly:false Session:false Setting:false Local:false} [SET, read only]
-- Settings.
SET search_path TO app, public;
--> session setting {Op:set Name:search_path Local:false Value:'app', 'public' What:} [SET, read only]
SET search_path = 'a b', "C";
--> session setting {Op:set Name:search_path Local:false Value:'a b', 'C' What:} [SET, read only]
SET LOCAL statement_timeout = 500;
--> session setting {Op:set Name:statement_timeout Local:true Value:500 What:} [SET, read only]
SET work_mem = '64MB';
--> session setting {Op:set Name:work_mem Local:false Value:'64MB' What:} [SET, read only]
SET TIME ZONE 'UTC';
--> session setting {Op:set Name:timezone Local:false Value:'UTC' What:} [SET, read only]
SET TIME ZONE LOCAL;
--> session setting {Op:set Name:timezone Local:false Value: What:} [SET, read only]
SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE;
--> session setting {Op:set Name:timezone Local:false Value:INTERVAL '+02:00' HOUR TO MINUTE What:} [SET, read only]
SET NAMES 'UTF8';
--> session setting {Op:set Name:client_encoding Local:false Value:'UTF8' What:} [SET, read only]
SET enable_seqscan = off;
--> session setting {Op:set Name:enable_seqscan Local:false Value:'off' What:} [SET, read only]
SET seed TO 0.5;
--> refused 0A000: SET seed is not supported: it would seed random() in one session of one shard only
-->   hint: Make the numbers in the client.
SET DateStyle TO DEFAULT;
--> session setting {Op:set Name:datestyle Local:false Value: What:} [SET, read only]
SET ROLE bob;
--> session setting {Op:set Name:role Local:false Value:'bob' What:} [SET, read only]
SET SESSION AUTHORIZATION bob;
--> refused 0A000: SET SESSION AUTHORIZATION is not supported: the router's connections to the shards have a user of their own
-->   hint: SET ROLE changes the current user.
SET standard_conforming_strings = off;
--> refused 0A000: standard_conforming_strings = off is not supported: the router would read strings otherwise than the shards
-->   hint: Write E'...' where a backslash is to escape.
SET standard_conforming_strings = on;
--> session setting {Op:set Name:standard_conforming_strings Local:false Value:'on' What:} [SET, read only]
SET transform_null_equals = on;
--> refused 0A000: transform_null_equals = on is not supported
-->   hint: Write IS NULL.
SET session_replication_role = replica;
--> refused 42501: session_replication_role cannot be changed through the router: it would switch off the shards' guards
SET cleave.guard_epoch = 5;
--> refused 42501: settings cleave.* belong to the router
-->   hint: SELECT cleave.… functions and the configuration file change the router
SET myapp.x = 'y';
--> session setting {Op:set Name:myapp.x Local:false Value:'y' What:} [SET, read only]
RESET search_path;
--> session setting {Op:reset Name:search_path Local:false Value: What:} [RESET, read only]
RESET ALL;
--> session setting {Op:reset all Name: Local:false Value: What:} [RESET, read only]
SHOW search_path;
--> session setting {Op:show Name:search_path Local:false Value: What:} [SHOW, read only, rows]
SHOW ALL;
--> session setting {Op:show all Name: Local:false Value: What:} [SHOW, read only, rows]
SHOW TIME ZONE;
--> session setting {Op:show Name:timezone Local:false Value: What:} [SHOW, read only, rows]
DISCARD ALL;
--> session setting {Op:discard Name: Local:false Value: What:all} [DISCARD ALL, read only]
DISCARD TEMP;
--> session setting {Op:discard Name: Local:false Value: What:temp} [DISCARD TEMP, read only]
SELECT set_config('search_path', 'app', false);
--> session setting {Op:set_config Name: Local:false Value: What:} [SELECT, read only, rows]
-->   sets "search_path" to "app", local "false"
SELECT pg_catalog.set_config('work_mem', '1MB', true);
--> session setting {Op:set_config Name: Local:false Value: What:} [SELECT, read only, rows]
-->   sets "work_mem" to "1MB", local "true"
SELECT set_config('standard_conforming_strings', 'off', false);
--> refused 0A000: standard_conforming_strings = off is not supported: the router would read strings otherwise than the shards
-->   hint: Write E'...' where a backslash is to escape.
SELECT set_config('a.b', $1, false);
--> session setting {Op:set_config Name: Local:false Value: What:} [SELECT, read only, rows]
-->   sets "a.b" to $1, local "false"
SELECT set_config('search_path', 'app', false), 1;
--> session setting {Op:set_config Name: Local:false Value: What:} [SELECT, read only, rows]
-->   sets "search_path" to "app", local "false"
SELECT set_config('search_path', note, false) FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-->   sets "search_path" to what a shard computes, local "false"
SELECT set_config($1, $2, $3);
--> session setting {Op:set_config Name: Local:false Value: What:} [SELECT, read only, rows]
-->   sets $1 to $2, local $3
SELECT set_config('a.b', $1::text, true)::varchar AS x, set_config($2, NULL, NULL), current_setting('a.b', true), 1;
--> session setting {Op:set_config Name: Local:false Value: What:} [SELECT, read only, rows]
-->   sets "a.b" to $1, local "true"
-->   sets $2 to NULL, local NULL
SELECT set_config('a.b', $1, true), $1::int;
--> any shard [SELECT, read only, rows]
-->   sets "a.b" to what a shard computes, local "true"
SELECT set_config('a.b', current_setting('a.c') || 'x', $1);
--> any shard [SELECT, read only, rows]
-->   sets "a.b" to what a shard computes, local $1
SELECT set_config('a.b', $1, $1);
--> refused 0A000: a parameter that names a setting of set_config(), or says how long it holds, and stands elsewhere too is not supported
-->   hint: Give it as a parameter of its own.
SELECT set_config($1 || 'x', 'y', true);
--> refused 0A000: set_config() of a name that is computed is not supported: the router has to know the setting
-->   hint: Give the name as a literal or a parameter.
SELECT set_config('a.b', 'y', NOT true);
--> refused 0A000: set_config() whose third argument is computed is not supported: the router has to know how long the setting holds
-->   hint: Give true or false, or a parameter.
SELECT set_config('session_replication_role', 'replica', true), 1;
--> refused 42501: session_replication_role cannot be changed through the router: it would switch off the shards' guards
WITH t AS (SELECT set_config('session_replication_role', 'replica', true)) SELECT 1 FROM t;
--> refused 42501: session_replication_role cannot be changed through the router: it would switch off the shards' guards
WITH t AS (SELECT set_config('lock_timeout', '1000', true)) SELECT pg_advisory_lock(1) FROM t;
--> default shard [SELECT, rows]
-->   sets "lock_timeout" to "1000", local "true"
SELECT set_config('a.b', note, true) FROM orders;
--> refused 0A000: set_config() in a statement over several shards is not supported
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
SELECT set_config('a.b', 'x', true) FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7);
--> several keys, but set_config() in a statement over several shards is not supported (SQLSTATE 0A000, refusal CLV-0229); hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
SELECT set_config('a.b', 'x', true), nextval('numbers');
--> default shard [SELECT, rows]
-->   sets "a.b" to "x", local "true"
EXPLAIN ANALYZE SELECT set_config('a.b', 'x', true) FROM pg_class;
--> refused 0A000: set_config() is supported in SELECT, INSERT, UPDATE, DELETE and MERGE only
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
DECLARE c CURSOR FOR SELECT set_config('a.b', 'x', true);
--> refused 0A000: set_config() is supported in SELECT, INSERT, UPDATE, DELETE and MERGE only
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
COPY (SELECT set_config('a.b', 'x', true)) TO STDOUT;
--> refused 0A000: set_config() is supported in SELECT, INSERT, UPDATE, DELETE and MERGE only
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
CREATE TABLE as_set AS SELECT set_config('a.b', 'x', true);
--> refused 0A000: set_config() is supported in SELECT, INSERT, UPDATE, DELETE and MERGE only
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
SELECT set_config('a.b', 'x', true) INTO TEMP as_set;
--> refused 0A000: set_config() in such a statement is not supported: the router carries out a part of it
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
CREATE VIEW as_set AS SELECT set_config('a.b', 'x', true);
--> refused 0A000: set_config() is supported in SELECT, INSERT, UPDATE, DELETE and MERGE only
-->   hint: Run SELECT set_config('name', 'value', false) by itself, or SET.
-- Prepared statements of SQL.
PREPARE p AS SELECT * FROM orders WHERE tenant_id = $1;
--> prepare {Name:p Text:SELECT * FROM orders WHERE tenant_id = $1 OIDs:[] Types:[] Args:[] At:[] Explain:} [PREPARE, read only]
PREPARE p (bigint, text, int[]) AS SELECT $1, $2 AS x;
--> prepare {Name:p Text:SELECT $1, $2 AS x OIDs:[20 25 0] Types:[int8 text int4[]] Args:[] At:[12 20 26] Explain:} [PREPARE, read only]
EXECUTE p;
--> execute {Name:p Text: OIDs:[] Types:[] Args:[] At:[] Explain:} [EXECUTE]
EXECUTE p (5, 'a, b', ARRAY[1, 2], (SELECT 1));
--> execute {Name:p Text: OIDs:[] Types:[] Args:[5 'a, b' ARRAY[1, 2] (SELECT 1)] At:[12 15 23 36] Explain:} [EXECUTE]
DEALLOCATE p;
--> deallocate {Name:p Text: OIDs:[] Types:[] Args:[] At:[] Explain:} [DEALLOCATE, read only]
DEALLOCATE ALL;
--> deallocate {Name: Text: OIDs:[] Types:[] Args:[] At:[] Explain:} [DEALLOCATE ALL, read only]
-- Cursors.
DECLARE c CURSOR FOR SELECT * FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [DECLARE CURSOR, read only]
DECLARE c CURSOR FOR SELECT * FROM orders;
--> several shards [DECLARE CURSOR, read only]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
DECLARE c CURSOR WITH HOLD FOR SELECT * FROM notes;
--> default shard [DECLARE CURSOR, read only]
FETCH 10 FROM c;
--> any shard [FETCH, read only, rows]
MOVE 10 FROM c;
--> any shard [MOVE, read only]
CLOSE c;
--> any shard [CLOSE CURSOR, read only]
-- What belongs to one shard.
LISTEN x;
--> notifications [LISTEN, read only]
NOTIFY x;
--> default shard [NOTIFY]
UNLISTEN *;
--> notifications [UNLISTEN, read only]
LOCK TABLE orders;
--> refused 0A000: LOCK TABLE on a sharded or reference table would lock it on one shard only
-->   hint: Lock the rows that you need with SELECT ... FOR UPDATE.
LOCK TABLE notes IN SHARE MODE;
--> default shard [LOCK TABLE]
VACUUM;
--> schema change vacuum, all shards, concurrently [VACUUM]
VACUUM orders;
--> schema change vacuum, all shards, concurrently [VACUUM]
VACUUM ANALYZE notes;
--> default shard [VACUUM]
ANALYZE orders;
--> schema change analyze, all shards [ANALYZE]
REINDEX TABLE orders;
--> schema change reindex, all shards [REINDEX]
DO $$ BEGIN END $$;
--> default shard [DO]
CALL p();
--> refused 0A000: CALL of a procedure that is not known to read and write no table is not supported yet
-->   hint: Run its statements one by one.
CREATE VIEW v AS SELECT 1;
--> schema change create view, all shards [CREATE VIEW]
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
--> schema change create function, all shards [CREATE FUNCTION]
CREATE TRIGGER t BEFORE INSERT ON orders EXECUTE FUNCTION f();
--> refused 0A000: a trigger that calls f() is not supported: the function is not known to read or write no table, so it could reach rows that other shards have
-->   hint: Create the function through the router, in SQL or PL/pgSQL, without naming tables in it.
CREATE EXTENSION x;
--> schema change create extension, all shards [CREATE EXTENSION]
CREATE ROLE r;
--> refused 0A000: a role without LOGIN is not supported: the cluster has users only
-->   hint: Run CREATE ROLE ... LOGIN PASSWORD '...', or CREATE USER.
GRANT SELECT ON orders TO bob;
--> schema change grant, all shards [GRANT]
CREATE DATABASE d;
--> refused 0A000: creating or changing databases is not supported yet
-->   hint: The cluster is one database; cleave shard add brings another shard.
ALTER SYSTEM SET x = 1;
--> refused 0A000: changing a server is not supported yet
-->   hint: Run it on each shard directly.
SET CONSTRAINTS ALL DEFERRED;
--> transaction {Op:constraints Name: Chain:false ReadOnly:false Session:false Setting:false Local:false} [SET CONSTRAINTS, read only]
COPY orders FROM STDIN;
--> several shards [COPY, copy]
-->   operation: copy in
-->   shard text: COPY orders FROM STDIN
-->   shards: shard-0, shard-1, shard-2
-->   why: each row goes to the shard that owns its key
COPY orders TO STDOUT;
--> several shards [COPY, read only, copy]
-->   operation: copy out
-->   shard text: COPY orders TO STDOUT
-->   shards: shard-0, shard-1, shard-2
-->   why: the shards' rows, one after the other
COPY notes FROM STDIN WITH (FORMAT csv);
--> default shard [COPY, copy]
COPY notes TO STDOUT;
--> default shard [COPY, read only, copy]
COPY notes TO '/tmp/x';
--> refused 42501: COPY with a file or program of the server is not supported
-->   hint: use COPY ... FROM STDIN or TO STDOUT, or psql's \copy
COPY notes FROM PROGRAM 'x';
--> refused 42501: COPY with a file or program of the server is not supported
-->   hint: use COPY ... FROM STDIN or TO STDOUT, or psql's \copy
COPY (SELECT * FROM orders WHERE tenant_id = 5) TO STDOUT;
--> one shard shard-0, key (5) [COPY, read only, copy]
COPY (SELECT * FROM orders) TO STDOUT;
--> several shards [COPY, read only, copy]
-->   operation: copy out
-->   source: several shards (scatter): SELECT * FROM orders
-->   shards: shard-0, shard-1, shard-2
-->   why: the rows of the query are written as COPY does
;
--> empty [, read only]
-- comment only
SELECT 1; SELECT 2;
--> refused 42601: cannot insert multiple commands into a prepared statement
SELEC 1;
--> refused 42601: syntax error at or near "SELEC" at 1
SELECT 'abc;
--> refused 42601: unterminated quoted string at or near "'abc" at 8
SELECT setseed(0.5);
--> refused 0A000: setseed() would seed random() in one session of one shard only
-->   hint: Make the numbers in the client.
SET SESSION seed = 0.5;
--> refused 0A000: SET seed is not supported: it would seed random() in one session of one shard only
-->   hint: Make the numbers in the client.
UPDATE pg_settings SET setting = 'off' WHERE name = 'standard_conforming_strings';
--> refused 42501: permission denied: "pg_settings" is a system catalog
-->   hint: SET changes a setting
UPDATE pg_catalog.pg_class SET relname = 'x';
--> refused 42501: permission denied: "pg_class" is a system catalog
WITH d AS (DELETE FROM pg_class RETURNING 1) SELECT * FROM d;
--> refused 42501: permission denied: "pg_class" is a system catalog
SELECT current_database(), current_catalog;
--> any shard [SELECT, read only, rows]
-->   text: SELECT (SELECT CAST('cleave' AS pg_catalog.name) AS current_database), (SELECT CAST('cleave' AS pg_catalog.name) AS current_catalog)
SELECT current_catalog;
--> any shard [SELECT, read only, rows]
-->   text: SELECT (SELECT CAST('cleave' AS pg_catalog.name) AS current_catalog)
PREPARE q (text, app.text, app.mood) AS SELECT $1;
--> prepare {Name:q Text:SELECT $1 OIDs:[25 0 0] Types:[text "app"."text" "app"."mood"] Args:[] At:[12 18 28] Explain:} [PREPARE, read only]
--path app public pg_catalog
PREPARE q (text, pg_catalog.text, bigint) AS SELECT $1;
--> prepare {Name:q Text:SELECT $1 OIDs:[0 25 20] Types:["text" text int8] Args:[] At:[12 18 35] Explain:} [PREPARE, read only]
SELECT * FROM people WHERE name = 'bob'::text;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 'bob'::text
SELECT * FROM people WHERE name = 'bob'::pg_catalog.text;
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = text 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 'bob'::text
SELECT * FROM people WHERE name = 'bob';
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = $1::text;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = $1::text
SELECT * FROM people WHERE name::text = 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name::text = 'bob'
SELECT * FROM people WHERE name = ANY (ARRAY['bob']::text[]);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = ANY(ARRAY['bob']::text[])
SELECT * FROM docs WHERE id = uuid '00000000-0000-0000-0000-000000000001';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM docs WHERE id = '00000000-0000-0000-0000-000000000001'::uuid
SELECT * FROM visits WHERE region = 'eu'::varchar AND visitor = 7::int;
--> one shard shard-1, key ('eu', 7) [SELECT, read only, rows]
--path public
CREATE USER bob PASSWORD 'secret' SUPERUSER;
--> users [CREATE ROLE]
-->   text: CREATE ROLE
ALTER ROLE CURRENT_USER PASSWORD 'secret';
--> users [ALTER ROLE]
-->   text: ALTER ROLE
DROP ROLE IF EXISTS bob, ann;
--> users [DROP ROLE]
-->   text: DROP ROLE
GRANT bob TO ann;
--> refused 0A000: granting roles is not supported: a user of the cluster is in no group
-->   hint: Run cleave user role NAME admin|user|writer; with auth passthrough, on each shard directly.
ALTER ROLE bob SET work_mem = '1MB';
--> refused 0A000: settings of a role are not supported
-->   hint: Set them at the beginning of the session, or in the client's options.
ALTER ROLE bob VALID UNTIL '2030-01-01';
--> refused 0A000: VALID UNTIL is not supported for users of the cluster
-->   hint: The cluster's users have a name, a password and a role (cleave user --help).

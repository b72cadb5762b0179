-- User-defined types: their values, the types of columns and parameters, on every shard.
-- engines: postgres

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN short AS text CHECK (length(value) < 9);
CREATE TYPE feeling AS (m mood, ms mood[], n int);
CREATE TYPE price_range AS RANGE (subtype = numeric);
CREATE TABLE moody (tenant_id bigint, id int, m mood, ms mood[], c feeling, cs feeling[], d short, ds short[], r price_range, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id');
CREATE TABLE moods (m mood PRIMARY KEY, ms mood[], d short) WITH (cleave.reference = true);
-- foreach i: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9
INSERT INTO moody VALUES (${i}, ${i} % 3, (ARRAY['sad', 'ok', 'happy', NULL])[1 + ${i} % 4]::mood, ARRAY['sad', (ARRAY['sad', 'ok'])[1 + ${i} % 2]]::mood[], ROW('ok', '{happy}', ${i}), ARRAY[ROW('sad', NULL, ${i})]::feeling[], 'd' || ${i} % 2, ARRAY['e', 'f']::short[], numrange(${i}, ${i} + 2)::text::price_range);
INSERT INTO moods VALUES ('sad', '{ok}', 'x'), ('ok', '{}', 'y') RETURNING *;
-- foreach w: tenant_id = 3 | tenant_id = 4 | tenant_id IN (3, 4, 5) | true | m = 'happy' | 'ok' = ANY (ms) | (c).n > 4 | c = ROW('ok', '{happy}', 5)::feeling | d = 'd1' | r @> 4.5 | ms @> '{ok}' | m > 'sad' | tenant_id = 3 AND m IS NULL
-- foreach s: * | m, ms, d | c, cs, ds, r | t | ROW(m, c) | (c).m, (c).ms[1], cs[1].n | pg_typeof(m), pg_typeof(c), pg_typeof(cs), pg_typeof(d), pg_typeof(r)
SELECT ${s} FROM moody t WHERE ${w};
-- foreach s: m | d | ms | c | r | cs | ds | m, d | upper(r)
SELECT DISTINCT ${s} FROM moody;
-- foreach g: m | d | ms | c | r
-- foreach a: count(*) | max(m) | array_agg(m ORDER BY tenant_id) | min(d) | max(ms) | array_agg(c ORDER BY tenant_id)
SELECT ${g}, ${a} FROM moody GROUP BY ${g};
-- foreach o: m, tenant_id | m DESC NULLS LAST, tenant_id | ms, tenant_id | c, tenant_id | d DESC, tenant_id | r, tenant_id | cs DESC
SELECT tenant_id, m, ms, c, d, r FROM moody ORDER BY ${o} LIMIT 5;
-- foreach j: a.m = b.m AND a.tenant_id <> b.tenant_id | a.tenant_id = b.tenant_id | a.ms = b.ms AND a.id = b.id | a.c = b.c
SELECT a.tenant_id, b.tenant_id, a.m, b.cs FROM moody a JOIN moody b ON ${j};
SELECT t.tenant_id, moods.* FROM moody t JOIN moods USING (m);
SELECT moods, t FROM moody t LEFT JOIN moods USING (m) WHERE t.tenant_id = 4;
SELECT m, ms, d FROM moods;
SELECT m, rank() OVER (ORDER BY m, tenant_id) FROM moody;
SELECT m FROM moody UNION SELECT m FROM moods;
SELECT * FROM (SELECT max(m) AS m, min(d) AS d FROM moody) x;
-- foreach v: sad | ok | none
SELECT tenant_id, m FROM moody WHERE m = '${v}';
-- block
PREPARE a (mood, mood[], short) AS SELECT tenant_id, m, c FROM moody WHERE m = $1 OR ms = $2 OR d = $3;
EXECUTE a ('ok', '{sad,ok}', 'none');
EXECUTE a (NULL, NULL, 'd1');
PREPARE b (bigint, feeling) AS UPDATE moody SET c = $2 WHERE tenant_id = $1 RETURNING c, cs;
EXECUTE b (3, '(happy,,1)');
EXECUTE b (4, '(happy,"{sad,ok}",1)');
EXECUTE a (E'ok', '{}', E'd\x31');
DEALLOCATE ALL;
-- end
-- block
BEGIN;
UPDATE moody SET m = 'sad', cs = cs || ROW('ok', '{}', 0)::feeling WHERE tenant_id IN (2, 3) RETURNING tenant_id, m, cs;
SELECT tenant_id, cs FROM moody WHERE tenant_id = 2;
DECLARE c CURSOR FOR SELECT tenant_id, m, ms, c FROM moody ORDER BY tenant_id;
FETCH 4 FROM c;
FETCH ALL FROM c;
ROLLBACK;
-- end
INSERT INTO moody (tenant_id, id, m, c, cs) SELECT tenant_id + 10, id, 'happy', c, cs FROM moody WHERE id = 1 RETURNING *;
INSERT INTO moody (tenant_id, id, d) VALUES (30, 1, 'much too long');
UPDATE moody SET tenant_id = tenant_id + 100 WHERE tenant_id IN (11, 14);
SELECT * FROM moody WHERE tenant_id > 10;
DELETE FROM moody WHERE m = 'happy' RETURNING tenant_id, m, c;
ALTER TYPE mood ADD VALUE 'glad' AFTER 'ok';
UPDATE moody SET m = 'glad' WHERE tenant_id = 5 RETURNING m;
SELECT m FROM moody ORDER BY m, tenant_id;
DROP TABLE moody, moods;
DROP TYPE price_range, feeling, mood, short;

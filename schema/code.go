package schema

import (
	"context"
	"strings"

	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// What a schema change may bring to a shard is an allow-list of the shard's own catalogue: functions in languages that
// PostgreSQL trusts (pg_language.lanpltrusted) and extensions that it marks trusted. The catalogue is asked in the
// transaction of the change, after the statement, so that it does not matter which statement made the function.

// languageSQL says whether a shard trusts a language; no row: it does not know it, and says so itself.
const languageSQL = `SELECT l.lanpltrusted FROM pg_catalog.pg_language AS l WHERE l.lanname = `

// madeSQL lists what this transaction made or changed and may not: what it is, and whether an administrator may bring
// it. A row of this transaction and its subtransactions has a transaction's number that is not older than its own.
const madeSQL = `WITH trusted AS (
	SELECT e.oid, pg_catalog.bool_or(v.trusted) AS yes FROM pg_catalog.pg_extension AS e
	JOIN pg_catalog.pg_available_extension_versions AS v ON v.name = e.extname AND v.version = e.extversion GROUP BY e.oid
), member AS (
	SELECT d.classid, d.objid, COALESCE(t.yes, false) AS yes FROM pg_catalog.pg_depend AS d LEFT JOIN trusted AS t ON t.oid = d.refobjid
	WHERE d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
)
SELECT 'extension ' || e.extname, true FROM pg_catalog.pg_extension AS e LEFT JOIN trusted AS t ON t.oid = e.oid
	WHERE pg_catalog.age(e.xmin) <= 0 AND t.yes IS NOT TRUE
UNION ALL SELECT 'function ' || p.proname || ' in language ' || l.lanname, m.objid IS NOT NULL
	FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
	LEFT JOIN member AS m ON m.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND m.objid = p.oid
	WHERE pg_catalog.age(p.xmin) <= 0 AND NOT l.lanpltrusted AND m.yes IS NOT TRUE
UNION ALL SELECT 'function ' || p.proname || ' with ' || c, false FROM pg_catalog.pg_proc AS p, pg_catalog.unnest(p.proconfig) AS c
	WHERE pg_catalog.age(p.xmin) <= 0 AND c ~* '^session_replication_role=' AND c !~* '=origin$'
ORDER BY 2, 1 LIMIT 1`

// trusts refuses the language of a function that a shard does not trust, before the shard looks at the function.
func (p *part) trusts(ctx context.Context, d *plan.DDL) error {
	if d.Language == "" || d.Language == "sql" || d.Language == "plpgsql" || !p.can.Code {
		return nil
	}
	res, err := p.run(ctx, languageSQL+"'"+strings.ReplaceAll(d.Language, "'", "''")+"'")
	if err != nil {
		return err
	}
	if len(res.Rows) > 0 && res.Rows[0][0].String != "t" {
		return onShard(planner.ErrUntrusted("language "+d.Language), p.shard)
	}
	return nil
}

// confined refuses a statement after which a part has code that nobody, or not this user, may bring. The transaction
// cannot be committed then.
func (p *part) confined(ctx context.Context, admin bool, d *plan.DDL) error {
	if !d.Objects || !p.can.Code {
		return nil
	}
	res, err := p.run(ctx, madeSQL)
	if err != nil {
		return err
	}
	for _, row := range res.Rows {
		if row[1].String == "t" && admin {
			continue
		}
		e := planner.ErrUntrusted(row[0].String)
		if strings.HasPrefix(row[0].String, "extension ") {
			e = sqlstate.New(sqlstate.InsufficientPrivilege, "permission denied to create %s: PostgreSQL does not mark it as trusted", row[0].String).
				WithHint("it takes an administrator of the cluster; trusted ones are those of: SELECT name FROM pg_available_extension_versions WHERE trusted")
		}
		return onShard(e, p.shard)
	}
	return nil
}

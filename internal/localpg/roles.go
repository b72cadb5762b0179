package localpg

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/sqlstate"
)

// Superuser is the role that initdb makes. Nothing but the start of a server uses it.
const Superuser = "postgres"

// maintenanceDatabase is there on every server, for who administers it.
const maintenanceDatabase = "postgres"

// MoverSuffix follows the name of the shards' role in that of its mover: see engine/postgres.
const MoverSuffix = "_mover"

// Roles are those of a server whose URLs name a role: itself, its mover, the superuser.
func Roles(user string) []string { return []string{user, user + MoverSuffix, Superuser} }

// makeRoles makes the shards' role, which is no superuser, and its mover. What the superuser owns in a folder of an older version,
// where it was the shards' role, is given to the role before that can log in: a start that was interrupted is gone on with by the next one.
func (s *Server) makeRoles(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StartTimeout)
	defer cancel()
	role, mover := quote(s.opts.User, `"`), quote(s.opts.User+MoverSuffix, `"`)
	conn, err := pgconn.Connect(ctx, s.SuperuserURL("postgres"))
	if err != nil {
		return s.rolesError(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const prepared = "EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts WHERE owner = '" + Superuser + "')"
	results, err := conn.Exec(ctx, "SELECT pg_catalog.pg_is_in_recovery() OR EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = "+quote(s.opts.User, "'")+" AND rolcanlogin AND NOT rolsuper), "+prepared).ReadAll()
	if err != nil {
		return s.rolesError(err)
	}
	done, doubt := string(results[0].Rows[0][0]) == "t", string(results[0].Rows[0][1]) == "t"
	switch {
	case done && len(s.opts.Passwords) == 0:
		return nil // a standby has its primary's
	case !done && !doubt:
		err = s.handOver(ctx, conn, role)
	}
	if err == nil {
		_, err = conn.Exec(ctx, s.makeSQL(role, mover, doubt && !done)).ReadAll()
	}
	if err != nil {
		return s.rolesError(err)
	}
	return nil
}

// makeSQL makes what is missing. Only its own role or a superuser ends a prepared transaction, and those that an older version has left hold
// locks: with doubt the role remains a superuser until the next start without them.
func (s *Server) makeSQL(role, mover string, doubt bool) string {
	name := func(text string) string { return quote(text, "'") }
	rights := " LOGIN NOSUPERUSER"
	if doubt {
		rights = " LOGIN SUPERUSER"
	}
	sql := `DO $cleave$ BEGIN
	IF pg_catalog.pg_is_in_recovery() THEN RETURN; END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = ` + name(s.opts.User) + `) THEN CREATE ROLE ` + role + `; END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = ` + name(s.opts.User+MoverSuffix) + `) THEN CREATE ROLE ` + mover + ` LOGIN REPLICATION BYPASSRLS; END IF;
	ALTER ROLE ` + role + rights + `;
	GRANT ` + role + `, pg_read_all_stats TO ` + mover + `;
	IF pg_catalog.current_setting('server_version_num')::pg_catalog.int4 < 150000 THEN ALTER ROLE ` + mover + ` SUPERUSER;
	ELSE EXECUTE ` + name("GRANT SET ON PARAMETER session_replication_role, deadlock_timeout TO "+mover) + `; END IF;
END $cleave$`
	if s.passwords() {
		sql += "; SET password_encryption = 'scram-sha-256'"
		for _, r := range Roles(s.opts.User)[:2] {
			sql += "; ALTER ROLE " + quote(r, `"`) + " PASSWORD " + name(s.opts.Passwords[r])
		}
	}
	return sql
}

// handOver makes the role, which cannot log in yet, and gives it what the superuser owns in all databases.
func (s *Server) handOver(ctx context.Context, conn *pgconn.PgConn, role string) error {
	results, err := conn.Exec(ctx, `DO $cleave$ BEGIN
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = `+quote(s.opts.User, "'")+`) THEN CREATE ROLE `+role+` NOLOGIN; END IF;
END $cleave$; SELECT datname FROM pg_catalog.pg_database WHERE datallowconn`).ReadAll()
	if err != nil {
		return err
	}
	for _, row := range results[1].Rows {
		database := string(row[0])
		if err := s.exec(ctx, database, handOverSQL(role, database), ""); err != nil {
			return err
		}
	}
	return nil
}

// made is what the system did not come with (FirstNormalObjectId in src/include/access/transam.h).
const made = "oid >= 16384"

// owned are the catalogues of what has an owner: the catalogue, its column, and which of its rows.
var owned = []struct{ catalogue, owner, where string }{
	{"pg_namespace", "nspowner", made},
	{"pg_class", "relowner", made + " AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')"},
	{"pg_type", "typowner", made + " AND (typrelid = 0 OR EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = typrelid AND c.relkind = 'c'))"},
	{"pg_proc", "proowner", made}, {"pg_operator", "oprowner", made}, {"pg_opclass", "opcowner", made}, {"pg_opfamily", "opfowner", made},
	{"pg_collation", "collowner", made}, {"pg_conversion", "conowner", made}, {"pg_statistic_ext", "stxowner", made},
	{"pg_ts_dict", "dictowner", made}, {"pg_ts_config", "cfgowner", made}, {"pg_foreign_server", "srvowner", made},
	{"pg_publication", "pubowner", made + " AND NOT puballtables"}, {"pg_largeobject_metadata", "lomowner", "true"},
}

// handOverSQL gives what the superuser (10, BOOTSTRAP_SUPERUSERID) owns in a database to a role, and the database. REASSIGN OWNED does
// not: nothing is noted of what that superuser owns. Members of an extension stay, as those of one that is trusted do; the extension goes.
func handOverSQL(role, database string) string {
	var parts []string
	for _, o := range owned {
		parts = append(parts, fmt.Sprintf("SELECT 'pg_catalog.%s'::pg_catalog.regclass AS class, oid AS object FROM pg_catalog.%s WHERE %s = 10 AND %s",
			strings.TrimSuffix(o.catalogue, "_metadata"), o.catalogue, o.owner, o.where))
	}
	sql := `DO $cleave$ DECLARE o record; BEGIN
	FOR o IN SELECT i.type, i.identity FROM (` + strings.Join(parts, " UNION ALL ") + `) AS a, LATERAL pg_catalog.pg_identify_object(a.class, a.object, 0) AS i
		WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d WHERE d.classid = a.class AND d.objid = a.object
			AND (d.deptype IN ('i', 'e') OR d.deptype = 'a' AND i.type = 'sequence'))
	LOOP
		EXECUTE pg_catalog.format('ALTER %s %s OWNER TO %s', CASE o.type WHEN 'statistics object' THEN 'statistics' ELSE o.type END, o.identity, ` + quote(role, "'") + `);
	END LOOP;
	WITH e AS (UPDATE pg_catalog.pg_extension SET extowner = ` + quote(role, "'") + `::pg_catalog.regrole WHERE extowner = 10 AND oid >= 16384 RETURNING oid)
	INSERT INTO pg_catalog.pg_shdepend (dbid, classid, objid, objsubid, refclassid, refobjid, deptype)
		SELECT (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()), 'pg_catalog.pg_extension'::pg_catalog.regclass, e.oid, 0,
			'pg_catalog.pg_authid'::pg_catalog.regclass, ` + quote(role, "'") + `::pg_catalog.regrole, 'o' FROM e;
END $cleave$`
	if database != maintenanceDatabase && !strings.HasPrefix(database, "template") {
		sql += "; ALTER DATABASE " + quote(database, `"`) + " OWNER TO " + role
	}
	return sql
}

func (s *Server) rolesError(err error) error {
	return sqlstate.Wrap(err, sqlstate.ConfigFileError, "the roles of the local PostgreSQL server in %s could not be made", s.opts.DataDir).
		WithHint("read %s, and start again", s.LogPath())
}

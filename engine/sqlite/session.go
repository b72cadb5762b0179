package sqlite

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/sqlite/catalog"
	"github.com/cleavedb/cleave/engine/sqlite/quote"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

// ServerVersion is the version of PostgreSQL whose behaviour is answered.
const ServerVersion = "15.0"

// settingDef is a parameter of PostgreSQL that SHOW knows.
type settingDef struct {
	name   string // as PostgreSQL spells it
	value  string // at start
	report bool   // ParameterStatus
	fixed  bool   // cannot be changed
	only   []string
	kind   string // bool, integer, ms, string, enum
	short  string
}

var settingDefs = []settingDef{
	{name: "application_name", report: true, kind: "string", short: "Sets the application name to be reported in statistics and logs."},
	{name: "client_encoding", value: "UTF8", report: true, kind: "string", only: []string{"utf8", "utf-8", "unicode"}, short: "Sets the client's character set encoding."},
	{name: "DateStyle", value: "ISO, MDY", report: true, kind: "string", short: "Sets the display format for date and time values."},
	{name: "IntervalStyle", value: "postgres", report: true, kind: "enum", only: []string{"postgres"}, short: "Sets the display format for interval values."},
	{name: "TimeZone", value: "UTC", report: true, kind: "string", short: "Sets the time zone for displaying and interpreting time stamps."},
	{name: "default_transaction_read_only", value: "off", report: true, kind: "bool", short: "Sets the default read-only status of new transactions."},
	{name: "default_transaction_isolation", value: "read committed", kind: "enum", only: []string{"read committed", "repeatable read", "serializable", "read uncommitted"}, short: "Sets the transaction isolation level of each new transaction."},
	{name: "in_hot_standby", value: "off", report: true, fixed: true, kind: "bool", short: "Shows whether hot standby is currently active."},
	{name: "integer_datetimes", value: "on", report: true, fixed: true, kind: "bool", short: "Shows whether datetimes are integer based."},
	{name: "is_superuser", value: "off", report: true, fixed: true, kind: "bool", short: "Shows whether the current user is a superuser."},
	{name: "server_encoding", value: "UTF8", report: true, fixed: true, kind: "string", short: "Shows the server (database) character set encoding."},
	{name: "server_version", value: ServerVersion, report: true, fixed: true, kind: "string", short: "Shows the server version."},
	{name: "server_version_num", value: "150000", fixed: true, kind: "integer", short: "Shows the server version as an integer."},
	{name: "session_authorization", report: true, fixed: true, kind: "string", short: "Sets the session user name."},
	{name: "standard_conforming_strings", value: "on", report: true, kind: "bool", only: []string{"on"}, short: "Causes '...' strings to treat backslashes literally."},
	{name: "search_path", value: `"$user", public`, kind: "string", short: "Sets the schema search order for names that are not schema-qualified."},
	{name: "statement_timeout", value: "0", kind: "ms", short: "Sets the maximum allowed duration of any statement."},
	{name: "lock_timeout", value: "0", kind: "ms", short: "Sets the maximum allowed duration of any wait for a lock."},
	{name: "idle_in_transaction_session_timeout", value: "0", kind: "ms", short: "Sets the maximum allowed idle time between queries, when in a transaction."},
	{name: "idle_session_timeout", value: "0", kind: "ms", short: "Sets the maximum allowed idle time between queries, when not in a transaction."},
	{name: "extra_float_digits", value: "1", kind: "integer", only: []string{"1", "2", "3"}, short: "Sets the number of digits displayed for floating-point values."},
	{name: "bytea_output", value: "hex", kind: "enum", only: []string{"hex"}, short: "Sets the output format for bytea."},
	{name: "client_min_messages", value: "notice", kind: "enum", only: []string{"notice", "warning", "error", "log", "debug1", "debug2", "debug3", "debug4", "debug5", "debug"}, short: "Sets the message levels that are sent to the client."},
	{name: "row_security", value: "on", kind: "bool", short: "Enable row security."},
	{name: "check_function_bodies", value: "on", kind: "bool", short: "Check routine bodies during CREATE FUNCTION and CREATE PROCEDURE."},
	{name: "default_tablespace", kind: "string", only: []string{""}, short: "Sets the default tablespace to create tables and indexes in."},
	{name: "default_table_access_method", value: "heap", kind: "string", only: []string{"heap"}, short: "Sets the default table access method for new tables."},
	{name: "default_transaction_deferrable", value: "off", kind: "bool", short: "Sets the default deferrable status of new transactions."},
	{name: "escape_string_warning", value: "on", kind: "bool", short: "Warn about backslash escapes in ordinary string literals."},
	{name: "synchronous_commit", value: "on", kind: "enum", only: []string{"on", "local", "remote_write", "remote_apply", "off"}, short: "Sets the current transaction's synchronization level."},
	{name: "work_mem", value: "4MB", kind: "string", short: "Sets the maximum memory to be used for query workspaces."},
	{name: "jit", value: "off", kind: "bool", short: "Allow JIT compilation."},
	{name: "max_identifier_length", value: "63", fixed: true, kind: "integer", short: "Shows the maximum identifier length."},
	{name: "max_index_keys", value: "32", fixed: true, kind: "integer", short: "Shows the maximum number of index keys."},
	{name: "block_size", value: "8192", fixed: true, kind: "integer", short: "Shows the size of a disk block."},
	{name: "lc_collate", value: "C", fixed: true, kind: "string", short: "Shows the collation order locale."},
	{name: "lc_ctype", value: "C.UTF-8", fixed: true, kind: "string", short: "Shows the character classification and case conversion locale."},
	{name: "lc_messages", value: "C", kind: "string", only: []string{"c", ""}, short: "Sets the language in which messages are displayed."},
	{name: "lc_monetary", value: "C", kind: "string", only: []string{"c"}, short: "Sets the locale for formatting monetary amounts."},
	{name: "lc_numeric", value: "C", kind: "string", only: []string{"c"}, short: "Sets the locale for formatting numbers."},
	{name: "lc_time", value: "C", kind: "string", only: []string{"c"}, short: "Sets the locale for formatting date and time values."},
	{name: "max_connections", value: "100", fixed: true, kind: "integer", short: "Sets the maximum number of concurrent connections."},
	{name: "transaction_isolation", value: "read committed", kind: "enum", short: "Sets the current transaction's isolation level."},
	{name: "transaction_read_only", value: "off", kind: "bool", short: "Sets the current transaction's read-only status."},
	{name: "transaction_deferrable", value: "off", kind: "bool", short: "Whether to defer a read-only serializable transaction until it can be executed with no possible serialization failures."},
	{name: "session_replication_role", value: "origin", kind: "enum", only: []string{"origin"}, short: "Sets the session's behavior for triggers and rewrite rules."},
	{name: "wal_level", value: "replica", fixed: true, kind: "enum", short: "Sets the level of information written to the WAL."},
	{name: "quote_all_identifiers", value: "off", kind: "bool", only: []string{"off"}, short: "When generating SQL fragments, quote all identifiers."},
	{name: "backslash_quote", value: "safe_encoding", kind: "enum", only: []string{"safe_encoding"}, short: "Sets whether \"\\'\" is allowed in string literals."},
	{name: "xmloption", value: "content", kind: "enum", only: []string{"content"}, short: "Sets whether XML data in implicit parsing and serialization operations is to be considered as documents or content fragments."},
	{name: "synchronize_seqscans", value: "on", kind: "bool", short: "Enable synchronized sequential scans."},
	{name: engine.EpochSetting, kind: "string", short: "Epoch with which a router may TRUNCATE a guarded table."},
}

var settingByName = func() map[string]*settingDef {
	m := map[string]*settingDef{}
	for i := range settingDefs {
		m[strings.ToLower(settingDefs[i].name)] = &settingDefs[i]
	}
	return m
}()

// settings are a session's parameters.
type settings struct {
	values  map[string]string // lower-case name; only what differs from the start
	start   map[string]string
	version int               // changes when plans depend on what changed
	changed func(name string) // applies a value
	timer   *time.Timer
}

type savedSetting struct {
	name  string
	had   bool
	value string
	level int  // savepoints when it was set
	local bool // SET LOCAL: undone at commit as well
}

func (s *settings) get(name string) string {
	name = strings.ToLower(name)
	if v, ok := s.values[name]; ok {
		return v
	}
	if v, ok := s.start[name]; ok {
		return v
	}
	if d := settingByName[name]; d != nil {
		return d.value
	}
	return ""
}

func (s *settings) defaultRepeatable() bool {
	switch s.get("default_transaction_isolation") {
	case "repeatable read", "serializable":
		return true
	}
	return false
}

func (s *settings) duration(name string) time.Duration {
	v, ok := s.values[name]
	if !ok {
		if v, ok = s.start[name]; !ok {
			return 0
		}
	}
	d, _ := parseDuration(v)
	return d
}

// parseDuration reads a time in PostgreSQL's units; a bare number is milliseconds.
func parseDuration(v string) (time.Duration, bool) {
	v = strings.TrimSpace(v)
	i := 0
	for i < len(v) && (v[i] >= '0' && v[i] <= '9' || v[i] == '.' || i == 0 && v[i] == '-') {
		i++
	}
	n, err := strconv.ParseFloat(v[:i], 64)
	if err != nil || n < 0 || n > 2147483647 {
		return 0, false
	}
	unit, ok := map[string]time.Duration{"": time.Millisecond, "us": time.Microsecond, "ms": time.Millisecond, "s": time.Second,
		"min": time.Minute, "h": time.Hour, "d": 24 * time.Hour}[strings.TrimSpace(v[i:])]
	return time.Duration(n * float64(unit)).Round(time.Millisecond), ok
}

func showDuration(v string) string {
	d, _ := parseDuration(v)
	ms := d.Milliseconds()
	switch {
	case ms == 0:
		return "0"
	case ms%86400000 == 0:
		return fmt.Sprint(ms/86400000) + "d"
	case ms%3600000 == 0:
		return fmt.Sprint(ms/3600000) + "h"
	case ms%60000 == 0:
		return fmt.Sprint(ms/60000) + "min"
	case ms%1000 == 0:
		return fmt.Sprint(ms/1000) + "s"
	}
	return fmt.Sprint(ms) + "ms"
}

// normalize checks a value and returns it as PostgreSQL would show it.
func (s *settings) normalize(d *settingDef, v string) (string, error) {
	bad := func() (string, error) {
		return "", sqlstate.New(sqlstate.InvalidParameterValue, "invalid value for parameter \"%s\": \"%s\"", d.name, v)
	}
	if d.fixed {
		return "", sqlstate.New("55P02", "parameter \"%s\" cannot be changed", d.name)
	}
	switch strings.ToLower(d.name) {
	case "timezone":
		_, name, err := value.LoadZone(v)
		return name, err
	case "datestyle":
		return dateStyle(v, bad)
	case "client_encoding":
		switch strings.ToLower(strings.ReplaceAll(v, "-", "")) {
		case "utf8", "unicode":
			return "UTF8", nil
		}
		return "", sqlstate.Refusal("CLV-2162", "a SQLite shard speaks UTF8 only, not %s", v).
			WithHint("Run SET client_encoding TO UTF8.")
	case "transaction_isolation", "transaction_read_only":
		return strings.ToLower(v), nil
	}
	switch d.kind {
	case "bool":
		b, err := value.BoolIn(v)
		if err != nil {
			return "", sqlstate.New(sqlstate.InvalidParameterValue, "parameter \"%s\" requires a Boolean value", d.name)
		}
		v = map[bool]string{true: "on", false: "off"}[b]
	case "ms":
		if _, ok := parseDuration(v); !ok {
			return bad()
		}
		return showDuration(v), nil
	case "integer":
		if _, err := strconv.Atoi(strings.TrimSpace(v)); err != nil {
			return bad()
		}
		if d.name == "extra_float_digits" {
			if n, _ := strconv.Atoi(strings.TrimSpace(v)); n < 1 {
				return "", sqlstate.Refusal("CLV-2163", "a SQLite shard prints the shortest exact form of double precision only (extra_float_digits from 1)").
					WithHint("Run SET extra_float_digits TO 1.")
			}
		}
	}
	return d.oneOf(v)
}

func dateStyle(v string, bad func() (string, error)) (string, error) {
	for _, part := range strings.Split(v, ",") {
		switch strings.ToLower(strings.TrimSpace(part)) {
		case "iso", "mdy", "us":
		case "dmy", "ymd", "postgres", "sql", "german", "euro", "european", "noneuro", "noneuropean":
			return "", sqlstate.Refusal("CLV-2161", "a SQLite shard prints dates in the style ISO, MDY only").
				WithHint("Leave DateStyle as it is.")
		default:
			return bad()
		}
	}
	return "ISO, MDY", nil
}

// oneOf refuses a value that is none of those that the setting takes, if these are listed.
func (d *settingDef) oneOf(v string) (string, error) {
	if d.only == nil {
		return v, nil
	}
	if !slices.ContainsFunc(d.only, func(o string) bool { return strings.EqualFold(o, v) }) {
		return "", sqlstate.Refusal("CLV-2164", "a SQLite shard does not take %q for %s", v, d.name).
			WithHint("Accepted: %s.", strings.Join(d.only, ", "))
	}
	if d.kind == "enum" || d.kind == "bool" {
		return strings.ToLower(v), nil
	}
	return v, nil
}

// assign changes a parameter for good (until the transaction ends otherwise).
func (c *transaction) assign(name, v string, local bool) error {
	d := settingByName[strings.ToLower(name)]
	if d == nil {
		if strings.Contains(name, ".") {
			return c.store(strings.ToLower(name), v, local)
		}
		return sqlstate.New(sqlstate.UndefinedObject, "unrecognized configuration parameter \"%s\"", name)
	}
	n, err := c.settings.normalize(d, v)
	if err != nil {
		return err
	}
	switch d.name {
	case "transaction_isolation":
		c.tx.isolation = n
		c.tx.repeatable = n == "repeatable read" || n == "serializable"
		return nil
	case "transaction_read_only":
		b, err := value.BoolIn(n)
		if err != nil {
			return err
		}
		c.tx.readOnly = b
		return nil
	}
	return c.store(strings.ToLower(d.name), n, local)
}

func (c *transaction) store(name, v string, local bool) error {
	s := &c.settings
	if len(s.values) > 1000 {
		return sqlstate.New(sqlstate.ConfigurationLimit, "more than 1000 parameters are set")
	}
	old, had := s.values[name]
	inBlock := c.tx.block != txNone || c.tx.implicit
	if local && c.tx.block == txNone && !c.tx.implicit {
		c.warning(sqlstate.NoActiveTransaction, "SET LOCAL can only be used in transaction blocks")
		return nil
	}
	if inBlock {
		c.tx.local = append(c.tx.local, savedSetting{name: name, had: had, value: old, level: c.tx.saves.Len(), local: local})
	}
	s.values[name] = v
	c.settingChanged(name)
	return nil
}

// settingChanged applies a parameter's effect and reports it.
func (c *transaction) settingChanged(name string) {
	s := &c.settings
	v := s.get(name)
	switch name {
	case "timezone":
		if loc, _, err := value.LoadZone(v); err == nil {
			c.env.Loc = loc
		}
		s.version++
	case "search_path":
		c.names.Path = parsePath(v, c.names.User)
		s.version++
	}
	if d := settingByName[name]; d != nil && d.report && c.params[d.name] != v {
		c.params[d.name] = v
		c.out = wire.AppendParameterStatus(c.out, d.name, v)
	}
}

func (s *settings) restore(v savedSetting) {
	if v.had {
		s.values[v.name] = v.value
	} else {
		delete(s.values, v.name)
	}
	s.changed(v.name)
}

// commitLocal undoes SET LOCAL at the end of a committed transaction.
func (s *settings) commitLocal(t *txState) {
	seen := map[string]bool{}
	// The last plain SET of a name wins; SET LOCAL before it is forgotten.
	for i := len(t.local) - 1; i >= 0; i-- {
		v := t.local[i]
		if v.local && !seen[v.name] {
			s.restore(v)
		} else {
			seen[v.name] = true
		}
	}
	t.local = nil
}

// rollbackLocal undoes what was set since the given number of savepoints.
func (s *settings) rollbackLocal(t *txState, level int) {
	for i := len(t.local) - 1; i >= 0; i-- {
		if t.local[i].level < level {
			t.local = t.local[:i+1]
			return
		}
		s.restore(t.local[i])
	}
	t.local = nil
}

func parsePath(v, user string) []string {
	var out []string
	for _, part := range splitPath(v) {
		if part == "$user" {
			part = user
		}
		if part != "" && part != catalog.SchemaPgCatalog {
			out = append(out, part)
		}
	}
	return out
}

func splitPath(v string) []string {
	var out []string
	for len(v) > 0 {
		v = strings.TrimLeft(v, " ,\t\n")
		if v == "" {
			break
		}
		if v[0] == '"' {
			var b strings.Builder
			i := 1
			for ; i < len(v); i++ {
				if v[i] == '"' {
					if i+1 < len(v) && v[i+1] == '"' {
						i++
					} else {
						break
					}
				}
				b.WriteByte(v[i])
			}
			out = append(out, b.String())
			v = v[min(i+1, len(v)):]
			continue
		}
		i := strings.IndexAny(v, ",")
		if i < 0 {
			i = len(v)
		}
		out = append(out, strings.ToLower(strings.TrimSpace(v[:i])))
		v = v[i:]
	}
	return out
}

// planControl recognises the statements that neither read nor change rows.
func (c *Conn) planControl(raw *pg.RawStmt, text string) (*plan, error) {
	control := func(tag string, fn func(c *Conn, p *portal) error) (*plan, error) {
		return &plan{Statement: translate.Statement{Tag: tag}, text: text, kind: controlPlan, util: fn}, nil
	}
	switch s := raw.Stmt.GetNode().(type) {
	case *pg.Node_TransactionStmt:
		return planTransaction(s.TransactionStmt, control)
	case *pg.Node_VariableSetStmt:
		return planSet(s.VariableSetStmt, control)
	case *pg.Node_VariableShowStmt:
		return c.planShow(s.VariableShowStmt, text)
	case *pg.Node_DiscardStmt:
		return planDiscard(s.DiscardStmt.Target, control)
	case *pg.Node_PrepareStmt, *pg.Node_ExecuteStmt:
		return nil, value.Unsupported("PREPARE and EXECUTE as statements")
	case *pg.Node_DeallocateStmt:
		name, tag := s.DeallocateStmt.Name, "DEALLOCATE"
		if name == "" {
			tag = "DEALLOCATE ALL"
		}
		return control(tag, func(c *Conn, p *portal) error {
			if name == "" {
				c.prepared.Clear()
				return nil
			}
			_, err := c.prepared.Get([]byte(name))
			c.prepared.Drop(name)
			return err
		})
	case *pg.Node_ConstraintsSetStmt:
		return planConstraints(s.ConstraintsSetStmt, control)
	case *pg.Node_FetchStmt:
		return c.planFetch(s.FetchStmt, text)
	case *pg.Node_ClosePortalStmt:
		return planClose(s.ClosePortalStmt.Portalname, control)
	case *pg.Node_ListenStmt, *pg.Node_NotifyStmt, *pg.Node_UnlistenStmt:
		return nil, sqlstate.Refusal("CLV-2165", "LISTEN and NOTIFY is not supported on a SQLite shard").
			WithHint("Notifications go through the default shard: make a PostgreSQL shard that one (cleave shard default).")
	}
	return nil, nil
}

func planDiscard(target pg.DiscardMode, control controlFn) (*plan, error) {
	tag := map[pg.DiscardMode]string{pg.DiscardMode_DISCARD_ALL: "DISCARD ALL", pg.DiscardMode_DISCARD_PLANS: "DISCARD PLANS",
		pg.DiscardMode_DISCARD_SEQUENCES: "DISCARD SEQUENCES", pg.DiscardMode_DISCARD_TEMP: "DISCARD TEMP"}[target]
	return control(tag, func(c *Conn, p *portal) error {
		if target == pg.DiscardMode_DISCARD_ALL {
			if c.tx.block != txNone {
				return sqlstate.New(sqlstate.ActiveTransaction, "DISCARD ALL cannot run inside a transaction block")
			}
			c.prepared.Clear()
			c.resetAll()
		}
		if target != pg.DiscardMode_DISCARD_PLANS && target != pg.DiscardMode_DISCARD_TEMP {
			clear(c.currval)
		}
		return nil
	})
}

// planClose plans CLOSE of a cursor, of all without a name.
func planClose(name string, control controlFn) (*plan, error) {
	if name == "" {
		return control("CLOSE CURSOR ALL", func(c *Conn, p *portal) error {
			for name, k := range c.portals.All() {
				if k.cursor != nil {
					c.portals.Drop(name)
				}
			}
			return nil
		})
	}
	return control("CLOSE CURSOR", func(c *Conn, p *portal) error {
		if !c.portals.Drop(name) {
			return sqlstate.New(sqlstate.InvalidCursorName, "cursor \"%s\" does not exist", name)
		}
		return nil
	})
}

type controlFn func(tag string, fn func(c *Conn, p *portal) error) (*plan, error)

func planTransaction(s *pg.TransactionStmt, control controlFn) (*plan, error) {
	if s.Chain {
		return nil, value.Unsupported("AND CHAIN")
	}
	name := s.SavepointName
	switch s.Kind {
	case pg.TransactionStmtKind_TRANS_STMT_BEGIN, pg.TransactionStmtKind_TRANS_STMT_START:
		tag := "BEGIN"
		if s.Kind == pg.TransactionStmtKind_TRANS_STMT_START {
			tag = "START TRANSACTION"
		}
		return control(tag, func(c *Conn, p *portal) error {
			if c.tx.block == txOpen {
				c.warning(sqlstate.ActiveTransaction, "there is already a transaction in progress")
				return nil
			}
			c.startBlock()
			return c.transactionModes(s.Options)
		})
	case pg.TransactionStmtKind_TRANS_STMT_COMMIT:
		return control("COMMIT", func(c *Conn, p *portal) error { return c.commitBlock(p) })
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK:
		return control("ROLLBACK", func(c *Conn, p *portal) error {
			if c.tx.block == txNone {
				c.warning(sqlstate.NoActiveTransaction, "there is no transaction in progress")
			}
			c.closePortals()
			c.abandonTx()
			return nil
		})
	case pg.TransactionStmtKind_TRANS_STMT_SAVEPOINT:
		return control("SAVEPOINT", func(c *Conn, p *portal) error {
			return c.inBlock("SAVEPOINT", func() error { return c.savepoint(name) })
		})
	case pg.TransactionStmtKind_TRANS_STMT_RELEASE:
		return control("RELEASE", func(c *Conn, p *portal) error {
			return c.inBlock("RELEASE SAVEPOINT", func() error { return c.releaseSavepoint(name) })
		})
	case pg.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
		return control("ROLLBACK", func(c *Conn, p *portal) error {
			return c.inBlock("ROLLBACK TO SAVEPOINT", func() error { return c.rollbackTo(name) })
		})
	}
	return planTwoPhase(s, control)
}

// commitBlock ends a transaction block: one that failed is rolled back.
func (c *session) commitBlock(p *portal) error {
	switch c.tx.block {
	case txNone:
		c.warning(sqlstate.NoActiveTransaction, "there is no transaction in progress")
		return c.commitTx()
	case txFailed:
		p.tag = "ROLLBACK"
		c.abandonTx()
		return nil
	}
	c.keepCursors()
	c.closePortals()
	return c.commitTx()
}

// inBlock runs a statement that outside of a transaction block is an error.
func (c *session) inBlock(statement string, fn func() error) error {
	if c.tx.block == txNone {
		return sqlstate.New(sqlstate.NoActiveTransaction, "%s can only be used in transaction blocks", statement)
	}
	return fn()
}

func (c *transaction) transactionModes(opts []*pg.Node) error {
	for _, n := range opts {
		d := n.GetDefElem()
		switch d.Defname {
		case "transaction_isolation":
			if err := c.assign(d.Defname, d.Arg.GetAConst().GetSval().GetSval(), false); err != nil {
				return err
			}
		case "transaction_read_only":
			v, _ := syntax.Int(d.Arg)
			if v == 0 && c.readonly {
				continue
			}
			c.tx.readOnly = v != 0
		case "transaction_deferrable":
		}
	}
	return nil
}

func planSet(s *pg.VariableSetStmt, control controlFn) (*plan, error) {
	name := s.Name
	switch s.Kind {
	case pg.VariableSetKind_VAR_SET_MULTI:
		return planSetModes(s, control)
	case pg.VariableSetKind_VAR_RESET_ALL:
		return control("RESET", func(c *Conn, p *portal) error { c.resetAll(); return nil })
	case pg.VariableSetKind_VAR_SET_CURRENT:
		return nil, value.Unsupported("SET ... FROM CURRENT")
	case pg.VariableSetKind_VAR_RESET, pg.VariableSetKind_VAR_SET_DEFAULT:
		tag := "RESET"
		if s.Kind == pg.VariableSetKind_VAR_SET_DEFAULT {
			tag = "SET"
		}
		local := s.IsLocal
		return control(tag, func(c *Conn, p *portal) error { return c.resetOne(name, local) })
	}
	parts, err := setValues(s)
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(name, "search_path") {
		for i, p := range parts {
			if p == "" || p != strings.ToLower(p) || strings.ContainsAny(p, `", $`) && !strings.HasPrefix(p, `"`) {
				parts[i] = quote.Ident(p)
			}
		}
	}
	v := strings.Join(parts, ", ")
	local := s.IsLocal
	return control("SET", func(c *Conn, p *portal) error { return c.assign(name, v, local) })
}

// setValues are the values that SET gives.
func setValues(s *pg.VariableSetStmt) (parts []string, err error) {
	for _, a := range s.Args {
		switch {
		case a.GetAConst() != nil:
			k := a.GetAConst()
			switch v := k.Val.(type) {
			case *pg.A_Const_Sval:
				parts = append(parts, v.Sval.GetSval())
			case *pg.A_Const_Ival:
				parts = append(parts, strconv.Itoa(int(v.Ival.GetIval())))
			case *pg.A_Const_Fval:
				parts = append(parts, v.Fval.GetFval())
			case *pg.A_Const_Boolval:
				parts = append(parts, strconv.FormatBool(v.Boolval.GetBoolval()))
			}
		case a.GetTypeCast() != nil:
			text := a.GetTypeCast().Arg.GetAConst().GetSval().GetSval()
			if zone, ok := value.ZoneOfInterval(text); ok && strings.EqualFold(s.Name, "timezone") {
				parts = append(parts, zone)
				continue
			}
			return nil, sqlstate.Refusal("CLV-2166", "a SQLite shard does not take a time zone given as an interval").
				WithHint("Run SET TIME ZONE 'Europe/Berlin'.")
		default:
			return nil, value.Unsupported("this value of SET")
		}
	}
	return parts, nil
}

// planSetModes plans SET TRANSACTION and SET SESSION CHARACTERISTICS.
func planSetModes(s *pg.VariableSetStmt, control controlFn) (*plan, error) {
	name := s.Name
	switch name {
	case "TRANSACTION":
		return control("SET", func(c *Conn, p *portal) error {
			if c.tx.block == txNone {
				c.warning(sqlstate.NoActiveTransaction, "SET TRANSACTION can only be used in transaction blocks")
				return nil
			}
			return c.transactionModes(s.Args)
		})
	case "SESSION CHARACTERISTICS":
		return control("SET", func(c *Conn, p *portal) error {
			for _, n := range s.Args {
				d := n.GetDefElem()
				var v string
				if sv := d.Arg.GetAConst().GetSval(); sv != nil {
					v = sv.GetSval()
				} else if i, _ := syntax.Int(d.Arg); i != 0 {
					v = "on"
				} else {
					v = "off"
				}
				if err := c.assign("default_"+d.Defname, v, false); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return nil, value.Unsupported("SET " + name)
}

// resetOne gives a parameter the value that the session began with.
func (c *transaction) resetOne(name string, local bool) error {
	d := settingByName[strings.ToLower(name)]
	if d == nil && !strings.Contains(name, ".") {
		return sqlstate.New(sqlstate.UndefinedObject, "unrecognized configuration parameter \"%s\"", name)
	}
	if d != nil && d.fixed {
		return sqlstate.New("55P02", "parameter \"%s\" cannot be changed", d.name)
	}
	v := ""
	if d != nil {
		v = d.value
	}
	if st, ok := c.settings.start[strings.ToLower(name)]; ok {
		v = st
	}
	return c.store(strings.ToLower(name), v, local)
}

func (c *transaction) resetAll() {
	for name := range c.settings.values {
		v, had := c.settings.values[name]
		if c.tx.block != txNone || c.tx.implicit {
			c.tx.local = append(c.tx.local, savedSetting{name: name, had: had, value: v, level: c.tx.saves.Len()})
		}
		delete(c.settings.values, name)
		c.settingChanged(name)
	}
}

func (c *transaction) show(name string) (shown, value string, err error) {
	switch strings.ToLower(name) {
	case "transaction_isolation":
		if c.tx.block == txNone {
			return "transaction_isolation", c.settings.get("default_transaction_isolation"), nil
		}
		return "transaction_isolation", c.tx.isolation, nil
	case "transaction_read_only":
		v := "off"
		if c.tx.block != txNone && c.tx.readOnly || c.tx.block == txNone && c.settings.get("default_transaction_read_only") == "on" {
			v = "on"
		}
		return "transaction_read_only", v, nil
	case "session_authorization":
		return "session_authorization", c.names.User, nil
	}
	d := settingByName[strings.ToLower(name)]
	if d == nil {
		if v, ok := c.settings.values[strings.ToLower(name)]; ok {
			return strings.ToLower(name), v, nil
		}
		return "", "", sqlstate.New(sqlstate.UndefinedObject, "unrecognized configuration parameter \"%s\"", name)
	}
	return d.name, c.settings.get(d.name), nil
}

func (c *transaction) planShow(s *pg.VariableShowStmt, text string) (*plan, error) {
	col := func(names ...string) []translate.Column {
		var out []translate.Column
		for _, n := range names {
			out = append(out, translate.Column{Name: n, Type: pgoid.Text, Mod: -1, Class: value.ClassText})
		}
		return out
	}
	if strings.EqualFold(s.Name, "all") {
		return &plan{Statement: translate.Statement{Tag: "SHOW", Returns: true, Columns: col("name", "setting", "description")}, text: text, kind: controlPlan, util: func(c *Conn, p *portal) error {
			for _, n := range settingNames() {
				d := settingByName[n]
				_, v, _ := c.show(n)
				p.rows = append(p.rows, []value.Datum{value.Text(d.name), value.Text(v), value.Text(d.short)})
			}
			p.tag = "SHOW"
			return nil
		}}, nil
	}
	shown, _, err := c.show(s.Name)
	if err != nil {
		return nil, err
	}
	name := s.Name
	return &plan{Statement: translate.Statement{Tag: "SHOW", Returns: true, Columns: col(shown)}, text: text, kind: controlPlan, util: func(c *Conn, p *portal) error {
		_, v, err := c.show(name)
		p.rows, p.tag = [][]value.Datum{{value.Text(v)}}, "SHOW"
		return err
	}}, nil
}

func settingNames() []string {
	names := make([]string, 0, len(settingByName))
	for n := range settingByName {
		if !strings.Contains(n, ".") {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names
}

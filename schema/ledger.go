package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The Ops that this package writes into the map's history.
const (
	// OpChange is a schema change; its Statement is in the form of [ParseLedger].
	OpChange = "ddl"
	// OpTruncate is a TRUNCATE, which leaves nothing for a new shard to do.
	OpTruncate = "truncate"
	// OpRemoved takes tables out of the map that the change named by the ID
	// dropped, where the shards could not prepare.
	OpRemoved = "ddl_removed"
	// OpRolledBack says that the change of that ID was rolled back, by
	// somebody else than its coordinator, or after it was written to the map.
	OpRolledBack = "ddl_rolled_back"
	// OpDistribute is a table that became sharded; its Statement is what the
	// other shards received.
	OpDistribute = "distribute"
	// OpFence changes nothing: see [Fence].
	OpFence = "fence"
)

// undoID is the ID of the entry that voids a change that was written to the map
// already.
func undoID(id string) string { return id + ":undo" }

// Statement is one line of the ledger.
type Statement struct {
	Text string `json:"-"`
	// Elsewhere is what shards other than the default shard received, "" if the same.
	Elsewhere string `json:"elsewhere,omitempty"`
	// AllShards: every shard received it, else only the default shard.
	AllShards bool `json:"all_shards"`
	// Set are the session settings that the statement ran with, as SET statements.
	Set []string `json:"set,omitempty"`
	// Tables are those concerned, by qualified name, and of them: what the
	// statement creates, drops, and renames (old name to new name).
	Tables      []string          `json:"tables,omitempty"`
	Creates     []string          `json:"creates,omitempty"`
	Drops       []string          `json:"drops,omitempty"`
	DropsSchema []string          `json:"drops_schema,omitempty"`
	Renames     map[string]string `json:"renames,omitempty"`
}

// marker begins the line before each statement. It holds the change's id, which
// nobody could know when writing the statement, so no text can imitate it.
func marker(id string) string { return "-- cleave " + id + ": " }

// formatLedger writes statements as SQL that a person can read and run, each
// after a comment line with its properties as JSON.
func formatLedger(id string, statements []Statement) (string, error) {
	var b strings.Builder
	for _, s := range statements {
		props, err := json.Marshal(s)
		if err != nil {
			return "", fmt.Errorf("schema: ledger: %w", err)
		}
		b.WriteString(marker(id))
		b.Write(props)
		b.WriteByte('\n')
		b.WriteString(strings.TrimRight(s.Text, "; \t\r\n"))
		b.WriteString("\n;\n")
	}
	return b.String(), nil
}

// ParseLedger reads the statements of a history entry. It is empty for entries
// that are no schema changes. Fails with XX001 if the text is not in the ledger's form.
func ParseLedger(e shardmap.Entry) ([]Statement, error) {
	if e.Statement == "" {
		return nil, nil
	}
	mark := marker(e.ID)
	text, ok := strings.CutPrefix(e.Statement, mark)
	if !ok || e.ID == "" {
		return nil, sqlstate.New(sqlstate.DataCorrupted, "version %d of the map's history holds a statement that is not in the ledger's form", e.Version)
	}
	var out []Statement
	for _, piece := range strings.Split(text, "\n"+mark) {
		props, sql, ok := strings.Cut(piece, "\n")
		var s Statement
		if !ok {
			return nil, sqlstate.New(sqlstate.DataCorrupted, "version %d of the map's history is cut short", e.Version)
		}
		if err := json.Unmarshal([]byte(props), &s); err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.DataCorrupted, "version %d of the map's history cannot be read", e.Version)
		}
		s.Text = strings.TrimSuffix(strings.TrimRight(sql, "\n"), "\n;")
		out = append(out, s)
	}
	return out, nil
}

// SQL returns the statements of a history entry as they were written, for
// people: without the ledger's properties. What is not in the ledger's form is
// returned as it is.
func SQL(e shardmap.Entry) string {
	statements, err := ParseLedger(e)
	if err != nil || len(statements) == 0 {
		return e.Statement
	}
	texts := make([]string, len(statements))
	for i, s := range statements {
		texts[i] = s.Text
	}
	return strings.Join(texts, ";\n")
}

// historyPage is how many entries are read at a time.
const historyPage = 1000

// History reads all entries of the map's history after a version.
func History(ctx context.Context, dir shardmap.Directory, after uint64) ([]shardmap.Entry, error) {
	var all []shardmap.Entry
	for {
		page, err := dir.History(ctx, after, historyPage)
		if err != nil {
			return nil, directoryError(err)
		}
		all = append(all, page...)
		if len(page) < historyPage {
			return all, nil
		}
		after = page[len(page)-1].Version
	}
}

// inForce returns the entries with statements that were not rolled back.
func inForce(entries []shardmap.Entry) []shardmap.Entry {
	void := map[string]bool{}
	for _, e := range entries {
		if e.Op == OpRolledBack {
			void[e.ID] = true
		}
	}
	var out []shardmap.Entry
	for _, e := range entries {
		if e.Statement != "" && e.ID != "" && e.Op != OpRolledBack && !void[undoID(e.ID)] {
			out = append(out, e)
		}
	}
	return out
}

// TableLedger returns the statements that make a table what it is now, through
// its renames, oldest first; none if the table was not created through Cleave.
func TableLedger(entries []shardmap.Entry, table string) ([]Statement, error) {
	live := map[string][]Statement{}
	for _, e := range inForce(entries) {
		if e.Op == OpDistribute {
			continue // a copy of statements that are there already
		}
		statements, err := ParseLedger(e)
		if err != nil {
			return nil, err
		}
		for _, s := range statements {
			advance(live, s)
		}
	}
	return live[table], nil
}

// advance moves the ledgers of all live tables over one statement.
func advance(live map[string][]Statement, s Statement) {
	for _, name := range s.Drops {
		delete(live, name)
	}
	for _, schema := range s.DropsSchema {
		for name := range live {
			if strings.HasPrefix(name, qualified(schema, "")) {
				delete(live, name)
			}
		}
	}
	renamed := map[string]bool{}
	for old, now := range s.Renames {
		if list, ok := live[old]; ok {
			delete(live, old)
			live[now] = append(list, s)
			renamed[now] = true
		}
	}
	for _, name := range s.Creates {
		live[name] = []Statement{s}
	}
	for _, name := range s.Tables {
		if list, ok := live[name]; ok && !renamed[name] && !slices.Contains(s.Creates, name) && !slices.Contains(s.Drops, name) {
			live[name] = append(list, s)
		}
	}
}

// qualified is shardmap.Table.QualifiedName for a name that has no table yet.
// With an empty name it is the prefix of all tables of the schema.
func qualified(schema, name string) string {
	t := shardmap.Table{Schema: schema, Name: name}
	if name == "" {
		return strings.TrimSuffix(t.QualifiedName(), `""`)
	}
	return t.QualifiedName()
}

// LedgerText writes statements for a Change with that ID.
func LedgerText(id string, statements []Statement) (string, error) {
	return formatLedger(id, statements)
}

// The note that a shard keeps of the changes that it has. It is written in the
// change's own transaction, so it is there exactly if the change is.
const (
	notesSchema = "CREATE SCHEMA IF NOT EXISTS cleave_internal"
	notesTable  = engine.SchemaChangeTable
)

func noteSQL(id string) string {
	return "INSERT INTO cleave_internal.schema_change (id) VALUES (" + quote(id) + ") ON CONFLICT DO NOTHING"
}

// note writes the change's id on a shard inside its transaction. It does not create
// an existing schema or table again: IF NOT EXISTS asks for the right to create first.
func note(ctx context.Context, c engine.Conn, ids ...string) error {
	_, err := c.DescribeTable(ctx, "cleave_internal", "schema_change")
	if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
		res, _, err := run(ctx, c, "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = 'cleave_internal'")
		if err != nil {
			return err
		}
		if len(res.Rows) == 0 {
			if _, _, err := run(ctx, c, notesSchema); err != nil {
				return err
			}
		}
		if _, _, err := run(ctx, c, notesTable); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	for _, id := range ids {
		if _, _, err := run(ctx, c, noteSQL(id)); err != nil {
			return err
		}
	}
	return nil
}

// noted returns the ids that a shard has noted; none if it has no notes yet.
func noted(ctx context.Context, c engine.Conn) (map[string]bool, error) {
	if _, err := c.DescribeTable(ctx, "cleave_internal", "schema_change"); err != nil {
		if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
			return map[string]bool{}, nil
		}
		return nil, err
	}
	res, _, err := run(ctx, c, "SELECT id FROM cleave_internal.schema_change")
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(res.Rows))
	for _, row := range res.Rows {
		out[row[0].String] = true
	}
	return out, nil
}

// mark notes the transaction's id on a shard.
func (t *Tx) mark(ctx context.Context, p *part) error {
	if t.marked[p.shard] {
		return nil
	}
	if err := note(ctx, p.conn, t.id); err != nil {
		if lost(err) {
			p.broken = true
		}
		return onShard(err, p.shard)
	}
	t.marked[p.shard] = true
	return nil
}

// The settings that change what a DDL statement means.
var ledgerSettings = []string{
	"search_path", "timezone", "datestyle", "intervalstyle", "standard_conforming_strings",
	"default_tablespace", "default_table_access_method", "check_function_bodies",
}

// setting returns the name that a SET statement or set_config() sets, "" for other statements.
func setting(set string) string {
	if call, ok := strings.CutPrefix(strings.TrimSpace(set), setConfig); ok {
		name, _, _ := strings.Cut(call, "'")
		return name
	}
	words := strings.Fields(strings.ReplaceAll(local(set), "=", " = "))
	if len(words) < 3 || !strings.EqualFold(words[0], "SET") || !strings.EqualFold(words[1], "LOCAL") {
		return ""
	}
	name := strings.ToLower(strings.Trim(words[2], `"`))
	if name == "time" {
		return "timezone"
	}
	return name
}

// relevant picks the settings of a prelude that belong in the ledger.
func relevant(prelude []string) []string {
	var out []string
	for _, s := range prelude {
		if slices.Contains(ledgerSettings, setting(s)) {
			out = append(out, local(s))
		}
	}
	return out
}

// replayStatement runs one statement of the ledger with the settings it was made with.
func replayStatement(ctx context.Context, c engine.Conn, s Statement) error {
	for _, set := range s.Set {
		if _, _, err := run(ctx, c, set); err != nil {
			return err
		}
	}
	if strings.Contains(s.Text, "cleave_internal.") {
		if err := functionsOnPostgres(ctx, c); err != nil {
			return err
		}
	}
	if _, _, err := run(ctx, c, s.Text); err != nil {
		return err
	}
	for _, set := range s.Set {
		if _, _, err := run(ctx, c, "SET LOCAL "+ident(setting(set))+" TO DEFAULT"); err != nil {
			return err
		}
	}
	return nil
}

// Replay brings a new shard to the schema of the map inside the transaction that
// is open in conn: it runs the statements of the entries that all shards have, in order, skips
// those that the shard has noted already, and sets the guards of all tables as
// the snapshot has them. def says that the shard is the default shard, which
// gets the other statements as well.
func Replay(ctx context.Context, conn engine.Conn, shard string, def bool, snap *shardmap.Snapshot, entries []shardmap.Entry) error {
	have, err := noted(ctx, conn)
	if err != nil {
		return onShard(err, shard)
	}
	var ids []string
	all := inForce(entries)
	dead, err := deadStatements(all)
	if err != nil {
		return err
	}
	for _, e := range all {
		if have[e.ID] || e.Version > snap.Version() {
			continue
		}
		if err := replayEntry(ctx, conn, shard, def, e, dead); err != nil {
			return err
		}
		ids = append(ids, e.ID)
	}
	if err := note(ctx, conn, ids...); err != nil {
		return onShard(err, shard)
	}
	return SetGuards(ctx, conn, snap, shard, nil)
}

// replayEntry runs the statements of an entry that the shard gets. dead are those whose effects later ones took back.
func replayEntry(ctx context.Context, conn engine.Conn, shard string, def bool, e shardmap.Entry, dead map[deadKey]bool) error {
	statements, err := ParseLedger(e)
	if err != nil {
		return err
	}
	for i, s := range statements {
		if !s.AllShards && !def {
			continue
		}
		if s.Elsewhere != "" && !def {
			s.Text = s.Elsewhere
		}
		if dead[deadKey{e.ID, i}] {
			if err := replayDead(ctx, conn, s); err != nil {
				return onShard(err, shard)
			}
			continue
		}
		if err := replayStatement(ctx, conn, s); err != nil {
			return replayError(err, shard, e, s)
		}
	}
	return nil
}

// deadKey names a statement of the ledger: its change and its place in it.
type deadKey struct {
	id string
	n  int
}

// deadStatements are those that concern tables alone which were dropped since. A shard that cannot run
// one of them, being of another engine than those that did, lacks nothing.
func deadStatements(entries []shardmap.Entry) (map[deadKey]bool, error) {
	type life struct{ dropped bool }
	live := map[string]*life{}
	of := map[deadKey][]*life{}
	for _, e := range entries {
		statements, err := ParseLedger(e)
		if err != nil {
			return nil, err
		}
		for i, s := range statements {
			key := deadKey{e.ID, i}
			for _, name := range s.Creates {
				live[name] = &life{}
			}
			add := func(name string) {
				if live[name] == nil {
					live[name] = &life{}
				}
				if !slices.Contains(of[key], live[name]) {
					of[key] = append(of[key], live[name])
				}
			}
			for old, now := range s.Renames {
				add(old)
				live[now] = live[old]
				delete(live, old)
			}
			for _, name := range slices.Concat(s.Creates, s.Tables, s.Drops) {
				if _, renamed := s.Renames[name]; !renamed {
					add(name)
				}
			}
			for _, name := range s.Drops {
				live[name].dropped = true
				delete(live, name)
			}
			for _, schema := range s.DropsSchema {
				for name, l := range live {
					if strings.HasPrefix(name, qualified(schema, "")) {
						l.dropped = true
						delete(live, name)
					}
				}
			}
		}
	}
	dead := map[deadKey]bool{}
	for key, lives := range of {
		dead[key] = !slices.ContainsFunc(lives, func(l *life) bool { return !l.dropped })
	}
	return dead, nil
}

// replayDead runs a statement that nothing is left of: other statements may have built on it. If the shard
// refuses it, so be it.
func replayDead(ctx context.Context, c engine.Conn, s Statement) error {
	if _, _, err := run(ctx, c, "SAVEPOINT cleave_dead"); err != nil {
		return err
	}
	end := "RELEASE SAVEPOINT cleave_dead"
	if err := replayStatement(ctx, c, s); err != nil {
		if lost(err) || ctx.Err() != nil {
			return err
		}
		end = "ROLLBACK TO SAVEPOINT cleave_dead; " + end
	}
	_, _, err := run(ctx, c, end)
	return err
}

func replayError(err error, shard string, e shardmap.Entry, s Statement) error {
	err = onShard(err, shard)
	if own, ok := errors.AsType[*sqlstate.Error](err); ok {
		own.Detail = strings.TrimSpace(fmt.Sprintf("While running the change of version %d again: %s %s", e.Version, clip(s.Text), own.Detail))
		if own.Code == sqlstate.InsufficientPrivilege && own.Hint == "" {
			own.Hint = "grant what is missing to the role in the shard's URL, such as GRANT CREATE ON SCHEMA public TO ..., and run it again"
		}
	}
	return err
}

func clip(s string) string {
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "..."
	}
	return s
}

// GuardOf returns the guard that a table must carry on a shard; ok is false for
// unsharded tables, which carry none.
func GuardOf(snap *shardmap.Snapshot, t *shardmap.Table, shard string) (g engine.Guard, ok bool) {
	switch t.Kind {
	case shardmap.Sharded:
		return engine.Guard{Schema: t.Schema, Table: t.Name, ShardKey: t.ShardKey, Owned: inService(snap, shard, guarded(snap, t.Keyspace, shard))}, true
	case shardmap.Reference:
		own := keyspace.Ownership{Epoch: snap.CopiesEpoch()}
		if sh, ok := snap.Shard(shard); ok && sh.Service != shardmap.InService {
			own.Epoch = 0 // nobody writes
		}
		return engine.Guard{Schema: t.Schema, Table: t.Name, Owned: own}, true
	}
	return engine.Guard{}, false
}

// GuardsOf returns the guards of the tables of a keyspace on a shard: those of GuardOf, with one ownership in common.
func GuardsOf(snap *shardmap.Snapshot, ks, shard string) []engine.Guard {
	own := inService(snap, shard, guarded(snap, ks, shard))
	var out []engine.Guard
	tables := snap.State().Tables
	for i := range tables {
		if t := &tables[i]; t.Kind == shardmap.Sharded && t.Keyspace == ks {
			out = append(out, engine.Guard{Schema: t.Schema, Table: t.Name, ShardKey: t.ShardKey, Owned: own})
		}
	}
	return out
}

// inService is what the guards of a shard let through: nothing, if it is read-only or out of
// service. The epoch is then at least that of the change, so that such a guard differs from others.
func inService(snap *shardmap.Snapshot, shard string, own keyspace.Ownership) keyspace.Ownership {
	sh, ok := snap.Shard(shard)
	if !ok || sh.Service == shardmap.InService {
		return own
	}
	return keyspace.Ownership{Keyspace: own.Keyspace, Strategy: own.Strategy, Types: own.Types, Seed: own.Seed, Epoch: max(own.Epoch, sh.ServiceEpoch)}
}

// guarded is what the guards of a shard let through: what the map gives it, but for
// parts that are on hold, which nobody writes to. So nothing that sets guards from the
// map opens a fence. The epoch is then at least that of the hold, so that a guard with the
// part differs from one without it.
func guarded(snap *shardmap.Snapshot, ks, shard string) keyspace.Ownership {
	own := snap.Ownership(ks, shard)
	ix, ok := snap.Keyspace(ks)
	if !ok || len(ix.Holds()) == 0 {
		return own
	}
	next := snap.State().Clone()
	epoch := own.Epoch
	for _, t := range ix.Holds() {
		owner, other := ix.Sides(t)
		if owner != shard {
			continue
		}
		epoch = max(epoch, t.Epoch)
		if err := next.SetOwner(ks, t.Part, other); err != nil {
			return keyspace.Ownership{Keyspace: ks, Strategy: own.Strategy, Types: own.Types, Seed: own.Seed, Epoch: epoch} // never: the part is the map's own
		}
	}
	held, err := shardmap.NewSnapshot(next)
	if err != nil {
		return keyspace.Ownership{Keyspace: ks, Strategy: own.Strategy, Types: own.Types, Seed: own.Seed, Epoch: epoch} // never, likewise
	}
	own = held.Ownership(ks, shard)
	own.Epoch = epoch
	return own
}

// Moving reports whether a part of a keyspace on the shard is on hold, so that its guards
// are those of the move, whatever they are at the moment.
func Moving(snap *shardmap.Snapshot, ks, shard string) bool {
	ix, ok := snap.Keyspace(ks)
	if !ok {
		return false
	}
	for _, t := range ix.Holds() {
		if t.From == shard || t.To == shard {
			return true
		}
	}
	return false
}

// sameGuards reports whether what a shard's guards let through is the same in two maps, and
// no move is about to change it.
func sameGuards(a, b *shardmap.Snapshot, shard string) bool {
	for i := range b.State().Keyspaces {
		if !sameGuardsOf(a, b, b.State().Keyspaces[i].Name, shard) {
			return false
		}
	}
	return true
}

// sameGuardsOf is sameGuards of the tables of one keyspace.
func sameGuardsOf(a, b *shardmap.Snapshot, ks, shard string) bool {
	return a.Version() == b.Version() || !Moving(b, ks, shard) && reflect.DeepEqual(guarded(a, ks, shard), guarded(b, ks, shard))
}

// SetGuards sets the guards of the tables that pick accepts (nil: all), inside
// the transaction that is open in conn.
func SetGuards(ctx context.Context, conn engine.Conn, snap *shardmap.Snapshot, shard string, pick func(*shardmap.Table) bool) error {
	tables := snap.State().Tables
	for i := range tables {
		t := &tables[i]
		if pick != nil && !pick(t) {
			continue
		}
		if g, ok := GuardOf(snap, t, shard); ok {
			if err := conn.SetGuard(ctx, g); err != nil {
				return onShard(err, shard)
			}
		}
	}
	return nil
}

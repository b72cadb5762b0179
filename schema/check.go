package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/serverdependent"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// chosen is the keyspace of a new sharded table.
type chosen struct {
	name string
	made *shardmap.Keyspace // nil if it exists
}

// chooseKeyspace finds the keyspace of a shard key as the shard describes it, or
// makes the default one of its types. missing are the key columns that lack NOT NULL.
func chooseKeyspace(snap *shardmap.Snapshot, desc *engine.Table, key []string, name string, rangesPerShard int) (c chosen, missing []string, err error) {
	return chooseKeyspaceOn(snap, desc, key, name, nil, rangesPerShard)
}

// chooseKeyspaceOn is chooseKeyspace; one that is made has so many ranges on these shards. nil are
// those that constraints leave open, with so many ranges each.
func chooseKeyspaceOn(snap *shardmap.Snapshot, desc *engine.Table, key []string, name string, shards []shardmap.Shard, ranges int) (c chosen, missing []string, err error) {
	types, missing, err := keyTypes(desc, key)
	if err != nil {
		return c, nil, err
	}
	c.name = name
	if name == "" {
		c.name = shardmap.DefaultKeyspaceName(types)
	}
	if ix, ok := snap.Keyspace(c.name); ok {
		def := ix.Def()
		if slices.Equal(def.Types, types) && (name != "" || def.Strategy == keyspace.Hash) {
			return c, missing, nil
		}
		return c, nil, &sqlstate.Error{
			Code: sqlstate.DatatypeMismatch, Keyspace: c.name, Schema: desc.Schema, Table: desc.Name,
			Message: fmt.Sprintf("the shard key of %s is (%s), keyspace %s is a %s keyspace of (%s)", qualified(desc.Schema, desc.Name), typeNames(types), c.name, def.Strategy, typeNames(def.Types)),
			Hint:    "choose a keyspace of those types with cleave.keyspace = 'name'; see: SELECT * FROM cleave.keyspaces",
		}
	}
	if name != "" {
		return c, nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", name).
			WithHint("create it first: SELECT cleave.create_keyspace('%s', 'hash', ARRAY['%s']), or leave cleave.keyspace out", name, strings.Join(typeList(types), "', '"))
	}
	if shards == nil {
		shards = snap.OpenShards(c.name)
		ranges *= len(shards)
	}
	made, err := shardmap.NewHashKeyspace(c.name, types, shards, ranges)
	if err != nil {
		return c, nil, err
	}
	c.made = &made
	return c, missing, nil
}

func typeList(types []keyspace.Type) []string {
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = t.String()
	}
	return out
}

func typeNames(types []keyspace.Type) string { return strings.Join(typeList(types), ", ") }

// columnNames are a table's columns, for people.
func columnNames(desc *engine.Table) string {
	const most = 20
	var names []string
	for i := range desc.Columns {
		if i == most {
			return strings.Join(names, ", ") + fmt.Sprintf(" and %d more", len(desc.Columns)-most)
		}
		names = append(names, desc.Columns[i].Name)
	}
	return strings.Join(names, ", ")
}

// keyTypes returns the key types of a shard key's columns.
func keyTypes(desc *engine.Table, key []string) (types []keyspace.Type, missing []string, err error) {
	table := qualified(desc.Schema, desc.Name)
	if len(key) == 0 {
		return nil, nil, sqlstate.New(sqlstate.InvalidTableDefinition, "table %s has no shard key", table).
			WithHint("name the columns: WITH (cleave.shard_key = 'a, b')")
	}
	for i, name := range key {
		if slices.Contains(key[:i], name) {
			return nil, nil, sqlstate.New(sqlstate.DuplicateColumn, "column %q is twice in the shard key", name)
		}
		c := column(desc, name)
		if c == nil {
			return nil, nil, &sqlstate.Error{Code: sqlstate.UndefinedColumn, Schema: desc.Schema, Table: desc.Name, Column: name,
				Message: fmt.Sprintf("shard key column %q of table %s does not exist", name, table), Hint: "its columns are " + columnNames(desc)}
		}
		t, err := keyType(desc, c)
		if err != nil {
			return nil, nil, err
		}
		if !c.NotNull {
			missing = append(missing, name)
		}
		types = append(types, t)
	}
	return types, missing, nil
}

// keyType is the key type of a column, of those whose values say where a row is.
func keyType(desc *engine.Table, c *engine.Column) (keyspace.Type, error) {
	t, ok := keyspace.TypeByOID(c.OID)
	switch {
	case !ok:
		hint := "The key types are smallint, integer, bigint, text, varchar, uuid, date, timestamp, timestamptz, bytea and boolean."
		if _, err := keyspace.ParseType(c.Type); err != nil {
			if own := sqlstate.As(err); own.Hint != "" {
				hint = own.Hint
			}
		}
		return t, keyError(desc, c.Name, sqlstate.Refusal("CLV-0901", "column %q is %s, which cannot be a shard key", c.Name, c.Type).
			WithHint("%s", hint))
	case !c.Deterministic && (t == keyspace.Text || t == keyspace.Varchar):
		return t, keyError(desc, c.Name, sqlstate.Refusal("CLV-0902", "column %q has a nondeterministic collation: keys that are equal there could be on different shards", c.Name).
			WithHint(`Declare the column with COLLATE "C" or another deterministic collation.`))
	case c.Generated:
		return t, keyError(desc, c.Name, sqlstate.Refusal("CLV-0903", "column %q is generated, so its value is not in the statement that has to be routed", c.Name).
			WithHint("Shard by the columns that it is made from."))
	case (t == keyspace.Timestamp || t == keyspace.Timestamptz) && strings.Contains(c.Type, "("):
		return t, keyError(desc, c.Name, sqlstate.Refusal("CLV-0904", "column %q rounds what is written to it (%s), so its place is not known before", c.Name, c.Type).
			WithHint("Declare it without a precision."))
	}
	return t, nil
}

func keyError(desc *engine.Table, column string, e *sqlstate.Error) error {
	e.Schema, e.Table, e.Column = desc.Schema, desc.Name, column
	return e
}

func column(desc *engine.Table, name string) *engine.Column {
	for i := range desc.Columns {
		if desc.Columns[i].Name == name {
			return &desc.Columns[i]
		}
	}
	return nil
}

// CheckTable refuses what the shards together could not keep: each sees only its
// own rows. desc is the table as a shard describes it, table as the map would have it.
func CheckTable(snap *shardmap.Snapshot, table *shardmap.Table, desc *engine.Table) error {
	return first(checkTable(snap, table, desc))
}

// first is the first of some errors, nil if there is none.
func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// checkTable is CheckTable with all that it refuses.
func checkTable(snap *shardmap.Snapshot, table *shardmap.Table, desc *engine.Table) (found []error) {
	refuse := func(constraint string, e *sqlstate.Error) {
		e.Message = "table " + table.QualifiedName() + ": " + e.Message
		e.Schema, e.Table, e.Constraint = table.Schema, table.Name, constraint
		found = append(found, e)
	}
	for _, fk := range desc.ForeignKeys {
		if e := foreignKey(snap, table, fk); e != nil {
			refuse(fk.Name, e)
		}
	}
	if table.Kind == shardmap.Whole {
		return found
	}
	if desc.Partitioned {
		refuse("", sqlstate.Refusal("CLV-0905", "a partitioned table cannot be %s", string(table.Kind)).
			WithHint("Leave PARTITION BY out: the shard key divides the rows already."))
	}
	if desc.Inherits {
		refuse("", sqlstate.Refusal("CLV-0906", "a table that inherits, or is inherited from, cannot be %s", string(table.Kind)).
			WithHint("Declare the columns in the table itself."))
	}
	for _, c := range desc.Columns {
		if g, _ := generatedBy(c.Default); g != "" {
			continue
		}
		if c.Identity || strings.Contains(c.Default, "nextval(") {
			refuse("", sqlstate.Refusal("CLV-0502", "column %q takes its values from a sequence, and each shard has its own: values would repeat", c.Name).
				WithHint("Let the router give the values: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT cleave.next_id(), or a sequence made through the router; see docs/ids.md."))
			continue
		}
		if what := serverdependent.InDefault(c.Default, c.Type); c.Default != "" && what != "" {
			refuse("", sqlstate.Refusal("CLV-0907", "the default of column %q says %s, which is another on each shard", c.Name, what).
				WithHint("Give the column another default: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT 'a constant', or DROP DEFAULT."))
		}
	}
	if table.Kind != shardmap.Sharded {
		return found
	}
	for _, u := range desc.Unique {
		if e := uniqueOnShard(table, u); e != nil {
			refuse(u.Name, e)
		}
	}
	return found
}

// uniqueOnShard refuses a unique constraint that a shard cannot keep by itself, since it does not include the shard key.
func uniqueOnShard(table *shardmap.Table, u engine.UniqueKey) *sqlstate.Error {
	i := slices.IndexFunc(table.ShardKey, func(k string) bool { return !slices.Contains(u.Columns, k) })
	if i < 0 {
		return nil
	}
	what := "unique constraint or index " + ident(u.Name)
	if u.Primary {
		what = "the primary key"
	}
	return sqlstate.Refusal("CLV-0908", "%s does not include the shard key column %q, so no shard can see whether a value is unique", what, table.ShardKey[i]).
		WithHint("Add the shard key to it: (%s, ...).", strings.Join(table.ShardKey, ", "))
}

// foreignKey says why a foreign key cannot be kept, "" if it can.
func foreignKey(snap *shardmap.Snapshot, table *shardmap.Table, fk engine.ForeignKey) *sqlstate.Error {
	ref, known := snap.Table(fk.RefSchema, fk.RefTable)
	if fk.RefSchema == table.Schema && fk.RefTable == table.Name {
		ref, known = table, true
	}
	kind := shardmap.Whole
	if known {
		kind = ref.Kind
	}
	to := qualified(fk.RefSchema, fk.RefTable)
	switch {
	case kind == shardmap.Reference:
		return nil // every shard has all its rows
	case table.Kind == shardmap.Whole && kind == shardmap.Whole:
		return nil
	case table.Kind != shardmap.Sharded || kind != shardmap.Sharded:
		return sqlstate.Refusal("CLV-0909", "foreign key %s from a %s table to %s, which is %s: no shard has the rows of both", ident(fk.Name), table.Kind.Word(), to, kind.Word()).
			WithHint("Make %s a reference table, or shard both tables by the same key.", to)
	case ref.Keyspace != table.Keyspace:
		return sqlstate.Refusal("CLV-0910", "foreign key %s leads to %s in another keyspace (%s, not %s)", ident(fk.Name), to, ref.Keyspace, table.Keyspace).
			WithHint("Put both tables into one keyspace, and the shard key into the foreign key.")
	}
	for i, k := range table.ShardKey {
		at := slices.Index(fk.Columns, k)
		if at < 0 || at >= len(fk.RefColumns) || fk.RefColumns[at] != ref.ShardKey[i] {
			return sqlstate.Refusal("CLV-0911", "foreign key %s to %s does not match the shard keys column by column, so the referenced row could be on another shard", ident(fk.Name), to).
				WithHint("Write FOREIGN KEY (%s, ...) REFERENCES %s (%s, ...).", strings.Join(table.ShardKey, ", "), to, strings.Join(ref.ShardKey, ", "))
		}
	}
	return nil
}

// sameKey refuses changes of the shard key's columns: rows would be in the wrong place.
func sameKey(was, is *shardmap.Table, desc *engine.Table) error {
	for i, name := range is.ShardKey {
		c := column(desc, name)
		if c == nil {
			return keyError(desc, name, sqlstate.Refusal("CLV-0912", "shard key column %q of table %s cannot be dropped", name, was.QualifiedName()).
				WithHint("Create a table with another shard key and copy the rows."))
		}
		for _, old := range was.Columns {
			if old.Name == was.ShardKey[i] && (old.Type != c.Type || old.OID != c.OID) {
				return keyError(desc, name, sqlstate.Refusal("CLV-0913", "the type of shard key column %q of table %s cannot be changed", name, was.QualifiedName()).
					WithHint("Create a table with the other type and copy the rows."))
			}
		}
		if !c.NotNull {
			return keyError(desc, name, sqlstate.Refusal("CLV-0914", "shard key column %q of table %s must stay NOT NULL", name, was.QualifiedName()).
				WithHint("A row without a shard key has no place."))
		}
	}
	_, _, err := keyTypes(desc, is.ShardKey)
	return err
}

// renamedColumn finds the column that an ALTER TABLE ... RENAME renamed: exactly
// one name differs, at the same place. The text is asked as well, because
// dropping the last column and adding another looks the same in the catalogue.
func renamedColumn(text string, was, is []shardmap.Column) (from, to string, ok bool) {
	if !isRename(text) || len(was) != len(is) {
		return "", "", false
	}
	for i := range was {
		if was[i].Name == is[i].Name {
			continue
		}
		if ok {
			return "", "", false
		}
		from, to, ok = was[i].Name, is[i].Name, true
	}
	return from, to, ok
}

// isRename reports whether a statement is ALTER TABLE name RENAME ...: RENAME
// cannot be combined with other actions, so it is the word after the name.
func isRename(text string) bool {
	w := words(text, 16)
	i := 0
	next := func(s string) bool {
		if i < len(w) && w[i] == s {
			i++
			return true
		}
		return false
	}
	if !next("alter") || !next("table") {
		return false
	}
	if next("if") && !next("exists") {
		return false
	}
	next("only")
	i++ // the name, or its schema
	for next(".") {
		i++
	}
	next("*")
	return next("rename")
}

// uniqueIndex reports whether a statement is CREATE UNIQUE INDEX, and the columns
// that it names; "" stands for an expression.
func uniqueIndex(text string) (bool, []string) {
	w := words(text, 4096)
	if len(w) < 3 || w[0] != "create" || w[1] != "unique" {
		return false, nil
	}
	i := slices.Index(w, "(")
	if i < 0 {
		return true, nil
	}
	var columns []string
	depth, first := 1, true
	for _, word := range w[i+1:] {
		switch {
		case word == "(":
			depth++
			if depth == 2 && len(columns) > 0 {
				columns[len(columns)-1] = "" // a function, an expression
			}
		case word == ")":
			depth--
		case word == "," && depth == 1:
			first = true
			continue
		}
		if depth == 0 {
			break
		}
		if first {
			name := strings.TrimPrefix(word, `"`)
			if word == "(" {
				name = ""
			}
			columns, first = append(columns, name), false
		}
	}
	return true, columns
}

// words splits SQL into at most limit lower-cased words, quoted names (marked by a leading quote),
// literals and single signs, leaving comments out.
func words(s string, limit int) []string {
	var out []string
	scan(s, func(word string, _, _ int) bool {
		out = append(out, word)
		return len(out) < limit
	})
	return out
}

// withoutConcurrently takes the first CONCURRENTLY out of a statement, which then
// does the same inside a transaction.
func withoutConcurrently(text string) string {
	out := text
	scan(text, func(word string, start, end int) bool {
		if word == "concurrently" {
			out = text[:start] + strings.TrimLeft(text[end:], " ")
			return false
		}
		return true
	})
	return out
}

// scan gives the words of SQL, with their places, until f returns false.
func scan(text string, f func(word string, start, end int) bool) {
	s := text
	for len(s) > 0 {
		start := len(text) - len(s)
		switch c := s[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			s = s[1:]
			continue
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
			continue
		case strings.HasPrefix(s, "/*"):
			s = skipComment(s)
			continue
		case c == '"' || c == '\'':
			n := 1
			for n < len(s) {
				if s[n] == c {
					if n+1 < len(s) && s[n+1] == c {
						n += 2
						continue
					}
					break
				}
				n++
			}
			word := string(c) + strings.ReplaceAll(s[1:min(n, len(s))], string(c)+string(c), string(c))
			s = s[min(n+1, len(s)):]
			if !f(word, start, len(text)-len(s)) {
				return
			}
		case isWord(c):
			n := 1
			for n < len(s) && (isWord(s[n]) || s[n] == '$') {
				n++
			}
			word := strings.ToLower(s[:n])
			s = s[n:]
			if !f(word, start, len(text)-len(s)) {
				return
			}
		default:
			word := s[:1]
			s = s[1:]
			if !f(word, start, len(text)-len(s)) {
				return
			}
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// skipComment returns what follows a comment, which may hold others.
func skipComment(s string) string {
	depth := 0
	for len(s) > 0 {
		switch {
		case strings.HasPrefix(s, "/*"):
			depth++
			s = s[2:]
		case strings.HasPrefix(s, "*/"):
			depth--
			s = s[2:]
			if depth == 0 {
				return s
			}
		default:
			s = s[1:]
		}
	}
	return s
}

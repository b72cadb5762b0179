package shardmap

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/sqlstate"
)

// ErrInvalid is wrapped by every error that [NewSnapshot] returns: the state
// contradicts itself or breaks a bound, and nothing was stored.
var ErrInvalid = errors.New("the shard map would be invalid")

// Bounds of a map. They are far above what one cluster needs, and keep a broken
// or hostile stored form from taking a process down.
const (
	// MaxShards bounds the shards of a cluster.
	MaxShards = 4096
	// MaxKeyspaces bounds the keyspaces.
	MaxKeyspaces = 4096
	// MaxTables bounds the tables.
	MaxTables = 100_000
	// MaxAssignments bounds ranges, listed values and pins of all keyspaces together.
	MaxAssignments = 1 << 20
	// MaxKeyColumns bounds the columns of a shard key: as many as an index of
	// PostgreSQL can have.
	MaxKeyColumns = 32
	// MaxKeyBytes bounds the text of one key column value, bytes. A longer one
	// does not fit PostgreSQL's indexes either.
	MaxKeyBytes = 8 << 10
	// MaxNameBytes bounds names, bytes: PostgreSQL's NAMEDATALEN less one.
	MaxNameBytes = 63

	maxURLBytes   = 8 << 10
	maxLabels     = 64
	maxLabelBytes = 256
	maxColumns    = 1600 // PostgreSQL's MaxHeapAttributeNumber
	maxTypeBytes  = 1 << 10
)

func invalid(code sqlstate.Code, format string, args ...any) *sqlstate.Error {
	return &sqlstate.Error{Code: code, Message: fmt.Sprintf(format, args...), Op: "shard map", Err: ErrInvalid}
}

// index validates s.state and fills the look-ups. It may bring key texts to
// their canonical form, so the state must not be shared yet.
func (s *Snapshot) index() error {
	st := &s.state
	if st.Format != Format {
		return formatError(st.Format)
	}
	if err := checkName("a cluster", st.Cluster, true); err != nil {
		return err
	}
	if st.SchemaVersion > st.Version {
		return invalid(sqlstate.InvalidObjectDefinition, "schema version %d is above the map's version %d", st.SchemaVersion, st.Version)
	}
	if err := st.checkCounts(); err != nil {
		return err
	}
	if err := s.indexShards(); err != nil {
		return err
	}
	s.keyspaces = make(map[string]*Index, len(st.Keyspaces))
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		if err := checkName("a keyspace", k.Name, false); err != nil {
			return err
		}
		if _, dup := s.keyspaces[k.Name]; dup {
			return invalid(sqlstate.DuplicateObject, "keyspace %q is there twice", k.Name)
		}
		ix, err := s.indexKeyspace(k)
		if err != nil {
			err.Keyspace = k.Name
			return err
		}
		s.keyspaces[k.Name] = ix
	}
	s.numberUnits()
	if err := s.checkTransits(); err != nil {
		return err
	}
	if err := s.indexConstraints(); err != nil {
		return err
	}
	s.tables = make(map[tableName]*Table, len(st.Tables))
	for i := range st.Tables {
		t := &st.Tables[i]
		name := tableName{t.Schema, t.Name}
		if _, dup := s.tables[name]; dup {
			return invalid(sqlstate.DuplicateTable, "table %s is there twice", t.QualifiedName())
		}
		if err := s.checkTable(t); err != nil {
			err.Schema, err.Table = t.Schema, t.Name
			return err
		}
		s.tables[name] = t
	}
	if err := s.indexSequences(); err != nil {
		return err
	}
	if err := s.indexObjects(); err != nil {
		return err
	}
	return nil
}

// checkCounts refuses a map with more of something than one can hold.
func (st *State) checkCounts() error {
	for _, b := range []struct {
		what    string
		is, max int
	}{
		{"shards", len(st.Shards), MaxShards},
		{"keyspaces", len(st.Keyspaces), MaxKeyspaces},
		{"tables", len(st.Tables), MaxTables},
		{"sequences", len(st.Sequences), MaxTables},
		{"views", len(st.Views), MaxTables},
		{"functions", len(st.Functions), MaxFunctions},
		{"declarations", len(st.Declarations), MaxTables},
		{"ranges, listed values and pins", assignments(st), MaxAssignments},
	} {
		if b.is > b.max {
			return invalid(sqlstate.ProgramLimitExceeded, "%d %s are more than the %d that a map can hold", b.is, b.what, b.max)
		}
	}
	return nil
}

func formatError(format int) *sqlstate.Error {
	err := invalid(sqlstate.ObjectNotInState, "the stored shard map has format %d, this program knows format %d", format, Format)
	if format > Format {
		return err.WithHint("run the newer release that wrote it (cleave version prints this one), or start an empty cluster: cleave up --data NEW_FOLDER")
	}
	return err.WithHint("start an empty cluster: cleave up --data NEW_FOLDER")
}

func assignments(st *State) int {
	n := 0
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		n += len(k.Ranges) + len(k.Values) + len(k.Pins)
	}
	return n
}

// checkName accepts what can be written as a PostgreSQL identifier without
// surprises (letters, digits, underscore), and the hyphen, since shards are
// named shard-0 and labels of machines contain it.
func checkName(what, name string, digitFirst bool) *sqlstate.Error {
	bad := name == "" || len(name) > MaxNameBytes
	for i := 0; i < len(name) && !bad; i++ {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case c >= '0' && c <= '9':
			bad = i == 0 && !digitFirst
		case c == '-':
			bad = i == 0
		default:
			bad = true
		}
	}
	if !bad {
		return nil
	}
	return invalid(sqlstate.InvalidParameterValue, "%q cannot be the name of %s", clip(name), what).
		WithHint("use 1 to %d letters, digits, hyphens and underscores, beginning with a letter", MaxNameBytes)
}

// clip keeps hostile input out of messages.
func clip(s string) string {
	if len(s) <= 80 {
		return s
	}
	return strings.ToValidUTF8(s[:80], "") + "..."
}

// checkIdentifier accepts everything that PostgreSQL can hold as a name.
func checkIdentifier(what, name string) *sqlstate.Error {
	if name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
		return invalid(sqlstate.InvalidParameterValue, "%q cannot be the name of %s", clip(name), what).
			WithHint("a name has 1 to %d bytes of UTF-8", MaxNameBytes)
	}
	return nil
}

func (s *Snapshot) indexShards() error {
	st := &s.state
	s.shards = make(map[string]*Shard, len(st.Shards))
	// Names that differ in case alone would share one file on file systems
	// that ignore case.
	folded := make(map[string]string, len(st.Shards))
	for i := range st.Shards {
		sh := &st.Shards[i]
		if err := checkName("a shard", sh.Name, false); err != nil {
			return err
		}
		fold := strings.ToLower(sh.Name)
		if other, dup := folded[fold]; dup {
			err := invalid(sqlstate.DuplicateObject, "shard %q is there twice", sh.Name)
			if other != sh.Name {
				err = invalid(sqlstate.DuplicateObject, "shards %q and %q differ in case alone", other, sh.Name)
			}
			return err.WithHint("list the shards with \"cleave shard list\" and choose another name")
		}
		folded[fold] = sh.Name
		if err := checkShard(sh); err != nil {
			err.Shard = sh.Name
			return err
		}
		s.shards[sh.Name] = sh
		s.restricted = s.restricted || sh.Service != InService
		s.draining = s.draining || sh.Drain != ""
	}
	if _, ok := s.shards[st.DefaultShard]; !ok {
		return invalid(sqlstate.UndefinedObject, "the default shard %q is not one of the shards", clip(st.DefaultShard)).
			WithHint("list the shards with \"cleave shard list\"")
	}
	return nil
}

func checkShard(sh *Shard) *sqlstate.Error {
	if err := checkName("an engine", sh.Engine, false); err != nil {
		return err
	}
	if math.IsNaN(sh.Weight) || math.IsInf(sh.Weight, 0) || sh.Weight <= 0 {
		return invalid(sqlstate.InvalidParameterValue, "the weight of shard %q is %v; it must be a number above 0", sh.Name, sh.Weight)
	}
	// A URL is never printed: it may hold a password.
	for _, url := range sh.Endpoints() {
		if !plainText(url, maxURLBytes) {
			return invalid(sqlstate.InvalidParameterValue, "the URL of shard %q is longer than %d bytes or has characters that no URL has", sh.Name, maxURLBytes)
		}
	}
	if err := checkReplicas(sh); err != nil {
		return err
	}
	if err := checkService(sh); err != nil {
		return err
	}
	if !plainText(sh.Drain, maxDrainBytes) {
		return invalid(sqlstate.InvalidParameterValue, "the drain of shard %q is longer than %d bytes or has control characters", sh.Name, maxDrainBytes)
	}
	if len(sh.Labels) > maxLabels {
		return invalid(sqlstate.ProgramLimitExceeded, "shard %q has %d labels; %d are allowed", sh.Name, len(sh.Labels), maxLabels)
	}
	for k, v := range sh.Labels {
		if !plainText(k, maxLabelBytes) || !plainText(v, maxLabelBytes) {
			return invalid(sqlstate.InvalidParameterValue, "label %q of shard %q is longer than %d bytes or has control characters", clip(k), sh.Name, maxLabelBytes)
		}
		if k == "" {
			return invalid(sqlstate.InvalidParameterValue, "shard %q has a label without a name", sh.Name)
		}
	}
	return nil
}

// plainText reports whether a text is at most so long, and is UTF-8 without control characters.
func plainText(text string, max int) bool {
	return len(text) <= max && utf8.ValidString(text) && !strings.ContainsFunc(text, isControl)
}

// checkOwner checks the shard and the epoch of one assignment.
func (s *Snapshot) checkOwner(what, shard string, epoch uint64) *sqlstate.Error {
	if _, ok := s.shards[shard]; !ok {
		return invalid(sqlstate.UndefinedObject, "%s belongs to shard %q, which is not one of the shards", what, clip(shard)).
			WithHint("list the shards with \"cleave shard list\", or add it with \"cleave shard add\"")
	}
	if epoch > s.state.Version {
		err := invalid(sqlstate.InvalidObjectDefinition, "%s has epoch %d, which is above the map's version %d", what, epoch, s.state.Version)
		err.Epoch = epoch
		return err
	}
	return nil
}

func (s *Snapshot) indexKeyspace(k *Keyspace) (*Index, *sqlstate.Error) {
	if len(k.Types) == 0 || len(k.Types) > MaxKeyColumns {
		return nil, invalid(sqlstate.InvalidObjectDefinition, "keyspace %q has %d key columns; 1 to %d are allowed", k.Name, len(k.Types), MaxKeyColumns)
	}
	for _, t := range k.Types {
		if t < keyspace.Int2 || t > keyspace.Bool {
			return nil, invalid(sqlstate.InvalidObjectDefinition, "keyspace %q has a key column of no known type", k.Name)
		}
	}
	if k.Strategy != keyspace.Hash && k.Seed != 0 {
		return nil, invalid(sqlstate.InvalidObjectDefinition, "keyspace %q has a hash seed, but its strategy is %s", k.Name, k.Strategy)
	}
	ix := &Index{def: k}
	var err *sqlstate.Error
	switch k.Strategy {
	case keyspace.Hash:
		err = s.indexHash(ix)
	case keyspace.Range:
		err = s.indexRanges(ix)
	case keyspace.List:
		err = s.indexValues(ix)
	default:
		return nil, invalid(sqlstate.InvalidObjectDefinition, "keyspace %q has the unknown strategy %q", k.Name, clip(string(k.Strategy))).
			WithHint("the strategies are hash, range and list")
	}
	if err == nil {
		err = s.indexPins(ix)
	}
	return ix, err
}

// checkChain checks what hash and range keyspaces have in common: at least one
// range, open ends outside, a bound inside, each High the next one's Low.
func (s *Snapshot) checkChain(k *Keyspace, canonical func([]string) *sqlstate.Error) *sqlstate.Error {
	if len(k.Values) > 0 {
		return invalid(sqlstate.InvalidObjectDefinition, "keyspace %q lists values, but its strategy is %s", k.Name, k.Strategy)
	}
	n := len(k.Ranges)
	if n == 0 {
		return invalid(sqlstate.InvalidObjectDefinition, "keyspace %q has no ranges", k.Name)
	}
	for i := range k.Ranges {
		r := &k.Ranges[i]
		for _, bound := range [][]string{r.Low, r.High} {
			if bound == nil {
				continue
			}
			if err := canonical(bound); err != nil {
				err.Range = boundsText(r.Low, r.High)
				return err
			}
		}
		text := boundsText(r.Low, r.High)
		fail := func(code sqlstate.Code, format string, args ...any) *sqlstate.Error {
			err := invalid(code, format, args...)
			err.Range = text
			return err
		}
		if err := s.checkOwner("range "+text+" of keyspace \""+k.Name+"\"", r.Shard, r.Epoch); err != nil {
			return err
		}
		if i == 0 && r.Low != nil {
			return fail(sqlstate.InvalidObjectDefinition, "keyspace %q does not cover what is below %s", k.Name, keyText(r.Low))
		}
		if i == n-1 {
			if r.High != nil {
				return fail(sqlstate.InvalidObjectDefinition, "keyspace %q does not cover what is from %s on", k.Name, keyText(r.High))
			}
			continue
		}
		if r.High == nil {
			return fail(sqlstate.InvalidObjectDefinition, "range %d of keyspace %q has no upper bound, but ranges follow", i, k.Name)
		}
		next := k.Ranges[i+1].Low
		if next == nil {
			return fail(sqlstate.InvalidObjectDefinition, "range %d of keyspace %q has no lower bound, but ranges precede", i+1, k.Name)
		}
		if err := canonical(next); err != nil {
			err.Range = boundsText(next, k.Ranges[i+1].High)
			return err
		}
		if !slices.Equal(r.High, next) {
			return fail(sqlstate.InvalidObjectDefinition, "keyspace %q has a gap or an overlap: a range ends at %s and the next begins at %s",
				k.Name, keyText(r.High), keyText(next))
		}
	}
	return nil
}

func orderError(k *Keyspace, i int) *sqlstate.Error {
	r := &k.Ranges[i]
	err := invalid(sqlstate.InvalidObjectDefinition, "the ranges of keyspace %q are not in order: %s begins at or below the lower bound of the range before it",
		k.Name, boundsText(r.Low, r.High))
	err.Range = boundsText(r.Low, r.High)
	return err
}

// positionBound parses a bound of a hash keyspace and makes its text canonical.
func positionBound(k *Keyspace, bound []string) (int64, *sqlstate.Error) {
	if len(bound) != 1 {
		return 0, invalid(sqlstate.InvalidObjectDefinition, "a bound of hash keyspace %q has %d values; it is one position", k.Name, len(bound))
	}
	n, err := strconv.ParseInt(bound[0], 10, 64)
	if err != nil {
		return 0, invalid(sqlstate.InvalidTextRepresentation, "%q is not a position of hash keyspace %q", clip(bound[0]), k.Name).
			WithHint("a position is a whole number from %d to %d", int64(math.MinInt64), int64(math.MaxInt64))
	}
	bound[0] = strconv.FormatInt(n, 10)
	return n, nil
}

// keyBound parses a bound of a range keyspace and makes its texts canonical.
func keyBound(k *Keyspace, bound []string) (keyspace.Key, *sqlstate.Error) {
	if len(bound) == 0 || len(bound) > len(k.Types) {
		return nil, invalid(sqlstate.InvalidObjectDefinition, "a bound of keyspace %q has %d values; 1 to %d are allowed", k.Name, len(bound), len(k.Types))
	}
	return parseKey(k, k.Types[:len(bound)], bound)
}

func (s *Snapshot) indexHash(ix *Index) *sqlstate.Error {
	k := ix.def
	canonical := func(bound []string) *sqlstate.Error {
		_, err := positionBound(k, bound)
		return err
	}
	if err := s.checkChain(k, canonical); err != nil {
		return err
	}
	lows := make([]uint64, len(k.Ranges)-1)
	for i := range lows {
		n, err := strconv.ParseInt(k.Ranges[i+1].Low[0], 10, 64)
		// Nothing is below the smallest number, so it bounds nothing.
		if err != nil || n == math.MinInt64 || i > 0 && flip(n) <= lows[i-1] {
			return orderError(k, i+1)
		}
		lows[i] = flip(n)
	}
	ix.lows = newLadder(lows)
	return nil
}

func (s *Snapshot) indexRanges(ix *Index) *sqlstate.Error {
	k := ix.def
	canonical := func(bound []string) *sqlstate.Error {
		_, err := keyBound(k, bound)
		return err
	}
	if err := s.checkChain(k, canonical); err != nil {
		return err
	}
	n := len(k.Ranges)
	ix.lowValues = make([]keyspace.Key, n)
	lows := make([]string, n-1)
	for i := 1; i < n; i++ {
		key, err := parseKey(k, k.Types[:len(k.Ranges[i].Low)], k.Ranges[i].Low)
		if err != nil {
			return err
		}
		enc := string(keyspace.AppendOrdered(nil, key))
		if enc == "" || i > 1 && enc <= lows[i-2] {
			return orderError(k, i)
		}
		ix.lowValues[i], lows[i-1] = key, enc
	}
	ix.bounds = newBounds(lows)
	return nil
}

// parseKey parses the texts of a key or bound and replaces them by their
// canonical form.
func parseKey(k *Keyspace, types []keyspace.Type, texts []string) (keyspace.Key, *sqlstate.Error) {
	for _, t := range texts {
		// The stored form is JSON, which would change other bytes silently.
		if len(t) > MaxKeyBytes || !utf8.ValidString(t) {
			return nil, invalid(sqlstate.InvalidTextRepresentation, "a key of keyspace %q is longer than %d bytes or is not UTF-8", k.Name, MaxKeyBytes)
		}
	}
	key, err := keyspace.ParseKey(types, texts)
	if err != nil {
		code, hint := sqlstate.InvalidTextRepresentation, ""
		var cause *sqlstate.Error
		if errors.As(err, &cause) {
			code, hint = cause.Code, cause.Hint
			err = errors.New(cause.Message)
		}
		bad := invalid(code, "%s is not a key (%s) of keyspace %q: %v", clip(keyText(texts)), typeList(types), k.Name, err)
		bad.Hint = hint
		return nil, bad
	}
	copy(texts, key.Texts())
	return key, nil
}

// parseWhole is parseKey for a key with all its columns.
func parseWhole(k *Keyspace, texts []string) (keyspace.Key, *sqlstate.Error) {
	if len(texts) != len(k.Types) {
		return nil, invalid(sqlstate.InvalidObjectDefinition, "%s is not a key of keyspace %q: it has %d values, not %d",
			clip(keyText(texts)), k.Name, len(texts), len(k.Types))
	}
	return parseKey(k, k.Types, texts)
}

func (s *Snapshot) indexValues(ix *Index) *sqlstate.Error {
	k := ix.def
	if len(k.Ranges) > 0 {
		return invalid(sqlstate.InvalidObjectDefinition, "keyspace %q has ranges, but its strategy is list", k.Name)
	}
	ix.values = make(map[string]int32, len(k.Values))
	ix.valueKeys = make([]keyspace.Key, len(k.Values))
	for i := range k.Values {
		v := &k.Values[i]
		if err := ix.addKey("value", ix.values, ix.valueKeys, i, v.Key); err != nil {
			return err
		}
		if err := s.checkOwner("value "+keyText(v.Key)+" of keyspace \""+k.Name+"\"", v.Shard, v.Epoch); err != nil {
			return err
		}
	}
	return nil
}

func (s *Snapshot) indexPins(ix *Index) *sqlstate.Error {
	k := ix.def
	ix.pins = make(map[string]int32, len(k.Pins))
	ix.pinKeys = make([]keyspace.Key, len(k.Pins))
	for i := range k.Pins {
		p := &k.Pins[i]
		if err := ix.addKey("pin", ix.pins, ix.pinKeys, i, p.Key); err != nil {
			return err
		}
		if err := s.checkOwner("pin "+keyText(p.Key)+" of keyspace \""+k.Name+"\"", p.Shard, p.Epoch); err != nil {
			return err
		}
	}
	return nil
}

func (ix *Index) addKey(what string, places map[string]int32, keys []keyspace.Key, i int, texts []string) *sqlstate.Error {
	key, err := parseWhole(ix.def, texts)
	if err != nil {
		return err
	}
	enc := string(keyspace.AppendOrdered(nil, key))
	if _, dup := places[enc]; dup {
		return invalid(sqlstate.DuplicateObject, "%s %s is there twice in keyspace %q", what, clip(keyText(texts)), ix.def.Name)
	}
	places[enc], keys[i] = int32(i), key
	return nil
}

func (s *Snapshot) checkTable(t *Table) *sqlstate.Error {
	if err := checkIdentifier("a schema", t.Schema); err != nil {
		return err
	}
	if err := checkIdentifier("a table", t.Name); err != nil {
		return err
	}
	if len(t.Columns) > maxColumns {
		return invalid(sqlstate.ProgramLimitExceeded, "table %s has %d columns; %d are allowed", t.QualifiedName(), len(t.Columns), maxColumns)
	}
	columns := make(map[string]*Column, len(t.Columns))
	for i := range t.Columns {
		c := &t.Columns[i]
		if err := checkIdentifier("a column", c.Name); err != nil {
			return err
		}
		if _, dup := columns[c.Name]; dup {
			return invalid(sqlstate.DuplicateColumn, "table %s has column %q twice", t.QualifiedName(), c.Name)
		}
		if c.Type == "" || len(c.Type) > maxTypeBytes || !utf8.ValidString(c.Type) {
			return invalid(sqlstate.InvalidTableDefinition, "column %q of table %s has no valid type name", c.Name, t.QualifiedName())
		}
		columns[c.Name] = c
	}
	switch t.Kind {
	case Whole, Reference:
		if t.Keyspace != "" || len(t.ShardKey) > 0 {
			return invalid(sqlstate.InvalidTableDefinition, "table %s is %s, so it cannot have a keyspace or a shard key", t.QualifiedName(), t.Kind)
		}
		return nil
	case Sharded:
		return s.checkShardKey(t, columns)
	}
	return invalid(sqlstate.InvalidTableDefinition, "table %s is of the unknown kind %q", t.QualifiedName(), clip(string(t.Kind)))
}

func (s *Snapshot) checkShardKey(t *Table, columns map[string]*Column) *sqlstate.Error {
	ix, ok := s.keyspaces[t.Keyspace]
	if !ok {
		return invalid(sqlstate.UndefinedObject, "table %s is in keyspace %q, which does not exist", t.QualifiedName(), clip(t.Keyspace)).
			WithHint("list the keyspaces with \"cleave keyspace list\", or make it with \"SELECT cleave.create_keyspace(...)\"")
	}
	types := ix.def.Types
	if len(t.ShardKey) != len(types) {
		return invalid(sqlstate.InvalidTableDefinition, "the shard key of table %s has %d columns, keyspace %q has %d (%s)",
			t.QualifiedName(), len(t.ShardKey), t.Keyspace, len(types), typeList(types))
	}
	for i, name := range t.ShardKey {
		c, ok := columns[name]
		if !ok {
			return invalid(sqlstate.UndefinedColumn, "the shard key column %q of table %s does not exist", clip(name), t.QualifiedName())
		}
		if slices.Contains(t.ShardKey[:i], name) {
			return invalid(sqlstate.DuplicateColumn, "the shard key of table %s names column %q twice", t.QualifiedName(), name)
		}
		is, known := columnType(c)
		if !known || is != types[i] {
			err := invalid(sqlstate.DatatypeMismatch, "the shard key column %q of table %s is %s, keyspace %q has %s there",
				name, t.QualifiedName(), clip(c.Type), t.Keyspace, types[i]).
				WithHint("choose a keyspace of that type, or leave the keyspace out: the default one of the shard key's types is made")
			err.Column = name
			return err
		}
	}
	return nil
}

// columnType is the shard key type of a column. The OID decides where the shard
// has told it, since a type name alone can be another schema's.
func columnType(c *Column) (keyspace.Type, bool) {
	if c.OID != 0 {
		return keyspace.TypeByOID(c.OID)
	}
	t, err := keyspace.ParseType(c.Type)
	return t, err == nil
}

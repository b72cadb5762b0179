package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// What the halves of a range are to have alike.
const (
	SplitByPositions = "positions" // of a hash keyspace
	SplitByRows      = "rows"
	SplitByLoad      = "load"
)

// SplitPoint is a range to be cut in halves.
type SplitPoint struct {
	Snapshot *shardmap.Snapshot
	Keyspace string
	Part     shardmap.Part
	// By is SplitByPositions, SplitByRows or SplitByLoad; "" is positions in a hash keyspace, else rows.
	By string
	// Heat is the load, for SplitByLoad.
	Heat *shardmap.Heat
	// Connect opens a conversation with a shard; release must follow.
	Connect func(ctx context.Context, shard string) (conn engine.Conn, release func(broken bool), err error)
}

// SplitPointBy is by what ranges of a keyspace are cut in halves, if nothing ("") was said.
func SplitPointBy(snap *shardmap.Snapshot, ks, by string) string {
	if by != "" {
		return by
	}
	if ix, ok := snap.Keyspace(ks); ok && ix.Def().Strategy == keyspace.Hash {
		return SplitByPositions
	}
	return SplitByRows
}

const (
	// exactRows is up to how many rows of the keyspace on a PostgreSQL shard the middle is the
	// exact one; of more, so many are sampled.
	exactRows = 200_000
	// quantiles is into how many pieces of equal rows a range is cut to find where its load is.
	quantiles = 16
)

// Bound finds the bound that cuts the range in halves. Errors: 42704 for an unknown keyspace,
// 22023 for a part that is no range of one shard, 0A000 in a list keyspace, 55000 if the range has no
// rows, or no load, or one key has more than half.
func (h *SplitPoint) Bound(ctx context.Context) ([]string, error) {
	ix, ok := h.Snapshot.Keyspace(h.Keyspace)
	if !ok {
		return nil, sqlstate.New(sqlstate.UndefinedObject, "keyspace %q does not exist", h.Keyspace).WithHint("see: cleave keyspace list")
	}
	def := ix.Def()
	if def.Strategy == keyspace.List {
		return nil, sqlstate.Refusal("CLV-1414", "keyspace %s lists its keys: there is no range to cut", h.Keyspace).
			WithHint("Move keys one by one: cleave move --keyspace %s --key KEY --to SHARD.", h.Keyspace)
	}
	by := SplitPointBy(h.Snapshot, h.Keyspace, h.By)
	unit := -1
	for i := range def.Ranges {
		if slices.Equal(def.Ranges[i].Low, h.Part.Low) && slices.Equal(def.Ranges[i].High, h.Part.High) {
			unit = i
		}
	}
	if unit < 0 {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "keyspace %s has no range %s", h.Keyspace, h.Part.Text()).
			WithHint("see: SELECT * FROM cleave.ranges WHERE keyspace = '%s'", h.Keyspace)
	}
	switch by {
	case SplitByPositions:
		return Middle(h.Snapshot, h.Keyspace, h.Part)
	case SplitByRows, SplitByLoad:
	default:
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "a range is cut in halves by rows, load or positions, not by %q", by)
	}
	if by == SplitByLoad {
		return h.byLoad(ctx, ix, unit)
	}
	s, n, err := h.several(ctx, ix, unit)
	if err != nil {
		return nil, err
	}
	defer s.close()
	at, err := s.row(ctx, h.Part, n/2, false)
	if err != nil {
		return nil, err
	}
	return s.inside(ctx, at)
}

func (h *SplitPoint) none(format string, args ...any) error {
	return sqlstate.New(sqlstate.ObjectNotInState, format, args...).WithHint("name the bound: cleave split --keyspace %s --at KEY", h.Keyspace)
}

// rowsOf asks a shard for the keys of a range.
type rowsOf struct {
	h       *SplitPoint
	ix      *shardmap.Index
	conn    engine.Conn
	release func(broken bool)
	tables  []engine.MoveTable
	sample  string // of each table, "" is all rows
	pg      bool
}

// several opens the rows of a unit, and counts them. A single one cannot be cut.
func (h *SplitPoint) several(ctx context.Context, ix *shardmap.Index, unit int) (s *rowsOf, n int64, err error) {
	if s, err = h.open(ctx, ix, ix.Def().Ranges[unit].Shard); err != nil {
		return nil, 0, err
	}
	if n, err = s.count(ctx, s.part()); err == nil && n < 2 {
		err = h.none("%s of keyspace %s has %d rows", h.Part.Text(), h.Keyspace, n)
	}
	if err != nil {
		s.close()
		return nil, 0, err
	}
	return s, n, nil
}

func (h *SplitPoint) open(ctx context.Context, ix *shardmap.Index, shard string) (*rowsOf, error) {
	tables, _ := Tables(h.Snapshot, h.Keyspace)
	if len(tables) == 0 {
		return nil, h.none("keyspace %s has no tables", h.Keyspace)
	}
	conn, release, err := h.Connect(ctx, shard)
	if err != nil {
		return nil, err
	}
	s := &rowsOf{h: h, ix: ix, conn: conn, release: release, tables: tables}
	if sh, ok := h.Snapshot.Shard(shard); ok && sh.Can().Styles {
		s.pg = true
		if err := s.prepare(ctx); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// close gives the conversation up: its settings are not those of others.
func (s *rowsOf) close() { s.release(true) }

// prepare has a PostgreSQL shard write keys as they are read, and says how many rows to look at.
func (s *rowsOf) prepare(ctx context.Context) error {
	if _, err := engine.ExecContext(ctx, s.conn, "SET datestyle = 'ISO'; SET timezone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 1"); err != nil {
		return err
	}
	var names []string
	for i := range s.tables {
		names = append(names, keyspace.Quote(quoted(s.tables[i].Schema)+"."+quoted(s.tables[i].Name))+"::pg_catalog.regclass")
	}
	res, err := engine.ExecContext(ctx, s.conn, "SELECT pg_catalog.sum(greatest(reltuples, 0))::bigint::text FROM pg_catalog.pg_class WHERE oid IN ("+strings.Join(names, ", ")+")")
	if err != nil {
		return err
	}
	if n, err := strconv.ParseFloat(res.Rows[0][0].String, 64); err == nil && n > exactRows {
		s.sample = fmt.Sprintf(" TABLESAMPLE SYSTEM (%g) REPEATABLE (7)", 100*exactRows/n)
	}
	return nil
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// from is a subquery of the keys of rows, in columns k0, k1, ...: the position in a hash keyspace.
func (s *rowsOf) from(keys *keyspace.Ownership) string {
	def := s.ix.Def()
	var all []string
	for i := range s.tables {
		t := &s.tables[i]
		var columns []string
		for _, c := range t.ShardKey {
			columns = append(columns, quoted(c))
		}
		var list []string
		if def.Strategy == keyspace.Hash {
			list = []string{keyspace.KeyHashExpr(def.Types, columns, def.Seed) + " AS k0"}
		} else {
			for n, c := range columns {
				list = append(list, c+" AS k"+strconv.Itoa(n))
			}
		}
		all = append(all, "SELECT "+strings.Join(list, ", ")+" FROM "+quoted(t.Schema)+"."+quoted(t.Name)+s.sample+" WHERE "+keyspace.Condition(keys, columns))
	}
	return "(" + strings.Join(all, " UNION ALL ") + ") AS x"
}

// part are the keys of the range that is cut.
func (s *rowsOf) part() *keyspace.Ownership {
	keys := s.h.Snapshot.Keys(s.h.Keyspace, s.h.Part)
	return &keys
}

func (s *rowsOf) count(ctx context.Context, keys *keyspace.Ownership) (int64, error) {
	res, err := engine.ExecContext(ctx, s.conn, "SELECT count(*) FROM "+s.from(keys))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(res.Rows[0][0].String, 10, 64)
}

// row returns the key of the row at a place of a part, or of its distinct keys, nil if there
// are not so many.
func (s *rowsOf) row(ctx context.Context, p shardmap.Part, place int64, distinct bool) ([]string, error) {
	list, order, group := s.columns()
	keys := s.h.Snapshot.Keys(s.h.Keyspace, p)
	sql := "SELECT " + list + " FROM " + s.from(&keys)
	if distinct {
		sql = "SELECT " + list + " FROM (SELECT DISTINCT " + group + " FROM " + s.from(&keys) + ") AS y"
	}
	res, err := engine.ExecContext(ctx, s.conn, sql+" ORDER BY "+order+" LIMIT 1 OFFSET "+strconv.FormatInt(place, 10))
	if err != nil || len(res.Rows) == 0 {
		return nil, err
	}
	return s.key(res.Rows[0])
}

// columns are those of from as texts, what orders rows by them, and themselves.
func (s *rowsOf) columns() (texts, order, own string) {
	def := s.ix.Def()
	n := len(def.Types)
	if def.Strategy == keyspace.Hash {
		n = 1
	}
	var list, by, all []string
	for i := range n {
		k := "k" + strconv.Itoa(i)
		// Names of their own: ORDER BY would take the output column of that name, which is text.
		list, all = append(list, k+"::text AS t"+strconv.Itoa(i)), append(all, k)
		if def.Strategy != keyspace.Hash && def.Types[i].IsText() {
			k += `::text COLLATE "C"`
		}
		by = append(by, k)
	}
	return strings.Join(list, ", "), strings.Join(by, ", "), strings.Join(all, ", ")
}

// key is a row of those texts as the map writes a bound.
func (s *rowsOf) key(row []engine.Text) ([]string, error) {
	def := s.ix.Def()
	n := len(def.Types)
	if def.Strategy == keyspace.Hash {
		n = 1
	}
	out := make([]string, n)
	for i := range out {
		out[i] = row[i].String
	}
	if def.Strategy == keyspace.Hash {
		return out, nil
	}
	key, err := keyspace.ParseKey(def.Types, out)
	if err != nil {
		return nil, err
	}
	return key.Texts(), nil
}

// inside returns the bound, or the next key if it would leave the lower half without any: then
// the first key has more than half of the rows.
func (s *rowsOf) inside(ctx context.Context, at []string) ([]string, error) {
	least, err := s.row(ctx, s.h.Part, 0, false)
	if err != nil {
		return nil, err
	}
	if at != nil && !slices.Equal(at, least) {
		return at, nil
	}
	if at, err = s.row(ctx, s.h.Part, 1, true); err != nil {
		return nil, err
	}
	if at == nil {
		return nil, s.h.none("%s of keyspace %s has one key only", s.h.Part.Text(), s.h.Keyspace)
	}
	return at, nil
}

// spot is a hot key in the order of a range: a share of its width, from 0 to 1.
type spot struct {
	at   float64
	low  []string // the bound that has it above, and high that has it below; nil: none
	high []string
	load float64
}

// byLoad cuts where half of the load is below: hot keys are where they are, the rest is spread
// evenly over the positions of a hash keyspace, or over the rows of a range.
func (h *SplitPoint) byLoad(ctx context.Context, ix *shardmap.Index, unit int) ([]string, error) {
	rest := 0.0
	if h.Heat != nil {
		rest = h.Heat.Statements[ix.FirstUnit()+unit]
	}
	if rest <= 0 {
		return nil, h.none("no load is known of %s of keyspace %s", h.Part.Text(), h.Keyspace)
	}
	hot := map[string]keyspace.Key{}
	loads := map[string]float64{}
	for _, k := range h.Heat.Keys {
		key, err := keyspace.ParseKey(ix.Def().Types, k.Key)
		if k.Keyspace != h.Keyspace || err != nil {
			continue
		}
		if a, err := ix.Locate(key); err == nil && a.Range == unit {
			id := strings.Join(key.Texts(), "\x00")
			hot[id], loads[id] = key, min(k.Statements, rest)
			rest -= loads[id]
		}
	}
	if ix.Def().Strategy == keyspace.Hash {
		iv := h.Snapshot.Keys(h.Keyspace, h.Part).Intervals[0]
		last := iv.High
		if iv.Last {
			last = math.MaxInt64
		}
		width := float64(uint64(last) - uint64(iv.Low))
		var spots []spot
		for id, key := range hot {
			pos := keyspace.HashKey(ix.Def().Seed, key)
			s := spot{at: float64(uint64(pos)-uint64(iv.Low)) / width, load: loads[id]}
			if pos > iv.Low {
				s.low = []string{strconv.FormatInt(pos, 10)}
			}
			if pos < last-1 {
				s.high = []string{strconv.FormatInt(pos+1, 10)}
			}
			spots = append(spots, s)
		}
		share, bound := halfOf(spots, rest)
		if bound == nil {
			bound = []string{strconv.FormatInt(iv.Low+int64(uint64(share*width)), 10)}
		}
		if n, err := strconv.ParseInt(bound[0], 10, 64); err != nil || n <= iv.Low || n >= last {
			return nil, h.none("the load of %s of keyspace %s cannot be halved", h.Part.Text(), h.Keyspace)
		}
		return bound, nil
	}
	s, n, err := h.several(ctx, ix, unit)
	if err != nil {
		return nil, err
	}
	defer s.close()
	// The keys that cut the rows into equal pieces, in order.
	var cuts []keyspace.Key
	for i := range int64(quantiles - 1) {
		at, err := s.row(ctx, h.Part, n*(i+1)/quantiles, false)
		if err != nil {
			return nil, err
		}
		if at == nil {
			continue
		}
		key, err := keyspace.ParseKey(ix.Def().Types, at)
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, key)
	}
	best, least := []string(nil), math.Inf(1)
	try := func(at keyspace.Key) {
		below := 0.0
		for _, c := range cuts {
			if keyspace.CompareKeys(c, at) <= 0 {
				below += rest / quantiles
			}
		}
		for id, key := range hot {
			if keyspace.CompareKeys(key, at) < 0 {
				below += loads[id]
			}
		}
		all := rest
		for _, l := range loads {
			all += l
		}
		if off := math.Abs(below - all/2); off < least {
			best, least = at.Texts(), off
		}
	}
	for _, c := range cuts {
		try(c)
	}
	for _, key := range hot {
		try(key)
	}
	return s.inside(ctx, best)
}

// halfOf returns the share of the width below which half of the load is, or the bound beside a
// hot key that comes nearest.
func halfOf(spots []spot, rest float64) (share float64, bound []string) {
	slices.SortFunc(spots, func(a, b spot) int { return cmp.Compare(a.at, b.at) })
	all := rest
	for _, s := range spots {
		all += s.load
	}
	below := 0.0 // of hot keys
	for _, s := range spots {
		if below+rest*s.at >= all/2 {
			break // it lies in the even part before
		}
		if below+s.load+rest*s.at > all/2 {
			// The key is in the middle: it goes to the side that is lighter without it.
			if all/2-(below+rest*s.at) < below+s.load+rest*s.at-all/2 && s.low != nil || s.high == nil {
				return s.at, s.low
			}
			return s.at, s.high
		}
		below += s.load
	}
	if rest <= 0 {
		return 0.5, nil
	}
	return min(1, max(0, (all/2-below)/rest)), nil
}

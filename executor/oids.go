package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// A user-defined type or table has an OID of its own on each shard. Clients see
// those of the default shard, whose catalogue they read, and they send those. So
// what goes between a client and another shard is translated, where it has an OID
// that is not PostgreSQL's own: see Pipeline for messages, binary.go for values.
// What an OID stands for elsewhere is found by name, once.

// FirstUserOID is the first OID that differs between shards (FirstNormalObjectId of
// transam.h).
const FirstUserOID = 16384

const (
	oidUnknown = 705 // what a client is told of a type that the default shard does not have

	oidsMax = 16384 // entries of one oids; it begins anew when it is full
	// learnMax bounds asking for types, tablesMax for the tables of columns, which stay untold
	// for learnPause if they cannot be asked for. Who waited meanwhile does not try again within failedFor.
	learnMax   = 5 * time.Second
	tablesMax  = time.Second
	learnPause = 5 * time.Second
	failedFor  = time.Second
)

// catalog is a catalogue that OIDs are of.
type catalog uint8

const (
	ofType catalog = iota
	ofTable
	ofFunction
	ofOperator
	ofRole
	ofSchema
	ofCollation
	ofConfig
	ofDictionary
)

// otherCatalogs are those of which an object is known by what pg_identify_object says of it: a
// relation that lists them, and the OID of the catalogue.
var otherCatalogs = map[catalog]struct {
	relation string
	class    uint32
}{
	ofFunction: {"pg_proc", 1255}, ofOperator: {"pg_operator", 2617}, ofRole: {"pg_roles", 1260}, ofSchema: {"pg_namespace", 2615},
	ofCollation: {"pg_collation", 3456}, ofConfig: {"pg_ts_config", 3602}, ofDictionary: {"pg_ts_dict", 3600},
}

// object is an OID with its catalogue.
type object struct {
	in  catalog
	oid uint32
}

// known is what an object is on the other side.
type known struct {
	oid uint32 // there; 0: it does not exist there
	// kind says how binary values of a type are made: 'a' array, 'c' composite, 'r'
	// range, 'm' multirange, 'd' domain, 's' anything else; elem is the type of its
	// elements, bounds or base, an OID of this side.
	kind byte
	elem uint32
	// attrs are the numbers of a table's columns there, nil if they are the same.
	attrs map[int16]int16
}

// oids translates between one shard and the default shard, while the schema is one
// and the same. Methods are safe for concurrent use.
type oids struct {
	ex     *Executor
	shard  string
	home   string // the default shard
	where  string // both shards' URLs
	schema uint64
	blind  bool // the default shard is of an engine that has no user-defined types

	snap     atomic.Pointer[shardmap.Snapshot] // the last one that it was found to be good for
	absent   atomic.Int64                      // when what was not found is asked for again, Unix nanoseconds; 0: all was found
	untold   atomic.Int64                      // until when no tables are asked for, Unix nanoseconds
	learning sync.Mutex
	failed   error // of the last learn, at failedAt; under learning
	failedAt time.Time

	mu  sync.RWMutex
	out map[object]known // of the shard's
	in  map[object]known // of the default shard's
}

// numbersOf is where what translates for a shard is kept.
func (e *Executor) numbersOf(shard string) *numbers {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, ok := e.numbers[shard]
	if !ok {
		n = &numbers{ex: e, shard: shard}
		if e.numbers == nil {
			e.numbers = map[string]*numbers{}
		}
		e.numbers[shard] = n
	}
	return n
}

// numbers keeps what translates for a shard under the current map.
type numbers struct {
	ex    *Executor
	shard string
	now   atomic.Pointer[oids]
}

// current is what translates for the shard; nil if nothing has to be.
func (n *numbers) current() *oids {
	snap := n.ex.Snapshot()
	home := snap.State().DefaultShard
	if home == n.shard {
		return nil
	}
	o := n.now.Load()
	if o != nil {
		// A type that is made changes no table of the map. All is asked for again, since a value may be
		// half translated by what is known now.
		if at := o.absent.Load(); at != 0 && time.Now().UnixNano() > at {
			o = nil
		}
	}
	if o != nil && o.snap.Load() == snap {
		return o
	}
	a, ok := snap.Shard(n.shard)
	b, there := snap.Shard(home)
	if !ok || !there || !a.Can().ObjectIDs {
		return nil
	}
	where := a.URL + " " + b.URL
	if o == nil || o.schema != snap.SchemaVersion() || o.home != home || o.where != where {
		o = &oids{ex: n.ex, shard: n.shard, home: home, where: where, schema: snap.SchemaVersion(), blind: !b.Can().ObjectIDs, out: map[object]known{}, in: map[object]known{}}
		n.now.Store(o)
	}
	o.snap.Store(snap)
	return o
}

// roomy is current, begun anew if it is full.
func (n *numbers) roomy(o *oids) *oids {
	o.mu.RLock()
	full := len(o.out)+len(o.in) > oidsMax
	o.mu.RUnlock()
	if !full {
		return o
	}
	next := &oids{ex: o.ex, shard: o.shard, home: o.home, where: o.where, schema: o.schema, blind: o.blind, out: map[object]known{}, in: map[object]known{}}
	next.snap.Store(o.snap.Load())
	n.now.Store(next)
	return next
}

// get looks up an object of the shard's, or, with in, of the default shard's.
func (o *oids) get(x object, in bool) (known, bool) {
	if o.blind {
		return known{kind: 's'}, true
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	if in {
		k, ok := o.in[x]
		return k, ok
	}
	k, ok := o.out[x]
	return k, ok
}

// learn asks both shards for objects that are not known yet. Errors: those of
// borrowing a connection, and of the shards; nothing is known then.
func (o *oids) learn(wanted []object, in bool, limit time.Duration) error {
	o.learning.Lock()
	defer o.learning.Unlock()
	if o.failed != nil && time.Since(o.failedAt) < failedFor {
		return o.failed
	}
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	o.failed = o.learned(ctx, wanted, in)
	o.failedAt = time.Now()
	return o.failed
}

func (o *oids) learned(ctx context.Context, wanted []object, in bool) error {
	lists := map[catalog][]uint32{}
	for _, x := range wanted {
		if _, ok := o.get(x, in); !ok {
			lists[x.in] = append(lists[x.in], x.oid)
		}
	}
	here, there := o.shard, o.home
	if in {
		here, there = there, here
	}
	for c, list := range lists {
		slices.Sort(list)
		list = slices.Compact(list)
		var err error
		switch c {
		case ofType:
			err = o.learnTypes(ctx, here, there, list, in)
		case ofTable:
			err = o.learnTables(ctx, here, there, list, in)
		default:
			err = o.learnOthers(ctx, here, there, c, list, in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *oids) learnTypes(ctx context.Context, here, there string, list []uint32, in bool) error {
	// The array type that comes with a type has a name of PostgreSQL's choice.
	res, err := o.ex.ask(ctx, here, `SELECT t.oid, n.nspname, coalesce(e.typname, t.typname), e.oid IS NOT NULL,
CASE WHEN e.oid IS NOT NULL THEN 'a' WHEN t.typtype IN ('c', 'd', 'r', 'm') THEN t.typtype::text ELSE 's' END,
coalesce(e.oid, CASE t.typtype WHEN 'd' THEN t.typbasetype
	WHEN 'r' THEN (SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngtypid = t.oid)
	WHEN 'm' THEN (SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngmultitypid = t.oid) END, 0)
FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
JOIN pg_catalog.pg_namespace n ON n.oid = coalesce(e.typnamespace, t.typnamespace) WHERE n.nspname NOT LIKE 'pg\_temp\_%' AND t.oid IN (`+joined(list)+")") // of that name another session's may be there
	if err != nil {
		return err
	}
	found := make([]known, len(res.Rows))
	var names []string
	for i, r := range res.Rows {
		found[i] = known{kind: r[4].String[0], elem: number32(r[5].String)}
		names = append(names, fmt.Sprintf("(%d, %s::name, %s::name, '%s'::bool)", i, QuoteLiteral(r[1].String), QuoteLiteral(r[2].String), r[3].String))
	}
	if len(names) > 0 {
		there, err := o.ex.ask(ctx, there, `SELECT k.i, CASE WHEN k.arr THEN t.typarray ELSE t.oid END FROM (VALUES `+strings.Join(names, ", ")+`) k(i, schema, name, arr)
JOIN pg_catalog.pg_namespace n ON n.nspname = k.schema JOIN pg_catalog.pg_type t ON t.typnamespace = n.oid AND t.typname = k.name`)
		if err != nil {
			return err
		}
		for _, r := range there.Rows {
			found[number32(r[0].String)].oid = number32(r[1].String)
		}
	}
	o.note(ofType, list, in, func(note func(uint32, known)) {
		for i, r := range res.Rows {
			note(number32(r[0].String), found[i])
		}
	})
	return nil
}

func (o *oids) learnTables(ctx context.Context, here, there string, list []uint32, in bool) error {
	const columns = `(SELECT pg_catalog.string_agg(a.attnum::text || ' ' || a.attname, pg_catalog.chr(1) ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)`
	res, err := o.ex.ask(ctx, here, `SELECT c.oid, n.nspname, c.relname, `+columns+`
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname NOT LIKE 'pg\_temp\_%' AND c.oid IN (`+joined(list)+")")
	if err != nil {
		return err
	}
	found := make([]known, len(res.Rows))
	var names []string
	for i, r := range res.Rows {
		names = append(names, fmt.Sprintf("(%d, %s::name, %s::name)", i, QuoteLiteral(r[1].String), QuoteLiteral(r[2].String)))
	}
	if len(names) > 0 {
		there, err := o.ex.ask(ctx, there, `SELECT k.i, c.oid, `+columns+` FROM (VALUES `+strings.Join(names, ", ")+`) k(i, schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = k.schema JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = k.name`)
		if err != nil {
			return err
		}
		for _, r := range there.Rows {
			i := number32(r[0].String)
			found[i] = known{oid: number32(r[1].String), attrs: renumbered(res.Rows[i][3].String, r[2].String)}
		}
	}
	o.note(ofTable, list, in, func(note func(uint32, known)) {
		for i, r := range res.Rows {
			note(number32(r[0].String), found[i])
		}
	})
	return nil
}

func (o *oids) learnOthers(ctx context.Context, here, there string, c catalog, list []uint32, in bool) error {
	from := fmt.Sprintf("SELECT c.oid, i.identity FROM pg_catalog.%s c, pg_catalog.pg_identify_object(%d, c.oid, 0) i WHERE ", otherCatalogs[c].relation, otherCatalogs[c].class)
	res, err := o.ex.ask(ctx, here, from+"c.oid IN ("+joined(list)+")")
	if err != nil {
		return err
	}
	numbers := map[string]uint32{}
	if len(res.Rows) > 0 {
		var names []string
		for _, r := range res.Rows {
			names = append(names, QuoteLiteral(r[1].String))
		}
		there, err := o.ex.ask(ctx, there, from+fmt.Sprintf("c.oid >= %d AND i.identity IN (%s)", FirstUserOID, strings.Join(names, ", ")))
		if err != nil {
			return err
		}
		for _, r := range there.Rows {
			numbers[r[1].String] = number32(r[0].String)
		}
	}
	o.note(c, list, in, func(note func(uint32, known)) {
		for _, r := range res.Rows {
			note(number32(r[0].String), known{kind: 's', oid: numbers[r[1].String]})
		}
	})
	return nil
}

// note keeps what was found; the rest of the list does not exist.
func (o *oids) note(c catalog, list []uint32, in bool, found func(note func(uint32, known))) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.out
	if in {
		m = o.in
	}
	for _, oid := range list {
		m[object{c, oid}] = known{kind: 's'}
	}
	found(func(oid uint32, k known) { m[object{c, oid}] = k })
	for _, oid := range list {
		if m[object{c, oid}].oid == 0 {
			o.absent.CompareAndSwap(0, time.Now().Add(absentFor).UnixNano())
		}
	}
}

// absentFor is for how long a type or table that one side does not have is taken not to be there.
const absentFor = 5 * time.Second

// renumbered are the numbers that a table's columns have there, by those here; nil
// if they are the same. A list has "number name" for each column, with chr(1) between them.
func renumbered(here, there string) map[int16]int16 {
	if here == there {
		return nil
	}
	split := func(list string, each func(n int16, name string)) {
		for _, c := range strings.Split(list, "\x01") {
			n, name, _ := strings.Cut(c, " ")
			if v, err := strconv.ParseInt(n, 10, 16); err == nil {
				each(int16(v), name)
			}
		}
	}
	byName, attrs := map[string]int16{}, map[int16]int16{}
	split(there, func(n int16, name string) { byName[name] = n })
	split(here, func(n int16, name string) { attrs[n] = byName[name] })
	return attrs
}

// ask runs a query of the router's own on a shard, on a connection that nobody
// waits for: the caller may hold others.
func (e *Executor) ask(ctx context.Context, shard, sql string) (*engine.Result, error) {
	c, err := e.Acquire(WithoutQueue(ctx), shard, nil)
	if errors.Is(err, ErrFull) {
		c, err = e.DialFor(ctx, shard, nil)
	}
	if err != nil {
		return nil, err
	}
	defer c.Release()
	var res *engine.Result
	err = c.bounded(ctx, func() (err error) {
		res, err = c.Exec(sql)
		return err
	})
	return res, err
}

func joined(list []uint32) string {
	var b strings.Builder
	for i, oid := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatUint(uint64(oid), 10))
	}
	return b.String()
}

func number32(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32) // a catalogue's: always a number
	return uint32(n)
}

// own is what translates for the conversation; nil if its OIDs are those that
// clients know.
func (c *Conn) own() *oids {
	if c.numbers == nil {
		return nil
	}
	return c.numbers.current()
}

// Foreign reports whether user-defined types have other OIDs in the conversation than
// those that clients know.
func (c *Conn) Foreign() bool { return c.own() != nil }

// ErrUnknownOID is returned where nothing may be waited for and the shards would
// have to be asked for an OID.
var ErrUnknownOID = fmt.Errorf("executor: an OID is not known yet")

// OIDs are types as the conversation's shard numbers them, for those that a client
// numbers; built-in ones, and 0, stay. Without wait it fails with ErrUnknownOID rather than ask
// the shards. Errors: 42704 for a type that does not exist, and those of asking.
func (c *Conn) OIDs(types []uint32, wait bool) ([]uint32, error) {
	at := -1
	for i, t := range types {
		if t >= FirstUserOID {
			at = i
			break
		}
	}
	if at < 0 {
		return types, nil
	}
	o := c.own()
	if o == nil {
		return types, nil
	}
	c.using = o
	var missing []object
	for _, t := range types[at:] {
		if t >= FirstUserOID {
			if _, ok := o.get(object{ofType, t}, true); !ok {
				missing = append(missing, object{ofType, t})
			}
		}
	}
	if len(missing) > 0 {
		if !wait {
			return nil, ErrUnknownOID
		}
		o = c.numbers.roomy(o)
		c.using = o
		if err := o.learn(asObjects(types[at:]), true, learnMax); err != nil {
			return nil, err
		}
	}
	for _, t := range types[at:] {
		if t >= FirstUserOID {
			if k, _ := o.get(object{ofType, t}, true); k.oid == 0 {
				return nil, sqlstate.New(sqlstate.UndefinedObject, "type with OID %d does not exist on shard %s", t, c.shard).OnShard(c.shard).
					WithHint("look the type up in pg_type again; a type that this transaction has made can be used by its name: $1::name")
			}
		}
	}
	return c.translated(types), nil
}

func asObjects(types []uint32) []object {
	var all []object
	for _, t := range types {
		if t >= FirstUserOID {
			all = append(all, object{ofType, t})
		}
	}
	return all
}

// translated is OIDs of types that OIDs was asked for just now.
func (c *Conn) translated(types []uint32) []uint32 {
	if c.using == nil || c.numbers == nil {
		return types
	}
	var out []uint32
	for i, t := range types {
		if t < FirstUserOID {
			continue
		}
		if out == nil {
			out = append([]uint32(nil), types...)
		}
		k, _ := c.using.get(object{ofType, t}, true)
		out[i] = k.oid
	}
	if out == nil {
		return types
	}
	return out
}

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/txnrecord"
	"github.com/cleavedb/cleave/ids"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// cutMax bounds the tries of one cut: records of transactions outlive their end for longer than that.
const cutMax = 10 * time.Second

// pauseMax bounds the pause between two tries.
const pauseMax = 8 * time.Millisecond

// Cut is one place of each shard and one state of the directory, with no transaction over several shards half in.
type Cut struct {
	Name    string            `json:"name"`
	At      time.Time         `json:"at"`      // when its first place was marked
	Version uint64            `json:"version"` // of the map
	Places  map[string]string `json:"places"`  // shard -> where, for people
	Tries   int               `json:"tries"`   // how often places were marked until they fitted
	TookMS  float64           `json:"took_ms"` // from the first place of the last try to its last one
}

// Cutter takes cuts of one cluster. It is used by one goroutine at a time.
type Cutter struct {
	dir    shardmap.Directory
	snap   *shardmap.Snapshot
	places []*place
	held   []shardmap.Record // all records as they were after the places of the last cut
	limit  time.Duration     // of a try
	// trust leaves the proof out, slow is a pause before each place. Tests only.
	trust bool
	slow  time.Duration
}

// place is one shard of a Cutter.
type place struct {
	shard   shardmap.Shard
	handle  engine.Shard
	conn    engine.Conn
	marker  engine.Marker
	records txnrecord.Records
	// before are what was prepared and what was committed before the places of a try were marked.
	before   string
	prepared []string
	// after and recent are what was prepared after the marking, and what was committed since before.
	after, recent []string
	where         string
}

// NewCutter opens conversations with all shards of the map.
//
// Errors: 57P03 when a shard cannot be reached, 0A000 for a shard of which no backup can be taken.
func NewCutter(ctx context.Context, dir shardmap.Directory, drivers []engine.Driver) (*Cutter, error) {
	snap, err := dir.Load(ctx)
	if err != nil {
		return nil, err
	}
	c := &Cutter{dir: dir, snap: snap, limit: cutMax}
	for _, s := range snap.Shards() {
		p := &place{shard: s, records: txnrecord.Of(s.Engine)}
		c.places = append(c.places, p)
		if err := p.open(ctx, snap.State().Cluster, drivers); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Close ends the conversations. Places that need their Marker are given up.
func (c *Cutter) Close() error {
	var errs []error
	for _, p := range c.places {
		if p.marker != nil {
			errs = append(errs, p.marker.Close())
		}
		if p.conn != nil {
			errs = append(errs, p.conn.Close())
		}
		if p.handle != nil {
			errs = append(errs, p.handle.Close())
		}
	}
	c.places = nil
	return errors.Join(errs...)
}

// open finds the shard's primary, and opens the conversations with it.
func (p *place) open(ctx context.Context, cluster string, drivers []engine.Driver) error {
	at := slices.IndexFunc(drivers, func(d engine.Driver) bool { return d.Name() == p.shard.Engine })
	if at < 0 {
		return sqlstate.Refusal("CLV-1501", "this program has no engine %q", p.shard.Engine).OnShard(p.shard.Name)
	}
	var last error
	for _, url := range p.shard.Endpoints() {
		primary, err := p.openAt(ctx, drivers[at], cluster, url)
		if err == nil && primary {
			return p.ready(ctx)
		}
		last = err
		p.drop()
	}
	if last == nil {
		last = sqlstate.New(sqlstate.CannotConnectNow, "none of the servers of shard %s is its primary", p.shard.Name).OnShard(p.shard.Name)
	}
	return last
}

func (p *place) openAt(ctx context.Context, d engine.Driver, cluster, url string) (primary bool, err error) {
	if p.handle, err = d.Open(engine.Config{Cluster: cluster, Name: p.shard.Name, URL: url}); err != nil {
		return false, err
	}
	if p.conn, err = p.handle.Connect(ctx, map[string]string{"application_name": "cleave backup", "client_encoding": "UTF8"}); err != nil {
		return false, err
	}
	if r, ok := p.conn.(engine.Replicated); ok {
		s, err := r.Standing(ctx)
		return err == nil && s.Role == engine.Primary, err
	}
	return true, nil
}

// drop closes what openAt has opened.
func (p *place) drop() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing was done with it
	}
	if p.handle != nil {
		_ = p.handle.Close()
	}
	p.conn, p.handle = nil, nil
}

// ready opens the marker, and sees to it that the shard has the table of records.
func (p *place) ready(ctx context.Context) (err error) {
	m, ok := p.handle.(engine.Markable)
	if !ok {
		return sqlstate.Refusal("CLV-1502", "no backup can be taken of shard %s, whose engine is %s", p.shard.Name, p.shard.Engine).OnShard(p.shard.Name)
	}
	if p.marker, err = m.Marker(ctx); err != nil {
		return err
	}
	_, err = p.exec(ctx, p.records.Snapshot())
	if err == nil && p.records.Create() != "" {
		_, err = p.exec(ctx, "SELECT 1 FROM "+txnrecord.Table+" LIMIT 1")
		if sqlstate.CodeOf(err) == sqlstate.UndefinedTable {
			_, err = p.exec(ctx, p.records.Create())
		}
	}
	return err
}

func (p *place) exec(ctx context.Context, sql string) ([][]engine.Text, error) {
	res, err := engine.ExecContext(ctx, p.conn, sql)
	if err != nil {
		return nil, p.failed(err)
	}
	return res.Rows, nil
}

func (p *place) failed(err error) error {
	if lost := engine.Lost(err); lost != nil {
		err = lost.State(false)
	}
	return sqlstate.As(err).OnShard(p.shard.Name)
}

// ask runs two queries in one message.
func (p *place) ask(ctx context.Context, first, second string) (one, two []string, err error) {
	stop := context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Now()) })
	defer stop()
	err = engine.Ask(p.conn, first)
	if err == nil {
		err = engine.Ask(p.conn, second)
	}
	var got []*engine.Result
	if err == nil {
		got, err = engine.Answers(p.conn, 2, nil)
	}
	if err != nil {
		return nil, nil, p.failed(err)
	}
	column := func(res *engine.Result) (out []string) {
		for _, r := range res.Rows {
			out = append(out, r[0].String)
		}
		return out
	}
	return column(got[0]), column(got[1]), nil
}

// lookBefore notes what is prepared, and then what is committed.
func (p *place) lookBefore(ctx context.Context) error {
	prepared, at, err := p.ask(ctx, p.records.Prepared(), p.records.Snapshot())
	if err == nil {
		p.prepared, p.before = prepared, at[0]
	}
	return err
}

// lookAfter notes what is prepared, and then what was committed since lookBefore. In this order: what has left the list is
// committed, and is seen by what is asked next.
func (p *place) lookAfter(ctx context.Context) (err error) {
	p.after, p.recent, err = p.ask(ctx, p.records.Prepared(), p.records.Recent(p.before))
	return err
}

// id returns the transaction of a global id, as records have it, and the shard that decides on it, "" for a schema change.
func id(gid string) (id, decider string) {
	f := strings.SplitN(gid, "_", 5) // cleave_CLUSTER_ID_PART_DECIDER, cleave_ddl_ID_SHARD
	if len(f) < 3 {
		return gid, ""
	}
	if len(f) == 5 {
		decider = f[4]
	}
	return strings.ReplaceAll(f[2], "-", ""), decider
}

// suspect returns a transaction that may be half in, given both looks at all shards; "" if none can be. A transaction is half in if it
// is decided at its decider's place and not yet prepared at another shard's, or committed at a shard's place and not decided at
// its decider's. docs/design/backup.md shows that one of these four has to be seen then.
func (c *Cutter) suspect() string {
	deciders, times, recent := map[string]string{}, map[string]int{}, map[string]*place{}
	for _, p := range c.places {
		for _, t := range p.recent {
			recent[strings.ReplaceAll(t, "-", "")] = p
		}
		for _, gid := range slices.Concat(p.prepared, p.after) {
			if t, decider := id(gid); decider != "" {
				deciders[t] = decider
			}
		}
	}
	for _, p := range c.places {
		was := map[string]bool{}
		for _, gid := range p.prepared {
			t, _ := id(gid)
			was[t] = true
		}
		for _, gid := range p.after {
			t, _ := id(gid)
			if !was[t] {
				return t // prepared since
			}
			if at := recent[t]; at != nil && at != p {
				return t // decided since, and perhaps committed here: the log has that before anybody sees it
			}
		}
		for _, t := range p.recent {
			t = strings.ReplaceAll(t, "-", "")
			if times[t]++; times[t] > 1 {
				return t // decided and committed since
			}
			if !was[t] && deciders[t] != p.shard.Name {
				return t // prepared and committed since
			}
		}
	}
	return ""
}

// each does something on all shards at the same time, and waits for all.
func (c *Cutter) each(do func(p *place) error) error {
	errs := make(chan error, len(c.places))
	for _, p := range c.places {
		go func() { errs <- do(p) }()
	}
	var all []error
	for range c.places {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// fixed is what of the directory must not change while places are marked: the map, the operations that are under way, and how
// often setval() was called.
type fixed struct {
	version uint64
	records map[string]uint64 // key -> revision, of a sequence's the calls of setval()
}

// note adds a record if it is one that must not change.
func (f *fixed) note(r shardmap.Record) error {
	switch {
	case strings.HasPrefix(r.Key, workflow.RecordPrefix), strings.HasPrefix(r.Key, schema.IntentPrefix):
		f.records[r.Key] = r.Revision
	case strings.HasPrefix(r.Key, ids.RecordPrefix):
		var at ids.State
		if err := json.Unmarshal(r.Value, &at); err != nil {
			return sqlstate.Wrap(err, sqlstate.DataCorrupted, "the record %s cannot be read", r.Key)
		}
		if at.Sets > 0 {
			f.records[r.Key] = at.Sets
		}
	}
	return nil
}

// fixedBefore reads the map and then the records, fixedAfter all records and then the map. So a map that is the same in both was
// the map all the time: no record of a sequence in it was deleted.
func (c *Cutter) fixedBefore(ctx context.Context) (f fixed, err error) {
	snap, err := c.dir.Load(ctx)
	if err != nil {
		return f, err
	}
	f = fixed{snap.Version(), map[string]uint64{}}
	for _, prefix := range []string{workflow.RecordPrefix, schema.IntentPrefix, ids.RecordPrefix} {
		if err := eachRecord(ctx, c.dir, prefix, f.note); err != nil {
			return f, err
		}
	}
	return f, nil
}

func (c *Cutter) fixedAfter(ctx context.Context) (f fixed, held []shardmap.Record, err error) {
	f.records = map[string]uint64{}
	err = eachRecord(ctx, c.dir, "", func(r shardmap.Record) error {
		if !passing(r.Key) {
			held = append(held, r)
		}
		return f.note(r)
	})
	if err != nil {
		return f, nil, err
	}
	snap, err := c.dir.Load(ctx)
	if err != nil {
		return f, nil, err
	}
	f.version = snap.Version()
	return f, held, nil
}

// Take takes a cut: it marks places until no transaction over several shards was at a step in between which tears it, and the
// directory did not change. No writer waits for it. docs/design/backup.md has the proof.
//
// Errors: 40001 if none was had within 10 s; 57P03 when a shard is lost, or a try comes to no end.
func (c *Cutter) Take(ctx context.Context, name string) (*Cut, error) {
	limit := time.Now().Add(cutMax)
	for try := 1; ; try++ {
		cut, why, err := c.bounded(ctx, fmt.Sprintf("%s-%d", name, try))
		if err != nil {
			return nil, err
		}
		if why == "" {
			cut.Tries = try
			return cut, nil
		}
		if time.Now().After(limit) {
			return nil, sqlstate.New(sqlstate.SerializationFailure, "no place fitted on all shards within %v, in %d tries: %s", cutMax, try, why).
				WithHint("try again when fewer transactions write on several shards")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rand.N(min(time.Millisecond<<min(try, 10), pauseMax))):
		}
	}
}

// bounded is try within the time for which records of transactions are there for certain.
func (c *Cutter) bounded(ctx context.Context, name string) (cut *Cut, why string, err error) {
	limit, stop := context.WithTimeout(ctx, c.limit)
	defer stop()
	cut, why, err = c.try(limit, name)
	if limit.Err() == nil || ctx.Err() != nil {
		return cut, why, err
	}
	if err != nil {
		return nil, "", sqlstate.Wrap(err, sqlstate.CannotConnectNow, "no place was marked and proven on all shards within %v", c.limit).
			WithHint("see whether all shards and the directory answer, then run it again")
	}
	return nil, fmt.Sprintf("it took longer than %v", c.limit), nil
}

// try marks one place on each shard. why is why they cannot be used, "" if they can.
func (c *Cutter) try(ctx context.Context, name string) (cut *Cut, why string, err error) {
	was, err := c.fixedBefore(ctx)
	if err != nil {
		return nil, "", err
	}
	if err := c.same(was.version); err != nil {
		return nil, "", err
	}
	if err := c.each(func(p *place) error { return p.lookBefore(ctx) }); err != nil {
		return nil, "", err
	}
	cut = &Cut{Name: name, At: time.Now().UTC(), Version: was.version, Places: map[string]string{}}
	from := time.Now()
	err = c.each(func(p *place) (err error) {
		time.Sleep(c.slow * time.Duration(slices.Index(c.places, p)))
		p.where, err = p.marker.Mark(ctx, name)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	cut.TookMS = float64(time.Since(from).Microseconds()) / 1000
	for _, p := range c.places {
		cut.Places[p.shard.Name] = p.where
	}
	if c.trust {
		return cut, "", nil
	}
	if err := c.each(func(p *place) error { return p.lookAfter(ctx) }); err != nil {
		return nil, "", err
	}
	if t := c.suspect(); t != "" {
		return nil, "transaction " + t + " was committing on several shards", nil
	}
	is, held, err := c.fixedAfter(ctx)
	if err != nil {
		return nil, "", err
	}
	if is.version != was.version || !maps.Equal(is.records, was.records) {
		return nil, "the shard map or a workflow changed, or setval() was called", nil
	}
	c.held = held
	return cut, "", nil
}

// same fails if the map has other shards than those that the Cutter has conversations with.
func (c *Cutter) same(version uint64) error {
	if version == c.snap.Version() {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), cutMax)
	defer stop()
	snap, err := c.dir.Load(ctx)
	if err != nil {
		return err
	}
	names := func(s *shardmap.Snapshot) string {
		var out []string
		for _, sh := range s.Shards() {
			out = append(out, fmt.Sprint(sh.Name, sh.Incarnation, sh.Endpoints()))
		}
		return strings.Join(out, " ")
	}
	if names(snap) != names(c.snap) {
		return sqlstate.New(sqlstate.SerializationFailure, "shards came, went or got another address while a backup was taken").WithHint("run it again")
	}
	c.snap = snap
	return nil
}

// recordPage is how many records are read at a time.
const recordPage = 200

func eachRecord(ctx context.Context, d shardmap.Records, prefix string, do func(shardmap.Record) error) error {
	for after := ""; ; {
		list, err := d.Records(ctx, prefix, after, recordPage)
		if err != nil {
			return err
		}
		for _, r := range list {
			if err := do(r); err != nil {
				return err
			}
			after = r.Key
		}
		if len(list) < recordPage {
			return nil
		}
	}
}

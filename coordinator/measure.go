package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/placement"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/workflow"
)

const (
	// measuredAtOnce bounds the questions to shards at a time.
	measuredAtOnce = 8
	// keysPerRange is how many keys at equal distances a shard is asked for, for each of its ranges of a
	// range keyspace, on average; keysLeast and keysMost bound the sum.
	keysPerRange, keysLeast, keysMost = 64, 1024, 1 << 16
)

// question is about units of one keyspace on one shard.
type question struct {
	ks, shard string
	keys      keyspace.Ownership
	units     []int
	// shares are those of the positions, in a hash keyspace. nil: the shard is asked where rows are.
	shares []float64
}

// measure returns what the units of keyspaces hold, as the shards estimate it, and where ranges
// of range keyspaces can be cut. What a shard has of a hash keyspace is taken to lie evenly in its
// ranges; of a range keyspace, where a sample of its keys is. A shard that does not answer fails it:
// nothing is planned from half of the truth. One that is out of service is not asked, and what it has
// counts for nothing.
func (w *parent) measure(ctx context.Context, snap *shardmap.Snapshot, only string) (*workflow.Found, error) {
	found := &workflow.Found{Sizes: map[string][]workflow.Size{}, Cuts: map[string]map[int][]workflow.Cut{}}
	var all []question
	st := snap.State()
	for i := range st.Keyspaces {
		k := &st.Keyspaces[i]
		if only != "" && k.Name != only {
			continue
		}
		tables, _ := Tables(snap, k.Name)
		units := k.PlacementUnits()
		found.Sizes[k.Name], found.Cuts[k.Name] = make([]workflow.Size, len(units)), map[int][]workflow.Cut{}
		if len(tables) == 0 {
			continue
		}
		all = append(all, questions(snap, k, units)...)
	}
	var mu sync.Mutex
	return found, atOnce(ctx, len(all), func(ctx context.Context, i int) error {
		q := &all[i]
		tables, _ := Tables(snap, q.ks)
		rows, bytes, total, cuts, err := w.ask(ctx, snap, q, tables)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for i, n := range q.units { // each unit is of one question only
			found.Sizes[q.ks][n] = workflow.Size{Rows: int64(float64(rows) * q.shares[i] / max(total, 1e-300)), Bytes: int64(float64(bytes) * q.shares[i] / max(total, 1e-300))}
			if len(cuts[n]) > 0 {
				found.Cuts[q.ks][n] = cuts[n]
			}
		}
		return nil
	})
}

// questions are what the shards are asked about a keyspace: each about all its ranges, and about each listed value and pin.
func questions(snap *shardmap.Snapshot, k *shardmap.Keyspace, units []placement.Unit) (all []question) {
	whole := map[string]int{} // by shard: the question for all its ranges
	for n, u := range units {
		if sh, ok := snap.Shard(u.Owner); ok && sh.Service == shardmap.OutOfService {
			continue
		}
		if n >= len(k.Ranges) {
			part := shardmap.Part{}
			if at := n - len(k.Ranges); at < len(k.Values) {
				part.Key = k.Values[at].Key
			} else {
				part.Key = k.Pins[at-len(k.Values)].Key
			}
			all = append(all, question{ks: k.Name, shard: u.Owner, units: []int{n}, shares: []float64{1}, keys: snap.Keys(k.Name, part)})
			continue
		}
		at, ok := whole[u.Owner]
		if !ok {
			at = len(all)
			whole[u.Owner] = at
			all = append(all, question{ks: k.Name, shard: u.Owner, keys: snap.Ownership(k.Name, u.Owner)})
		}
		all[at].units = append(all[at].units, n)
		if k.Strategy == keyspace.Hash {
			all[at].shares = append(all[at].shares, u.Size)
		}
	}
	return all
}

// ask asks a shard. total is the sum of the shares of the question's units.
func (w *parent) ask(ctx context.Context, snap *shardmap.Snapshot, q *question, tables []engine.MoveTable) (rows, bytes int64, total float64, cuts map[int][]workflow.Cut, err error) {
	set, _, err := w.t.describe(ctx, q.shard, tables, q.keys)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	m, err := w.t.mover(ctx, q.shard)
	if err != nil {
		return 0, 0, 0, nil, err
	}
	if rows, bytes, err = m.Sizes(ctx, set); err != nil {
		return 0, 0, 0, nil, err
	}
	if q.shares == nil {
		half := SplitPoint{Snapshot: snap, Keyspace: q.ks, Connect: w.connect}
		q.shares, cuts, total, err = half.where(ctx, q)
		return rows, bytes, total, cuts, err
	}
	for _, s := range q.shares {
		total += s
	}
	return rows, bytes, total, nil, nil
}

// where asks a shard for keys at equal distances in the order of its rows of a range keyspace, and says how
// many are in each unit of the question, of how many, and which of them cut it.
func (h *SplitPoint) where(ctx context.Context, q *question) (shares []float64, cuts map[int][]workflow.Cut, total float64, err error) {
	ix, _ := h.Snapshot.Keyspace(h.Keyspace)
	shares, cuts = make([]float64, len(q.units)), map[int][]workflow.Cut{}
	s, err := h.open(ctx, ix, q.shard)
	if err != nil {
		return nil, nil, 0, err
	}
	defer s.close()
	rows, err := s.count(ctx, &q.keys)
	if err != nil || rows == 0 {
		return shares, cuts, 0, err
	}
	step := max(1, rows/int64(min(max(keysLeast, keysPerRange*len(q.units)), keysMost)))
	texts, order, own := s.columns()
	res, err := engine.ExecContext(ctx, s.conn, fmt.Sprintf("SELECT %s FROM (SELECT %s, row_number() OVER (ORDER BY %s) AS n FROM %s) AS y WHERE n %% %d = 0 ORDER BY n",
		texts, own, order, s.from(&q.keys), step))
	if err != nil {
		return nil, nil, 0, err
	}
	in := map[int][][]string{} // by unit
	for _, row := range res.Rows {
		texts, err := s.key(row)
		if err != nil {
			return nil, nil, 0, err
		}
		key, err := keyspace.ParseKey(ix.Def().Types, texts)
		if err != nil {
			return nil, nil, 0, err
		}
		a, err := ix.Locate(key)
		if err != nil {
			return nil, nil, 0, err
		}
		in[a.Unit-ix.FirstUnit()] = append(in[a.Unit-ix.FirstUnit()], texts)
	}
	for i, n := range q.units {
		keys := in[n]
		shares[i] = float64(len(keys))
		for k := 1; k < len(keys); k++ {
			// The first may be the least key of the range: nothing is below it.
			if !slices.Equal(keys[k], keys[k-1]) {
				cuts[n] = append(cuts[n], workflow.Cut{At: keys[k], Below: float64(k) / float64(len(keys))})
			}
		}
	}
	return shares, cuts, float64(len(res.Rows)), nil
}

// atOnce calls f for 0 to n-1, several at a time, and returns the first error.
func atOnce(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	places := make(chan struct{}, measuredAtOnce)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			if err := f(ctx, i); err != nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// connect is SplitPoint.Connect of a leader.
func (w *parent) connect(ctx context.Context, name string) (engine.Conn, func(broken bool), error) {
	shard, err := w.t.c.opts.Shard(name)
	if err != nil {
		return nil, nil, err
	}
	conn, err := converse(ctx, shard)
	if err != nil {
		return nil, nil, err
	}
	return conn, func(bool) { _ = conn.Close() }, nil
}

// converse opens a conversation of the coordinator's own with a shard.
func converse(ctx context.Context, sh engine.Shard) (engine.Conn, error) {
	return sh.Connect(ctx, map[string]string{"application_name": "cleave", "client_encoding": "UTF8"})
}

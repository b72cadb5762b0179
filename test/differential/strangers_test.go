package differential

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cleavedb/cleave/internal/testrun"
	"github.com/cleavedb/cleave/test/differential/cluster"
	"github.com/cleavedb/cleave/test/differential/compare"
	"github.com/cleavedb/cleave/test/differential/corpus"
)

// move pins some keys and puts all keys of all keyspaces on the move.
func (p *pair) move() {
	p.t.Helper()
	ctx := context.Background()
	for name, keys := range map[string][]string{
		"hash_bigint": {"3", "8"}, "hash_text": {"'Ada@x.org'", "'cy@x.org'"}, "by_sensor": {"5", "16"}, "by_time": {"'2024-02-05 14:00:00'"},
	} {
		if _, ok := p.cluster.Snapshot().Keyspace(name); !ok {
			continue
		}
		for _, sql := range cluster.Pins(name, keys...) {
			if o := p.router.Run(ctx, compare.Statement{SQL: sql}); o.Err != nil || o.Lost != nil {
				p.t.Fatalf("%s: %s: %s", p.cluster.Name(), sql, o)
			}
		}
	}
	for _, k := range p.cluster.Snapshot().State().Keyspaces {
		if err := p.cluster.Move(ctx, k.Name); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestStrangers runs the corpus on clusters in which every key is on the move: for
// each there is a shard that has rows with it, other ones than the owner's. Nobody
// may see those rows, and no more may be refused than without them.
func TestStrangers(t *testing.T) {
	testrun.Long(t, "the corpus once more, with every key on the move; TestFuzz has keys on the move on half of its clusters")
	topics, err := corpus.Topics()
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := corpus.Schemas()
	if err != nil {
		t.Fatal(err)
	}
	ceilings := readCeilings(t)
	found := &findings{first: map[string]string{}, where: map[string][]string{}}
	var mu sync.Mutex
	t.Run("on", func(t *testing.T) {
		for i, o := range []cluster.Options{{Engine: "postgres", Shards: 3}, {Engine: "sqlite", Shards: 2}, {Engine: "postgres", Shards: 2}, {Engine: "sqlite", Shards: 3}} {
			if i >= 2 && !*everywhere {
				break
			}
			t.Run(fmt.Sprintf("%s-%d", o.Engine, o.Shards), func(t *testing.T) {
				t.Parallel()
				p := startPair(t, o, schemas, true)
				for _, topic := range topics {
					if !slices.Contains(topic.Engines, o.Engine) || *oneTopic != "" && *oneTopic != topic.Name {
						continue
					}
					got := runTopic(t, p, topic, i, found)
					mu.Lock()
					if most, known := ceilings[topic.Name+" "+o.Engine]; known && got.refused > most {
						t.Errorf("%s on %s: %d statements are refused, %d without rows on the move:\n%s", topic.Name, p.cluster.Name(), got.refused, most, reasons(got, 12))
					}
					mu.Unlock()
				}
			})
		}
	})
	found.report(t)
}

package placement

import (
	"fmt"
	"testing"
)

// BenchmarkPropose: a ninth shard for ranges of uneven sizes.
func BenchmarkPropose(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		us := units(n, func(i int) string { return fmt.Sprintf("shard-%d", i%8) })
		for i := range us {
			us[i].Size = float64(1 + i*7919%1000)
		}
		for _, a := range []Algorithm{Balanced, Ring, Rendezvous} {
			b.Run(fmt.Sprintf("%s/%d", a, n), func(b *testing.B) {
				for b.Loop() {
					if _, err := Propose(Request{Units: us, Shards: equal(9), Algorithm: a}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

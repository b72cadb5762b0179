package placement

import (
	"bytes"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden file again; never for an algorithm that a release had")

// TestGolden holds every answer: a shard map that was planned with one version
// is extended with another. Each line has the first owners and a sum over many.
func TestGolden(t *testing.T) {
	const path = "testdata/golden.txt"
	var out bytes.Buffer
	line := func(what string, l Locator) {
		h := fnv.New64a()
		var first []int
		for p := range keys(20_000) {
			at := l.Locate(p)
			if len(first) < 16 {
				first = append(first, at)
			}
			fmt.Fprintf(h, "%s,", l.Shards()[at].Name)
		}
		fmt.Fprintf(&out, "%-32s %v %016x\n", what, first, h.Sum64())
	}
	for _, a := range Algorithms() {
		for _, n := range []int{1, 8, 64, 1024} {
			line(fmt.Sprintf("%s of %d", a, n), locator(t, a, equal(n), Options{VirtualNodes: 100}))
		}
		line(fmt.Sprintf("%s by weight", a), locator(t, a, weighted(1, 2.5, 0, 1, 4), Options{Buckets: 2}))
		line(fmt.Sprintf("%s with a seed", a), locator(t, a, equal(8), Options{Seed: -77}))
		grown := resize(t, resize(t, locator(t, a, equal(3), Options{}), equal(5)), slices.Delete(equal(6), 1, 2))
		line(fmt.Sprintf("%s resized", a), grown)
	}
	for _, a := range append(Algorithms(), Packed) {
		us := units(100, func(i int) string { return fmt.Sprintf("shard-%d", i%3) })
		for i := range us {
			us[i].Size = float64(1 + i%7)
			us[i].Labels = map[string]string{"tenant": fmt.Sprint(i % 5)}
		}
		shards := equal(6)
		for i := range shards {
			shards[i].Capacity = 100
		}
		p := propose(t, Request{Units: us, Shards: shards, Algorithm: a,
			Constraints: []Constraint{{Name: "alone", Kind: Isolation, Units: map[string]string{"tenant": "3"}}, {Name: "apart", Kind: AntiAffinity, Names: []string{"range-0", "range-1"}}}})
		fmt.Fprintf(&out, "proposal, %s:\n", a)
		for at := 0; at < len(p.Owners); at += 25 {
			fmt.Fprint(&out, "   ")
			for _, o := range p.Owners[at : at+25] {
				fmt.Fprint(&out, " ", o[len("shard-"):])
			}
			fmt.Fprintln(&out)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := bytes.Split(out.Bytes(), []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range max(len(got), len(wanted)) {
		if i >= len(got) || i >= len(wanted) || !bytes.Equal(got[i], wanted[i]) {
			t.Fatalf("line %d of %s is another:\n%s", i+1, path, out.Bytes())
		}
	}
}

// TestLogarithmIsExact to a few units of the last place, and the same on every machine.
func TestLogarithmIsExact(t *testing.T) {
	for h, want := range map[uint64]float64{
		0:          36.7368005696771014, // -ln(2^-53)
		1 << 63:    0.693147180559945198,
		^uint64(0): 1.11022302462515665e-16, // -ln(1 - 2^-53)
		3 << 62:    0.287682072451780821,
		3 << 61:    0.980829253011726236,
	} {
		if got := minusLog(h); got > want*(1+1e-12) || got < want*(1-1e-12) {
			t.Errorf("-ln(%x/2^64) = %.18g, want %.18g", h, got, want)
		}
	}
}

package planner

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/plan"
)

// binArray is a bigint[] in binary format; nil stands for NULL.
func binArray(element uint32, values ...any) []byte {
	b := binary.BigEndian.AppendUint32(nil, 1)
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
	b = binary.BigEndian.AppendUint32(b, 1)
	for _, v := range values {
		if v == nil {
			b = binary.BigEndian.AppendUint32(b, 1<<32-1)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(v.(int)))
	}
	return b
}

func TestArraysOfKeys(t *testing.T) {
	snap := testSnapshot(t)
	st := analyze(t, snap, "SELECT * FROM orders WHERE tenant_id = ANY($1)")
	five, two := ownerOf(t, snap, "hash_bigint", keyspace.Int(keyspace.Int8, 5)), ownerOf(t, snap, "hash_bigint", keyspace.Int(keyspace.Int8, 2))
	both := []string{five, two}
	slices.Sort(both)
	for _, c := range []struct {
		args plan.Args
		want []string // nil: an error
	}{
		{plan.Args{Values: [][]byte{[]byte("{5}")}}, []string{five}},
		{plan.Args{Values: [][]byte{[]byte("{5, 5,NULL}")}}, []string{five}},
		{plan.Args{Values: [][]byte{[]byte(`{{5},{"2"}}`)}, OIDs: []uint32{1016}}, both},
		{plan.Args{Values: [][]byte{[]byte("{2}")}, OIDs: []uint32{1007}}, []string{two}},
		{plan.Args{Values: [][]byte{[]byte("{}")}}, []string{"shard-0"}},
		{plan.Args{Values: [][]byte{nil}}, []string{"shard-0"}},
		{plan.Args{Values: [][]byte{binArray(20, 5, nil)}, Formats: []int16{1}, OIDs: []uint32{1016}}, []string{five}},
		{plan.Args{Values: [][]byte{binArray(20, 5, 2)}, Formats: []int16{1}}, both},
		{plan.Args{Values: [][]byte{binArray(20, 5)[:9]}, Formats: []int16{1}}, nil},
		{plan.Args{Values: [][]byte{[]byte("{5")}}, nil},
		{plan.Args{Values: [][]byte{[]byte("{5}")}, OIDs: []uint32{1000}}, nil},
		{plan.Args{Values: [][]byte{[]byte("{x}")}}, nil},
	} {
		r, err := st.Route(snap, &c.args)
		if (err == nil) != (c.want != nil) || err == nil && r.Several != (len(c.want) > 1) || err == nil && !r.Several && r.Shard != c.want[0] {
			t.Errorf("%q: %+v, %v, want %v", c.args.Values, r, err, c.want)
		}
		if err != nil {
			continue
		}
		many, err := New(Limits{}).Several(st.Text, snap, []string{"public"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := many.Plan.Target.Shards(snap, &c.args)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %v, want %v", c.args.Values, got, err, c.want)
		}
	}
}

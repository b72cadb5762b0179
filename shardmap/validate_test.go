package shardmap_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// fullState has one keyspace of each strategy and one table of each kind.
func fullState(t testing.TB) shardmap.State {
	t.Helper()
	hash, err := shardmap.NewHashKeyspace("tenant", []keyspace.Type{keyspace.Int8}, someShards(shardNames...), 6)
	if err != nil {
		t.Fatal(err)
	}
	ranged, err := shardmap.NewRangeKeyspace("place", []keyspace.Type{keyspace.Text, keyspace.Int4},
		[][]string{{"d"}, {"m", "10"}, {"m", "20"}}, []string{"shard-0", "shard-1", "shard-1", "shard-2"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := shardmap.NewListKeyspace("region", []keyspace.Type{keyspace.Text}, [][]string{{"eu"}, {"us"}}, []string{"shard-0", "shard-2"})
	if err != nil {
		t.Fatal(err)
	}
	s := baseState(hash, ranged, list)
	for _, pin := range []struct {
		ks    string
		key   []string
		shard string
	}{{"tenant", []string{"42"}, "shard-2"}, {"place", []string{"m", "15"}, "shard-0"}, {"region", []string{"asia"}, "shard-1"}} {
		if err := s.PutPin(pin.ks, pin.key, pin.shard); err != nil {
			t.Fatal(err)
		}
	}
	id := shardmap.Column{Name: "tenant_id", Type: "bigint", OID: 20, NotNull: true}
	note := shardmap.Column{Name: "note", Type: "text", OID: 25}
	s.PutTable(shardmap.Table{Schema: "public", Name: "orders", Kind: shardmap.Sharded, Keyspace: "tenant", ShardKey: []string{"tenant_id"}, Columns: []shardmap.Column{id, note}})
	s.PutTable(shardmap.Table{Schema: "public", Name: "country", Kind: shardmap.Reference, Columns: []shardmap.Column{note}})
	s.PutTable(shardmap.Table{Schema: "other", Name: "orders", Kind: shardmap.Whole})
	s.Shards[1].Labels = map[string]string{"region": "eu"}
	return s
}

func TestNewSnapshotRefuses(t *testing.T) {
	if _, err := shardmap.NewSnapshot(fullState(t)); err != nil {
		t.Fatalf("the state that is spoilt below is refused itself: %v", err)
	}
	// tenant, place and region are keyspaces 0, 1 and 2.
	type state = shardmap.State
	for name, c := range map[string]struct {
		spoil func(*state)
		says  string
	}{
		"format 0":          {func(s *state) { s.Format = 0 }, "format 0"},
		"format to come":    {func(s *state) { s.Format = 99 }, "newer release"},
		"no cluster":        {func(s *state) { s.Cluster = "" }, "name of a cluster"},
		"schema version":    {func(s *state) { s.SchemaVersion = 10 }, "schema version 10"},
		"default shard":     {func(s *state) { s.DefaultShard = "shard-7" }, `default shard "shard-7"`},
		"no shards":         {func(s *state) { s.Shards = nil }, "default shard"},
		"shard name":        {func(s *state) { s.Shards[1].Name = "a b" }, `"a b" cannot be the name of a shard`},
		"shard name begin":  {func(s *state) { s.Shards[1].Name = "-a" }, "cannot be the name"},
		"shard name digit":  {func(s *state) { s.Shards[1].Name = "1a" }, "cannot be the name"},
		"shard name path":   {func(s *state) { s.Shards[1].Name = "../a" }, "cannot be the name"},
		"shard name long":   {func(s *state) { s.Shards[1].Name = strings.Repeat("a", 64) }, "cannot be the name"},
		"shard twice":       {func(s *state) { s.Shards[1].Name = "shard-0" }, `shard "shard-0" is there twice`},
		"shard in case":     {func(s *state) { s.Shards[1].Name = "Shard-0" }, "differ in case alone"},
		"engine":            {func(s *state) { s.Shards[1].Engine = "" }, "name of an engine"},
		"weight 0":          {func(s *state) { s.Shards[1].Weight = 0 }, "weight of shard"},
		"weight below 0":    {func(s *state) { s.Shards[1].Weight = -1 }, "weight of shard"},
		"weight NaN":        {func(s *state) { s.Shards[1].Weight = math.NaN() }, "weight of shard"},
		"weight infinite":   {func(s *state) { s.Shards[1].Weight = math.Inf(1) }, "weight of shard"},
		"URL":               {func(s *state) { s.Shards[1].URL = "postgres://u:hush\n@h" }, "URL of shard"},
		"label":             {func(s *state) { s.Shards[1].Labels[""] = "x" }, "label without a name"},
		"label text":        {func(s *state) { s.Shards[1].Labels["x"] = "a\nb" }, "control characters"},
		"shard that owns":   {func(s *state) { s.DropShard("shard-2") }, `"shard-2", which is not one of the shards`},
		"keyspace name":     {func(s *state) { s.Keyspaces[0].Name = "x;y" }, "name of a keyspace"},
		"keyspace twice":    {func(s *state) { s.Keyspaces[1].Name = "tenant" }, `keyspace "tenant" is there twice`},
		"strategy":          {func(s *state) { s.Keyspaces[0].Strategy = "ring" }, `unknown strategy "ring"`},
		"no types":          {func(s *state) { s.Keyspaces[0].Types = nil }, "0 key columns"},
		"unknown type":      {func(s *state) { s.Keyspaces[0].Types[0] = 77 }, "no known type"},
		"many types":        {func(s *state) { s.Keyspaces[0].Types = make([]keyspace.Type, 33) }, "33 key columns"},
		"seed without hash": {func(s *state) { s.Keyspaces[1].Seed = 1 }, "hash seed"},
		"no ranges":         {func(s *state) { s.Keyspaces[0].Ranges = nil }, "no ranges"},
		"values in hash":    {func(s *state) { s.Keyspaces[0].Values = s.Keyspaces[2].Values }, "lists values"},
		"ranges in list":    {func(s *state) { s.Keyspaces[2].Ranges = s.Keyspaces[1].Ranges }, "has ranges"},
		"first bounded":     {func(s *state) { s.Keyspaces[0].Ranges = s.Keyspaces[0].Ranges[1:] }, "does not cover what is below"},
		"last bounded":      {func(s *state) { s.Keyspaces[0].Ranges = s.Keyspaces[0].Ranges[:3] }, "from 0 on"},
		"gap":               {func(s *state) { s.Keyspaces[0].Ranges[2].High = []string{"-1"} }, "a gap or an overlap"},
		"hole": {func(s *state) {
			s.Keyspaces[0].Ranges = append(s.Keyspaces[0].Ranges[:2:2], s.Keyspaces[0].Ranges[3:]...)
		}, "a gap or an overlap"},
		"inner without high": {func(s *state) { s.Keyspaces[0].Ranges[2].High = nil }, "no upper bound"},
		"inner without low":  {func(s *state) { s.Keyspaces[0].Ranges[2].Low = nil }, "no lower bound"},
		"empty bound":        {func(s *state) { s.Keyspaces[1].Ranges[0].High, s.Keyspaces[1].Ranges[1].Low = []string{}, []string{} }, "0 values"},
		"two positions":      {func(s *state) { s.Keyspaces[0].Ranges[0].High = []string{"1", "2"} }, "it is one position"},
		"no position":        {func(s *state) { s.Keyspaces[0].Ranges[0].High = []string{"9223372036854775808"} }, "not a position"},
		"order": {func(s *state) {
			r := s.Keyspaces[1].Ranges
			r[0].High, r[1].Low = []string{"z"}, []string{"z"}
		}, "not in order"},
		"order of positions": {func(s *state) {
			r := s.Keyspaces[0].Ranges
			r[0].High, r[1].Low = []string{"9"}, []string{"9"}
		}, "not in order"},
		"empty range": {func(s *state) {
			r := s.Keyspaces[1].Ranges
			r[1].High, r[2].Low = []string{"d"}, []string{"d"}
		}, "not in order"},
		"range from the least": {func(s *state) {
			r := s.Keyspaces[0].Ranges
			r[0].High, r[1].Low = []string{"-9223372036854775808"}, []string{"-9223372036854775808"}
		}, "not in order"},
		"bound type":      {func(s *state) { s.Keyspaces[1].Ranges[1].High = []string{"m", "ten"} }, "is not a key (text, integer)"},
		"bound too long":  {func(s *state) { s.Keyspaces[1].Ranges[1].High = []string{"m", "1", "2"} }, "3 values"},
		"bound not UTF-8": {func(s *state) { s.Keyspaces[1].Ranges[0].High = []string{"\xff"} }, "not UTF-8"},
		"bound too large": {func(s *state) { s.Keyspaces[1].Ranges[0].High = []string{strings.Repeat("d", 9000)} }, "longer than"},
		"range owner":     {func(s *state) { s.Keyspaces[0].Ranges[1].Shard = "gone" }, `belongs to shard "gone"`},
		"range epoch":     {func(s *state) { s.Keyspaces[0].Ranges[1].Epoch = 10 }, "epoch 10"},
		"value owner":     {func(s *state) { s.Keyspaces[2].Values[1].Shard = "gone" }, "value us of keyspace"},
		"value epoch":     {func(s *state) { s.Keyspaces[2].Values[1].Epoch = 10 }, "epoch 10"},
		"value twice":     {func(s *state) { s.Keyspaces[2].Values[1].Key = []string{"eu"} }, "value eu is there twice"},
		"value columns":   {func(s *state) { s.Keyspaces[2].Values[1].Key = []string{"eu", "x"} }, "it has 2 values, not 1"},
		"pin owner":       {func(s *state) { s.Keyspaces[0].Pins[0].Shard = "gone" }, "pin 42 of keyspace"},
		"pin twice": {func(s *state) {
			s.Keyspaces[0].Pins = append(s.Keyspaces[0].Pins, shardmap.Pin{Key: []string{" 042 "}, Shard: "shard-0"})
		}, "pin 42 is there twice"},
		"pin type":         {func(s *state) { s.Keyspaces[0].Pins[0].Key = []string{"x"} }, "is not a key (bigint)"},
		"pin prefix":       {func(s *state) { s.Keyspaces[1].Pins[0].Key = []string{"m"} }, "it has 1 values, not 2"},
		"pin epoch":        {func(s *state) { s.Keyspaces[0].Pins[0].Epoch = 10 }, "epoch 10"},
		"table twice":      {func(s *state) { s.Tables = append(s.Tables, s.Tables[0]) }, "table public.orders is there twice"},
		"table name":       {func(s *state) { s.Tables[2].Name = "" }, "name of a table"},
		"table name zero":  {func(s *state) { s.Tables[2].Name = "a\x00" }, "name of a table"},
		"schema name":      {func(s *state) { s.Tables[2].Schema = "\xff" }, "name of a schema"},
		"table kind":       {func(s *state) { s.Tables[2].Kind = "spread" }, `unknown kind "spread"`},
		"whole with key":   {func(s *state) { s.Tables[1].ShardKey = []string{"note"} }, "is reference, so it cannot have"},
		"table keyspace":   {func(s *state) { s.Tables[0].Keyspace = "gone" }, `keyspace "gone", which does not exist`},
		"key columns":      {func(s *state) { s.Tables[0].ShardKey = []string{"tenant_id", "note"} }, "has 2 columns"},
		"key column":       {func(s *state) { s.Tables[0].ShardKey = []string{"id"} }, `"id" of table public.orders does not exist`},
		"key type":         {func(s *state) { s.Tables[0].ShardKey = []string{"note"} }, "is text, keyspace"},
		"key type by OID":  {func(s *state) { s.Tables[0].Columns[0].OID = 23 }, "keyspace \"tenant\" has bigint"},
		"key type by name": {func(s *state) { s.Tables[0].Columns[0].OID, s.Tables[0].Columns[0].Type = 0, "numeric" }, "is numeric"},
		"key type unknown": {func(s *state) { s.Tables[0].Columns[0].OID = 987654 }, "keyspace \"tenant\" has bigint"},
		"column twice":     {func(s *state) { s.Tables[0].Columns[1].Name = "tenant_id" }, "twice"},
		"column name":      {func(s *state) { s.Tables[0].Columns[1].Name = "" }, "name of a column"},
		"column type":      {func(s *state) { s.Tables[0].Columns[1].Type = "" }, "no valid type name"},
		"key column twice": {func(s *state) {
			s.Keyspaces[0].Types = append(s.Keyspaces[0].Types, keyspace.Int8)
			s.Keyspaces[0].Pins = nil
			s.Tables[0].ShardKey = []string{"tenant_id", "tenant_id"}
		}, "names column \"tenant_id\" twice"},
		"too many tables": {func(s *state) { s.Tables = make([]shardmap.Table, shardmap.MaxTables+1) }, "more than the"},
		"too many ranges": {func(s *state) { s.Keyspaces[0].Ranges = make([]shardmap.Range, shardmap.MaxAssignments+1) }, "more than the"},
		"too many shards": {func(s *state) { s.Shards = make([]shardmap.Shard, shardmap.MaxShards+1) }, "more than the"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fullState(t)
			c.spoil(&s)
			_, err := shardmap.NewSnapshot(s)
			if !errors.Is(err, shardmap.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got error %v\nwant ErrInvalid with %q", err, c.says)
			}
			var e *sqlstate.Error
			if !errors.As(err, &e) || e.Code == "" || e.Code == sqlstate.InternalError {
				t.Fatalf("the error has no SQLSTATE of its own: %#v", err)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Fatalf("the error shows a password: %v", err)
			}
		})
	}
}

func TestNewSnapshotCanonical(t *testing.T) {
	s := fullState(t)
	s.Keyspaces[0].Pins[0].Key = []string{" 00042"}
	s.Keyspaces[0].Ranges[2].High, s.Keyspaces[0].Ranges[3].Low = []string{"+0"}, []string{"-0"}
	snap, err := shardmap.NewSnapshot(s)
	if err != nil {
		t.Fatal(err)
	}
	k := snap.State().Keyspaces[0]
	if k.Pins[0].Key[0] != "42" || k.Ranges[2].High[0] != "0" || k.Ranges[3].Low[0] != "0" {
		t.Fatalf("texts are not canonical: %+v", k)
	}
	if s.Keyspaces[0].Pins[0].Key[0] != " 00042" {
		t.Fatal("NewSnapshot changed its argument")
	}
}

func TestLocateErrors(t *testing.T) {
	snap, err := shardmap.NewSnapshot(fullState(t))
	if err != nil {
		t.Fatal(err)
	}
	region, _ := snap.Keyspace("region")
	_, err = region.Locate(keyspace.Key{keyspace.Str(keyspace.Text, "mars")})
	if e := sqlstate.As(err); e.Code != sqlstate.CheckViolation || !strings.Contains(e.Message, "no shard is listed for value mars") || !strings.Contains(e.Hint, "cleave.pin('region'") {
		t.Fatalf("an unlisted value: %v", err)
	}
	if a, err := region.Locate(keyspace.Key{keyspace.Str(keyspace.Text, "asia")}); err != nil || a.Shard != "shard-1" || !a.Pinned {
		t.Fatalf("a pinned value that is not listed: %+v, %v", a, err)
	}
	for _, k := range []keyspace.Key{nil, {keyspace.Int(keyspace.Int8, 1)}, {keyspace.Str(keyspace.Text, "eu"), keyspace.Str(keyspace.Text, "eu")}, {keyspace.Value{}}} {
		if _, err := region.Locate(k); sqlstate.CodeOf(err) != sqlstate.DatatypeMismatch {
			t.Fatalf("Locate(%v): %v", k, err)
		}
	}
}

func TestHashKeyspaceShares(t *testing.T) {
	shards := func(weights ...float64) []shardmap.Shard {
		list := someShards("s0", "s1", "s2", "s3")[:len(weights)]
		for i := range list {
			list[i].Weight = weights[i]
		}
		return list
	}
	for _, c := range []struct {
		shards []shardmap.Shard
		ranges int
		want   string
	}{
		{shards(1, 1, 1, 1), 16, "4 4 4 4"},
		{shards(1, 2, 1), 16, "4 8 4"},
		{shards(1, 1, 1), 16, "6 5 5"},
		{shards(1000, 1, 1), 10, "8 1 1"},
		{shards(1, 1000, 1000, 1000), 4, "1 1 1 1"},
		{shards(1, 1, 1, 1), 2, "1 1 0 0"},
		{shards(1, 3), 1, "0 1"},
		{shards(math.MaxFloat64, math.MaxFloat64), 4, "2 2"},
		{shards(math.SmallestNonzeroFloat64, math.MaxFloat64), 4, "1 3"},
		{shards(0.1, 0.2, 0.7), 10, "1 2 7"},
	} {
		k, err := shardmap.NewHashKeyspace("k", []keyspace.Type{keyspace.Text}, c.shards, c.ranges)
		if err != nil {
			t.Fatal(err)
		}
		var runs []string
		counts := map[string]int{}
		for _, r := range k.Ranges {
			if len(runs) == 0 || runs[len(runs)-1] != r.Shard {
				runs = append(runs, r.Shard)
			}
			counts[r.Shard]++
		}
		var got []string
		for _, s := range c.shards {
			got = append(got, string(rune('0'+counts[s.Name])))
		}
		if strings.Join(got, " ") != c.want || len(runs) != len(counts) || len(k.Ranges) != c.ranges {
			t.Errorf("%d ranges for weights %v: %v in runs %v, want %s", c.ranges, c.shards, got, runs, c.want)
		}
	}
	for _, c := range []struct {
		shards []shardmap.Shard
		ranges int
	}{{shards(1), 0}, {shards(1), -3}, {shards(1), shardmap.MaxAssignments + 1}, {nil, 4}, {shards(0), 4}} {
		if _, err := shardmap.NewHashKeyspace("k", []keyspace.Type{keyspace.Text}, c.shards, c.ranges); err == nil {
			t.Errorf("%d ranges for %v are accepted", c.ranges, c.shards)
		}
	}
}

func TestNewKeyspacesRefuse(t *testing.T) {
	text := []keyspace.Type{keyspace.Text}
	for name, err := range map[string]error{
		"shards":   second(shardmap.NewRangeKeyspace("k", text, [][]string{{"a"}}, []string{"s"})),
		"order":    second(shardmap.NewRangeKeyspace("k", text, [][]string{{"b"}, {"a"}}, []string{"s", "s", "s"})),
		"no value": second(shardmap.NewRangeKeyspace("k", text, [][]string{nil}, []string{"s", "s"})),
		"type":     second(shardmap.NewRangeKeyspace("k", []keyspace.Type{keyspace.Date}, [][]string{{"x"}}, []string{"s", "s"})),
		"name":     second(shardmap.NewRangeKeyspace("a b", text, nil, []string{"s"})),
		"twice":    second(shardmap.NewListKeyspace("k", text, [][]string{{"a"}, {"a"}}, []string{"s", "s"})),
		"one each": second(shardmap.NewListKeyspace("k", text, [][]string{{"a"}}, nil)),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	k, err := shardmap.NewRangeKeyspace("k", []keyspace.Type{keyspace.Int4}, [][]string{{" 007"}}, []string{"s", "s"})
	if err != nil || k.Ranges[0].High[0] != "7" || k.Ranges[1].Low[0] != "7" {
		t.Errorf("bounds are not canonical: %+v, %v", k, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestDefaultKeyspaceName(t *testing.T) {
	for want, types := range map[string][]keyspace.Type{
		"hash_bigint":    {keyspace.Int8},
		"hash_text_uuid": {keyspace.Text, keyspace.UUID},
		"hash_smallint_integer_varchar_date_timestamp_bytea_boolean": {keyspace.Int2, keyspace.Int4, keyspace.Varchar, keyspace.Date, keyspace.Timestamp, keyspace.Bytea, keyspace.Bool},
	} {
		if got := shardmap.DefaultKeyspaceName(types); got != want {
			t.Errorf("DefaultKeyspaceName(%v) = %s, want %s", types, got, want)
		}
	}
	long := make([]keyspace.Type, 20)
	for i := range long {
		long[i] = keyspace.Timestamptz
	}
	a := shardmap.DefaultKeyspaceName(long)
	long[19] = keyspace.Timestamp
	if b := shardmap.DefaultKeyspaceName(long); a == b || len(a) != shardmap.MaxNameBytes || len(b) != shardmap.MaxNameBytes {
		t.Errorf("long names are %s and %s", a, b)
	}
}

package moment

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

var exported = Exported{Version: 7, Shards: map[string]Snapshot{"shard-0": {Name: "00000003-0000001B-1", Run: "17 18"}, "shard-1": {Name: "00000004-00000002-1"}}}

// TestSeal: with the key a name is read, and nothing else.
func TestSeal(t *testing.T) {
	key := []byte("a key")
	name, err := exported.Seal(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := Unseal(key, name); !ok || !reflect.DeepEqual(got, exported) {
		t.Errorf("%v: %+v", ok, got)
	}
	if _, ok := Unseal([]byte("another"), name); ok {
		t.Error("another cluster's name is read")
	}
	body, proof, _ := strings.Cut(name, "-")
	for _, lie := range []string{"", "-", body, body + "-", "-" + proof, proof + "-" + body, body + "0-" + proof, name + "0", strings.ToLower(name), name + "-", "../" + name, name + "'",
		fmt.Sprintf("%X-%s", `{"v":7,"s":{"shard-0":{"n":"'; DROP TABLE orders; --"}}}`, proof), strings.Repeat("0", exportedMax+2)} {
		if _, ok := Unseal(key, lie); ok {
			t.Errorf("%.100q is read", lie)
		}
	}
}

// FuzzUnseal: nothing that the cluster has not made is read, and nothing faults.
func FuzzUnseal(f *testing.F) {
	key := []byte("a key")
	name, err := exported.Seal(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(name)
	f.Add("00000003-0000001B-1")
	f.Add("7B7D-00")
	f.Fuzz(func(t *testing.T, s string) {
		if e, ok := Unseal(key, s); ok && s != name {
			t.Errorf("%q is read as %+v", s, e)
		}
	})
}

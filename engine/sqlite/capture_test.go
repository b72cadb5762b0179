package sqlite

import (
	"testing"

	"github.com/cleavedb/cleave/engine/sqlite/catalog"
)

// TestCaptureOfAnID: a process that died between the release of a capture and the end of its log leaves a
// released one beside the next one of that id. Only the next one has the id.
func TestCaptureOfAnID(t *testing.T) {
	c := &catalog.Catalog{Captures: map[uint32]*catalog.Capture{}}
	for oid := uint32(1); oid < 50; oid++ {
		c.Captures[oid] = &catalog.Capture{OID: oid, ID: "m", Released: oid != 7}
	}
	for range 20 { // the order of a map is another one each time
		if d := c.Capture("m"); d == nil || d.OID != 7 {
			t.Fatalf("the capture of the id is %+v", d)
		}
	}
	c.Captures[7].Released = true
	if d := c.Capture("m"); d != nil {
		t.Fatalf("a released capture, %+v, still has its id", d)
	}
}

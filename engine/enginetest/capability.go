package enginetest

import (
	"testing"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/engine/capability"
)

// runCapabilities compares what the list says of the engine with what a shard and its conversation show.
func runCapabilities(t *testing.T, h Harness) {
	s := h.Open(t)
	c, can := connect(t, s), capability.Of(h.Driver.Name())
	shows := func(what string, says, is bool) {
		t.Helper()
		if says != is {
			t.Errorf("the list says %s is %t", what, says)
		}
	}
	takes := func(sql string) bool { return c.query(sql).err() == nil }
	_, replicated := c.Conn.(engine.Replicated)
	_, users := s.(engine.Users)
	_, grouped := c.Conn.(engine.Grouped)
	_, brings := c.Conn.(engine.Relations)
	shows("Servers", can.Servers, replicated)
	shows("Servers", can.Servers, users)
	shows("Locks", can.Locks, !grouped)
	shows("TypedRelations", can.TypedRelations, !brings)
	shows("Sequences", can.Sequences, takes("CREATE SEQUENCE counted"))
	shows("Types", can.Types, takes("CREATE TYPE named AS ENUM ('a')"))
	shows("Code", can.Code, takes("DO 'BEGIN END'"))
	shows("Styles", can.Styles, takes("SET DateStyle TO 'German'"))
	shows("ConcurrentIndexes", can.ConcurrentIndexes, takes("SELECT 1 FROM pg_catalog.pg_stat_activity WHERE pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()"))
	shows("Judges", can.Judges, takes("PREPARE judged AS SELECT 1"))
	shows("LargeObjects", can.LargeObjects, takes("SELECT pg_catalog.lo_create(0)"))
	if !h.Driver.Opens(h.URL(t)) {
		t.Error("the driver does not know the form of its own URLs")
	}
}

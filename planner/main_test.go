package planner

import (
	"flag"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files and the catalogue lists again")

func TestMain(m *testing.M) { pgtest.Main(m) }

package sqlite_test

import (
	"testing"

	"github.com/cleavedb/cleave/engine/enginetest"
)

func TestMover(t *testing.T) {
	enginetest.RunMover(t, enginetest.MoverHarness{Harness: harness()})
}

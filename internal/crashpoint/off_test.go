package crashpoint

import (
	"context"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOff: a program of the usual kind stops nowhere, and does not even ask.
func TestOff(t *testing.T) {
	Step("anybody")
	At(context.Background(), func() string { t.Error("it asks where it is"); return "" })
}

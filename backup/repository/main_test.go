package repository_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// writerVariable names the folder that this process writes to until it is killed.
const writerVariable = "CLEAVE_TEST_REPOSITORY_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		endlessWriter(dir)
	}
	goleak.VerifyTestMain(m)
}

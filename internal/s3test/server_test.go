package s3test_test

import (
	"net/http"
	"testing"

	"github.com/cleavedb/cleave/internal/s3test"
)

// TestServerAnswers builds the S3 server if it is missing, starts it, kills it and starts it again.
func TestServerAnswers(t *testing.T) {
	s := s3test.New(t)
	s.Kill()
	s.Start()
	answer, err := http.Get("http://" + s.Addr() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // the status says all
	if answer.StatusCode != http.StatusOK {
		t.Errorf("it says %s", answer.Status)
	}
}

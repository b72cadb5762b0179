package moment

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Exported is what a block exports: a snapshot of each shard. Clients pass its name on, and any router can read it.
type Exported struct {
	Version uint64              `json:"v"` // of the map by which they were taken
	Shards  map[string]Snapshot `json:"s"`
}

// Snapshot is one shard's.
type Snapshot struct {
	Name string `json:"n"` // the shard's own
	Run  string `json:"r"` // tells the run of its server from others, where names come again
}

// exportedMax bounds a name: it has some hundred bytes for each shard.
const exportedMax = 1 << 20

// nameChars are those of PostgreSQL's names of snapshots.
const nameChars = "0123456789ABCDEF-"

// Seal is the name, with a proof that somebody with the cluster's key has made it.
func (e Exported) Seal(key []byte) (string, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%X-%X", body, sealOf(key, body)), nil
}

// Unseal reads a name. ok is false for what was not made with the key.
func Unseal(key []byte, name string) (e Exported, ok bool) {
	if len(name) > exportedMax || strings.Trim(name, nameChars) != "" {
		return e, false
	}
	text, proof, _ := strings.Cut(name, "-")
	body, err := hex.DecodeString(text)
	if err != nil {
		return e, false
	}
	said, err := hex.DecodeString(proof)
	if err != nil || !hmac.Equal(said, sealOf(key, body)) || json.Unmarshal(body, &e) != nil {
		return Exported{}, false
	}
	return e, true
}

// sealOf is the proof. Its key is one of its own: what members say to each other is proved by the cluster's.
func sealOf(key, body []byte) []byte {
	own := hmac.New(sha256.New, key)
	_, _ = own.Write([]byte("names of snapshots")) // never fails
	m := hmac.New(sha256.New, own.Sum(nil))
	_, _ = m.Write(body) // never fails
	return m.Sum(nil)[:16]
}

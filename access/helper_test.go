package access

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/subtle"
)

// clientProof is what a client that knows the password sends.
func clientProof(password string, v Verifier, message []byte) []byte {
	salted, err := pbkdf2.Key(sha256.New, prepare(password), v.salt, v.iterations, sha256.Size)
	if err != nil {
		panic(err)
	}
	key := mac(salted, []byte("Client Key"))
	stored := sha256.Sum256(key)
	proof := make([]byte, sha256.Size)
	subtle.XORBytes(proof, key, mac(stored[:], message))
	return proof
}

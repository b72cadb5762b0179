package repository

import (
	"os"
	"strings"

	"filippo.io/age"

	"github.com/cleavedb/cleave/sqlstate"
)

// parseRecipients reads public keys (https://age-encryption.org/v1, X25519 and hybrid recipients).
func parseRecipients(keys []string) ([]age.Recipient, error) {
	var list []age.Recipient
	for _, k := range keys {
		found, err := age.ParseRecipients(strings.NewReader(k))
		if err != nil {
			return nil, sqlstate.New(sqlstate.ConfigFileError, "%q is no recipient", cut(k)).
				WithHint("A recipient is a public key of age, age1...: age-keygen makes a pair of keys and prints it.")
		}
		list = append(list, found...)
	}
	return list, nil
}

// readIdentities reads a file of secret keys. No error repeats what is in it.
func readIdentities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the file of identities cannot be read").
			WithHint("Name the file that age-keygen wrote.")
	}
	defer f.Close()
	list, err := age.ParseIdentities(f)
	if err != nil {
		return nil, sqlstate.New(sqlstate.ConfigFileError, "the file of identities %s has none that can be read", path).
			WithHint("It has a line AGE-SECRET-KEY-1... for each secret key, as age-keygen writes it.")
	}
	return list, nil
}

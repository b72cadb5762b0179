package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are the files of a CA, a server and a client, made for a test.
type Certificates struct {
	CA                    string
	ServerCert, ServerKey string
	ClientCert, ClientKey string
}

// NewCertificates makes certificates for 127.0.0.1 and localhost that are valid
// for an hour; the client's name is client.
func NewCertificates(tb testing.TB, client string) *Certificates {
	tb.Helper()
	dir := tb.TempDir()
	check := func(err error) {
		if err != nil {
			tb.Fatalf("etcdtest: %v", err)
		}
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	ca := template(1, "test CA")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	check(err)
	leaf := func(serial int64, file string, t *x509.Certificate) (cert, key string) {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		check(err)
		der, err := x509.CreateCertificate(rand.Reader, t, ca, &k.PublicKey, caKey)
		check(err)
		keyDER, err := x509.MarshalPKCS8PrivateKey(k)
		check(err)
		return write(file+".crt", "CERTIFICATE", der), write(file+".key", "PRIVATE KEY", keyDER)
	}
	c := &Certificates{CA: write("ca.crt", "CERTIFICATE", caDER)}
	server := template(2, "etcd")
	server.IPAddresses, server.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	// etcd's own gateway is a client of itself.
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	c.ServerCert, c.ServerKey = leaf(2, "server", server)
	user := template(3, client)
	user.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	c.ClientCert, c.ClientKey = leaf(3, "client", user)
	return c
}

func (c *Certificates) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

package arrival

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"hash"
	"net"
	"os"
	"sync/atomic"

	"github.com/cleavedb/cleave/sqlstate"
)

// alpn is PostgreSQL's name in the TLS handshake, demanded of clients that begin
// with TLS at once (sslnegotiation=direct).
const alpn = "postgresql"

// TLSFiles name what TLS to clients is made of, PEM files.
type TLSFiles struct {
	Certificate string // the server's, with the chain after it
	Key         string
	ClientCA    string // authorities of clients' certificates; "": none are asked for
}

// TLS encrypts the conversations with clients. Methods are safe for concurrent use.
type TLS struct {
	files TLSFiles
	now   atomic.Pointer[tlsState]
}

type tlsState struct {
	config *tls.Config
	// binding is the certificate's tls-server-end-point (RFC 5929), nil if it has none.
	binding []byte
	leaf    *x509.Certificate
}

// LoadTLS reads the files. Fails with F0000, naming the file.
func LoadTLS(files TLSFiles) (*TLS, error) {
	t := &TLS{files: files}
	return t, t.Reload()
}

// Reload reads the files again; new connections get the new certificate. On an
// error the old one stays in force.
func (t *TLS) Reload() error {
	bad := func(file string, err error) error {
		return sqlstate.Wrap(err, sqlstate.ConfigFileError, "TLS to clients: %s cannot be used", file).
			WithHint("the certificate (with its chain) and its key are PEM files that belong together")
	}
	chain, err := os.ReadFile(t.files.Certificate)
	if err != nil {
		return bad(t.files.Certificate, err)
	}
	key, err := os.ReadFile(t.files.Key)
	if err != nil {
		return bad(t.files.Key, err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return bad(t.files.Certificate, err)
	}
	s := &tlsState{leaf: pair.Leaf, binding: endPoint(pair.Leaf), config: &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{alpn},
		// A session taken up again would skip the check of a client's certificate
		// that has been replaced since.
		SessionTicketsDisabled: true,
	}}
	if t.files.ClientCA != "" {
		text, err := os.ReadFile(t.files.ClientCA)
		if err != nil {
			return bad(t.files.ClientCA, err)
		}
		s.config.ClientCAs = x509.NewCertPool()
		if block, _ := pem.Decode(text); block == nil || !s.config.ClientCAs.AppendCertsFromPEM(text) {
			return sqlstate.New(sqlstate.ConfigFileError, "TLS to clients: %s holds no certificate", t.files.ClientCA)
		}
		s.config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	t.now.Store(s)
	return nil
}

// HTTP is for an HTTP server with the same certificate, whichever is in force.
func (t *TLS) HTTP() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &t.now.Load().config.Certificates[0], nil
	}}
}

// Leaf is the certificate in force.
func (t *TLS) Leaf() *x509.Certificate { return t.now.Load().leaf }

// endPoint is the hash that binds SCRAM to a certificate: that of its signature,
// but SHA-256 for the weak ones. Ed25519 has none that all agree on: no binding.
func endPoint(c *x509.Certificate) []byte {
	var h hash.Hash
	switch c.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.SHA256WithRSA, x509.ECDSAWithSHA256, x509.SHA256WithRSAPSS:
		h = sha256.New()
	case x509.SHA384WithRSA, x509.ECDSAWithSHA384, x509.SHA384WithRSAPSS:
		h = sha512.New384()
	case x509.SHA512WithRSA, x509.ECDSAWithSHA512, x509.SHA512WithRSAPSS:
		h = sha512.New()
	default:
		return nil
	}
	h.Write(c.Raw)
	return h.Sum(nil)
}

// Channel is what protects a client's connection.
type Channel struct {
	TLS bool
	// Binding is the server's tls-server-end-point, nil if the certificate has none.
	Binding []byte
	// Name is the common name of the client's certificate, which was verified
	// against TLSFiles.ClientCA; "" if it gave none.
	Name string
}

// handshake makes nc a TLS connection. direct: the client began with TLS.
func (t *TLS) handshake(ctx context.Context, nc net.Conn, direct bool) (*tls.Conn, Channel, error) {
	s := t.now.Load()
	c := tls.Server(nc, s.config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, Channel{}, err
	}
	state := c.ConnectionState()
	if direct && state.NegotiatedProtocol != alpn {
		return nil, Channel{}, errNoALPN
	}
	ch := Channel{TLS: true, Binding: s.binding}
	if len(state.VerifiedChains) > 0 {
		ch.Name = state.VerifiedChains[0][0].Subject.CommonName
	}
	return c, ch, nil
}

var errNoALPN = sqlstate.New(sqlstate.ProtocolViolation, "received direct SSL connection request without ALPN protocol negotiation extension")

// begun is a connection of which some bytes have been read already.
type begun struct {
	net.Conn
	read *bytes.Reader
}

func (b *begun) Read(p []byte) (int, error) {
	if b.read.Len() > 0 {
		return b.read.Read(p)
	}
	return b.Conn.Read(p)
}

// tlsHandshake is the first byte of a TLS handshake record, which no startup
// packet begins with: their length would be over startupBytes.
const tlsHandshake = 0x16

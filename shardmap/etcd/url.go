package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Scheme begins the URLs of this directory.
const Scheme = "etcd://"

// defaultPrefix stands for an empty path.
const defaultPrefix = "/cleave"

// defaultTimeout bounds one request with all its attempts.
const defaultTimeout = 5 * time.Second

// address is what a URL says.
type address struct {
	endpoints      []string // host:port
	user, password string
	prefix         string // begins with a slash, ends without
	tls            *tls.Config
	timeout        time.Duration
}

// Form is the form of the URLs, for messages.
const Form = "etcd://[user:password@]host[:2379][,host...][/prefix][?cacert=FILE&cert=FILE&key=FILE&server-name=NAME&tls=true&timeout=5s]"

// Check reports what is wrong with a URL, without its secrets. It opens no file.
func Check(text string) error {
	_, _, err := parse(text)
	return err
}

func bad(text, format string, args ...any) error {
	e := sqlstate.New(sqlstate.ConfigFileError, format, args...).WithHint("the form is %s", Form)
	e.Detail = "directory " + shardmap.Redacted(text)
	return e
}

// parse reads a URL; files are those that it names for TLS.
func parse(text string) (a address, files url.Values, err error) {
	rest, ok := strings.CutPrefix(text, Scheme)
	if !ok {
		return a, nil, bad(text, "the directory's URL does not begin with %s", Scheme)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if strings.ContainsAny(rest, "#") || strings.Contains(path, "@") {
		return a, nil, bad(text, "the directory's URL has a character that must be written as %%2F, %%23, %%3F or %%40 in user and password")
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		var e1, e2 error
		a.user, e1 = url.PathUnescape(user)
		a.password, e2 = url.PathUnescape(password)
		if e1 != nil || e2 != nil || a.user == "" || strings.ContainsRune(authority[:at], '@') {
			return a, nil, bad(text, "user and password of the directory's URL cannot be read")
		}
		authority = authority[at+1:]
	}
	for _, host := range strings.Split(authority, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), "2379"
		}
		if name == "" || strings.ContainsAny(name, " /\t\x00") || strings.Contains(name, ":") && !strings.HasPrefix(host, "[") ||
			port == "" || strings.Trim(port, "0123456789") != "" {
			return a, nil, bad(text, "%q is no host:port of an etcd server", host)
		}
		a.endpoints = append(a.endpoints, net.JoinHostPort(name, port))
	}
	a.prefix = defaultPrefix
	if path = strings.Trim(path, "/"); path != "" {
		if a.prefix, err = url.PathUnescape("/" + path); err != nil || strings.ContainsRune(a.prefix, 0) {
			return a, nil, bad(text, "the prefix of the directory's URL cannot be read")
		}
	}
	files, err = url.ParseQuery(query)
	if err != nil {
		return a, nil, bad(text, "the parameters of the directory's URL cannot be read")
	}
	a.timeout = defaultTimeout
	for name, values := range files {
		value := values[len(values)-1]
		switch name {
		case "cacert", "cert", "key", "server-name":
			if value == "" {
				return a, nil, bad(text, "the parameter %s of the directory's URL is empty", name)
			}
		case "tls":
			if value != "true" && value != "false" {
				return a, nil, bad(text, "the parameter tls of the directory's URL is neither true nor false")
			}
		case "timeout":
			if a.timeout, err = time.ParseDuration(value); err != nil || a.timeout < 100*time.Millisecond || a.timeout > time.Minute {
				return a, nil, bad(text, "the parameter timeout of the directory's URL is not a duration from 100ms to 1m")
			}
		default:
			return a, nil, bad(text, "the directory's URL has a parameter %q, which does not exist", name)
		}
	}
	if files.Has("cert") != files.Has("key") {
		return a, nil, bad(text, "the directory's URL names only one of cert and key; a client's certificate needs both")
	}
	if files.Get("tls") == "false" && (files.Has("cacert") || files.Has("cert") || files.Has("server-name")) {
		return a, nil, bad(text, "the directory's URL says tls=false, and names what only TLS uses")
	}
	return a, files, nil
}

// load reads the files that the URL names.
func load(text string) (address, error) {
	a, files, err := parse(text)
	if err != nil {
		return a, err
	}
	if !slices.ContainsFunc([]string{"cacert", "cert", "server-name"}, files.Has) && files.Get("tls") != "true" {
		return a, nil
	}
	a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if path := files.Get("cacert"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return a, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the directory's CA certificates %s cannot be read", path)
		}
		a.tls.RootCAs = x509.NewCertPool()
		if !a.tls.RootCAs.AppendCertsFromPEM(pem) {
			return a, sqlstate.New(sqlstate.ConfigFileError, "the directory's CA file %s holds no certificate", path)
		}
	}
	if name := files.Get("server-name"); name != "" {
		// gRPC checks the certificate for the host that it dials, whatever the
		// configuration says: so the whole check is made here, for the name.
		roots := a.tls.RootCAs
		a.tls.InsecureSkipVerify = true
		a.tls.VerifyConnection = func(cs tls.ConnectionState) error {
			opts := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
			for _, c := range cs.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			_, err := cs.PeerCertificates[0].Verify(opts)
			return err
		}
	}
	if files.Has("cert") {
		cert, key := files.Get("cert"), files.Get("key")
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return a, sqlstate.Wrap(err, sqlstate.ConfigFileError, "the directory's client certificate %s and its key cannot be used", cert)
		}
		// Read at each connection: certificates are renewed while routers run.
		a.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	return a, nil
}

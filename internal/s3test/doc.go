// Package s3test runs a real S3 server for tests: versitygw (https://github.com/versity/versitygw) over a folder, which
// is killed, stopped with SIGSTOP and started again, and a way to it that loses requests and answers.
//
// The server is built once from the module proxy and kept in the cache folder of the test harness. Its module is nested,
// in testdata, so that it is no dependency of Cleave. CLEAVE_S3_BIN names one that was built elsewhere. The first build
// takes some minutes.
package s3test

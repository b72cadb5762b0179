// Package oteltest is a collector of OpenTelemetry traces for tests: a real
// OTLP/gRPC server that keeps the spans it gets.
package oteltest

// Package rpc tests the gRPC proxy against grpcurl, which learns all that it
// knows of the services by reflection, and by Connect's conformance suite. Open
// rpc_test.go.
package rpc

// Package deploy tests the files in deploy/kubernetes: each is valid for Kubernetes's own
// types, and its settings are valid for a service.
//
// It is a module of its own, so that the product's go.mod stays free of Kubernetes.
package deploy

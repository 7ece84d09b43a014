// Package deploy tests the files in deploy/kubernetes: each is valid for Kubernetes's own
// types, and its settings are valid for a service. It also tests the files of
// deploy/release.sh, which makes the container images by the command images.
//
// It is a module of its own, so that the product's go.mod stays free of Kubernetes and of
// registries.
package deploy

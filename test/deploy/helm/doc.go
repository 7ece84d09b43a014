// Package helm renders the chart in deploy/helm by Helm itself, and compares the manifests
// with those of "servetrace render".
//
// It is a module of its own, because Helm needs Kubernetes' client.
package helm

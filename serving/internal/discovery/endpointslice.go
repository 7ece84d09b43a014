package discovery

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
)

// sliceView has the current EndpointSlices of a Service. It reports the endpoints in them.
type sliceView struct {
	port   string                   // name or number of the port of the endpoints
	update func([]Endpoint)         // called by report; see Source
	slices map[string]endpointSlice // by the name of the EndpointSlice
	last   []Endpoint               // the list of the last report
	known  bool                     // there was a report
}

// replace replaces all slices, and calls report.
func (v *sliceView) replace(items []endpointSlice) {
	clear(v.slices)
	for _, item := range items {
		v.slices[item.Metadata.Name] = item
	}
	v.report()
}

// report calls update with the endpoints, unless the list is the same as in the last call.
func (v *sliceView) report() {
	list := v.endpoints()
	if v.known && slices.Equal(list, v.last) {
		return
	}
	v.last, v.known = list, true
	v.update(slices.Clone(list))
}

// endpoints returns the endpoints of all slices, without duplicates. While Kubernetes moves
// an endpoint to another slice, it is in two slices, and the result has the endpoint that is
// ready. If a pod has an IPv4 and an IPv6 address, the result has its IPv4 address.
func (v *sliceView) endpoints() []Endpoint {
	var all []Endpoint
	for _, slice := range v.slices {
		all = append(all, slice.endpoints(v.port)...)
	}
	slices.SortFunc(all, func(a, b Endpoint) int {
		return cmp.Or(boolOrder(isIPv6(a.Addr), isIPv6(b.Addr)), byAddr(a, b), boolOrder(b.Ready, a.Ready), boolOrder(b.Serving, a.Serving))
	})
	var list []Endpoint
	addrs, pods := map[string]bool{}, map[string]bool{}
	for _, e := range all {
		if addrs[e.Addr] || e.Name != "" && pods[e.Name] {
			continue
		}
		addrs[e.Addr], pods[e.Name] = true, true
		list = append(list, e)
	}
	slices.SortFunc(list, byAddr)
	return list
}

// isIPv6 reports whether the host of host:port is an IPv6 address.
func isIPv6(addr string) bool { return strings.HasPrefix(addr, "[") }

// boolOrder compares a and b, for sorting false before true.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

type metadata struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
}

// endpointSlice has the fields that this package reads of an EndpointSlice of the API
// discovery.k8s.io/v1. Fields that may be absent are pointers.
type endpointSlice struct {
	Metadata    metadata `json:"metadata"`
	AddressType string   `json:"addressType"`
	Ports       []struct {
		Name     string  `json:"name"`
		Protocol *string `json:"protocol"`
		Port     *uint16 `json:"port"`
	} `json:"ports"`
	Endpoints []struct {
		Addresses  []string `json:"addresses"`
		Conditions struct {
			Ready   *bool `json:"ready"`
			Serving *bool `json:"serving"`
		} `json:"conditions"`
		TargetRef *struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"targetRef"`
	} `json:"endpoints"`
}

// endpoints returns the endpoints of a slice with a port. port is the name of a port of the
// slice, or a number. If the slice has no port of that name, there are no endpoints.
func (s endpointSlice) endpoints(port string) (list []Endpoint) {
	if s.AddressType == "FQDN" {
		return nil
	}
	if number := s.number(port); number != "" {
		port = number
	} else if _, err := strconv.Atoi(port); err != nil {
		return nil
	}
	for _, e := range s.Endpoints {
		if len(e.Addresses) == 0 {
			continue
		}
		// The first address stands for all, because they belong to the same pod. If the
		// condition ready is absent, the endpoint is ready. If serving is absent, it is
		// equal to ready.
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		endpoint := Endpoint{Addr: net.JoinHostPort(e.Addresses[0], port), Ready: ready, Serving: ready}
		if e.Conditions.Serving != nil {
			endpoint.Serving = *e.Conditions.Serving
		}
		if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
			endpoint.Name = e.TargetRef.Name
		}
		list = append(list, endpoint)
	}
	return list
}

// number returns the number of the TCP port with a name, or "" if the slice has no such port.
func (s endpointSlice) number(name string) string {
	for _, p := range s.Ports {
		if p.Name == name && p.Port != nil && (p.Protocol == nil || *p.Protocol == "TCP") {
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}

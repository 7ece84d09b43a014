package discovery

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
)

// sliceView has the current EndpointSlices of a Service, by their names.
type sliceView struct {
	port   string
	update func([]Endpoint)
	slices map[string]endpointSlice
	last   []Endpoint
	known  bool
}

// replace replaces the slices, and calls report.
func (v *sliceView) replace(items []endpointSlice) {
	clear(v.slices)
	for _, item := range items {
		v.slices[item.Metadata.Name] = item
	}
	v.report()
}

// report reports the endpoints, unless the list is the same as in the last report.
func (v *sliceView) report() {
	list := v.endpoints()
	if v.known && slices.Equal(list, v.last) {
		return
	}
	v.last, v.known = list, true
	v.update(slices.Clone(list))
}

// endpoints returns the endpoints of the slices. While Kubernetes moves an endpoint, it is
// in two slices, and the endpoint that is ready counts. A pod with addresses of both
// families is one process, and its IPv4 address counts.
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

// boolOrder orders false before true.
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

// endpointSlice has the fields of a discovery.k8s.io/v1 EndpointSlice that this package
// reads. Fields that may be absent are pointers.
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

// endpoints returns the endpoints of a slice. Port is the name of a port of the slice, or a
// number.
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
		// The addresses of an endpoint are interchangeable. An absent condition stands for
		// its usual value.
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

// number returns the number of the TCP port with this name, "" if there is none.
func (s endpointSlice) number(name string) string {
	for _, p := range s.Ports {
		if p.Name == name && p.Port != nil && (p.Protocol == nil || *p.Protocol == "TCP") {
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}

package otlpexporter

import (
	"cmp"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// proxyOf returns the address of the proxy through which a URL is reached, or nil if it
// is reached directly.
type proxyOf func(*url.URL) (*url.URL, error)

// proxies reads the proxy variables by the rules of http.ProxyFromEnvironment. It does
// not call that function, because that would keep the first values for the whole process.
func proxies(getenv func(string) string) proxyOf {
	config := httpproxy.Config{
		HTTPProxy:  cmp.Or(getenv("http_proxy"), getenv("HTTP_PROXY")),
		HTTPSProxy: cmp.Or(getenv("https_proxy"), getenv("HTTPS_PROXY")),
		NoProxy:    cmp.Or(getenv("no_proxy"), getenv("NO_PROXY")),
	}
	return config.ProxyFunc()
}

func (p proxyOf) of(req *http.Request) (*url.URL, error) { return p(req.URL) }

package otlpexporter

import (
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// proxyOf returns the proxy for a URL, or nil.
type proxyOf func(*url.URL) (*url.URL, error)

// proxies reads the proxy variables by the rules of http.ProxyFromEnvironment, which
// would cache the first values.
func proxies(getenv func(string) string) proxyOf {
	first := func(names ...string) string {
		for _, name := range names {
			if text := getenv(name); text != "" {
				return text
			}
		}
		return ""
	}
	config := httpproxy.Config{
		HTTPProxy:  first("http_proxy", "HTTP_PROXY"),
		HTTPSProxy: first("https_proxy", "HTTPS_PROXY"),
		NoProxy:    first("no_proxy", "NO_PROXY"),
	}
	return config.ProxyFunc()
}

// of returns the proxy for a request, for http.Transport.
func (p proxyOf) of(req *http.Request) (*url.URL, error) { return p(req.URL) }

// via returns the proxy for the endpoint, without credentials, or "". gRPC uses the
// proxy for HTTPS, with or without TLS.
func (c *settings) via() string {
	to := c.endpoint.url
	if c.protocol == protocolGRPC {
		to = &url.URL{Scheme: "https", Host: c.endpoint.host}
	}
	if to.Host == "" {
		return ""
	}
	proxy, err := c.proxy(to)
	if err != nil || proxy == nil {
		return ""
	}
	return shownURL(&url.URL{Scheme: proxy.Scheme, Host: proxy.Host})
}
